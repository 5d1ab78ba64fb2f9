"""`ds4 serve`: flags, start-up lines and exit codes. Heavy imports wait until the flags are read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from apps.config import ConfigOption
from apps.kv_folder import named_folder
from apps.options import (
    DEFAULT_CONTEXT,
    DEFAULT_POWER,
    BackendOption,
    ContextOption,
    EffortOption,
    EffortProfileOption,
    EngineOptions,
    LoadOption,
    MaxTokensOption,
    ModelOption,
    NoThinkOption,
    PowerOption,
    PrefillChunkOption,
    QualityOption,
    ScriptOption,
    SimulateMemoryOption,
    ThinkMaxOption,
    ThinkOption,
    ThreadsOption,
    TraceOption,
    WarmWeightsOption,
    requested_effort,
)
from apps.serve.access_options import (
    AllowedHostOption,
    ApiKeyFileOption,
    ApiKeyOption,
    CorsOption,
    CorsOriginOption,
    access_settings,
    access_warnings,
)
from apps.serve.kv_options import (
    DEFAULT_SPACE_MB,
    MIB,
    AlignOption,
    CheckpointOption,
    ColdMaxOption,
    ContinuedOption,
    DiskDirOption,
    DiskSpaceOption,
    MinTokensOption,
    NoDiskOption,
    NoSyncOption,
    RejectQuantOption,
    SessionsOption,
    TrimOption,
    disk_settings,
)
from apps.serve.log import LogFormat
from apps.serve.settings import (
    DEFAULT_CHECKPOINT_BYTES,
    DEFAULT_MAX_QUEUE,
    DEFAULT_MAX_TOKENS,
    DEFAULT_PORT,
    DEFAULT_TOOL_MEMORY,
    ServerSettings,
)
from apps.steering_options import AttentionOption, FeedForwardOption, FileOption, steering_request
from apps.threads import limit_threads
from shared.errors import UsageError
from shared.kv.store.policy import StoreSettings

_SERVER = "Server"
_STORE = StoreSettings()

HostOption = Annotated[
    str,
    typer.Option(
        "--host", metavar="HOST", envvar="DS4_HOST", help="Address to listen on.", rich_help_panel=_SERVER
    ),
]
PortOption = Annotated[
    int,
    typer.Option(
        "--port",
        metavar="N",
        envvar="DS4_PORT",
        min=0,
        max=65535,
        help="Port to listen on; 0 takes a free one and prints it.",
        rich_help_panel=_SERVER,
    ),
]
ChdirOption = Annotated[
    Path | None,
    typer.Option(
        "--chdir",
        metavar="DIR",
        envvar="DS4_CHDIR",
        help="Change to this directory first.",
        rich_help_panel=_SERVER,
    ),
]
LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        envvar="DS4_LOG_FORMAT",
        help="Lines for people, or a JSON object a line; auto: JSON unless stderr is a terminal.",
        rich_help_panel=_SERVER,
    ),
]
ControlTokensOption = Annotated[
    bool,
    typer.Option(
        "--control-tokens-in-content",
        envvar="DS4_CONTROL_TOKENS_IN_CONTENT",
        help="Let control strings in what clients send act as control tokens.",
        rich_help_panel=_SERVER,
    ),
]
ExactReplayOption = Annotated[
    bool,
    typer.Option(
        "--disable-exact-dsml-tool-replay",
        envvar="DS4_DISABLE_EXACT_DSML_TOOL_REPLAY",
        help="Render replayed tool calls anew instead of as they were sampled.",
        rich_help_panel=_SERVER,
    ),
]
MaxQueueOption = Annotated[
    int,
    typer.Option(
        "--max-queue",
        metavar="N",
        envvar="DS4_MAX_QUEUE",
        min=0,
        help="Requests that may wait while all sessions are in work; the next are told to try again later.",
        rich_help_panel=_SERVER,
    ),
]
ToolMemoryOption = Annotated[
    int,
    typer.Option(
        "--tool-memory-max-ids",
        metavar="N",
        envvar="DS4_TOOL_MEMORY_MAX_IDS",
        min=1,
        help="How many tool calls are remembered for exact replay.",
        rich_help_panel=_SERVER,
    ),
]


def serve(
    config: ConfigOption = None,
    model: ModelOption = None,
    backend: BackendOption = "auto",
    script: ScriptOption = None,
    ctx: ContextOption = DEFAULT_CONTEXT,
    prefill_chunk: PrefillChunkOption = None,
    simulate_memory: SimulateMemoryOption = None,
    trace: TraceOption = None,
    load: LoadOption = "mmap",
    quality: QualityOption = False,
    warm_weights: WarmWeightsOption = False,
    threads: ThreadsOption = None,
    power: PowerOption = DEFAULT_POWER,
    tokens: MaxTokensOption = DEFAULT_MAX_TOKENS,
    think: ThinkOption = False,
    think_max: ThinkMaxOption = False,
    nothink: NoThinkOption = False,
    effort: EffortOption = None,
    effort_profile: EffortProfileOption = "auto",
    host: HostOption = "127.0.0.1",
    port: PortOption = DEFAULT_PORT,
    api_key: ApiKeyOption = None,
    api_key_file: ApiKeyFileOption = None,
    cors: CorsOption = False,
    cors_origin: CorsOriginOption = None,
    allowed_host: AllowedHostOption = None,
    chdir: ChdirOption = None,
    log_format: LogFormatOption = "auto",
    control_tokens_in_content: ControlTokensOption = False,
    disable_exact_dsml_tool_replay: ExactReplayOption = False,
    tool_memory_max_ids: ToolMemoryOption = DEFAULT_TOOL_MEMORY,
    sessions: SessionsOption = 1,
    max_queue: MaxQueueOption = DEFAULT_MAX_QUEUE,
    kv_checkpoint_mb: CheckpointOption = DEFAULT_CHECKPOINT_BYTES // MIB,
    kv_disk_dir: DiskDirOption = None,
    no_kv_disk: NoDiskOption = False,
    kv_disk_space_mb: DiskSpaceOption = DEFAULT_SPACE_MB,
    kv_cache_min_tokens: MinTokensOption = _STORE.min_tokens,
    kv_cache_cold_max_tokens: ColdMaxOption = _STORE.cold_max_tokens,
    kv_cache_continued_interval_tokens: ContinuedOption = _STORE.continued_interval,
    kv_cache_boundary_trim_tokens: TrimOption = _STORE.trim_tokens,
    kv_cache_boundary_align_tokens: AlignOption = _STORE.align_tokens,
    kv_cache_reject_different_quant: RejectQuantOption = False,
    kv_no_fsync: NoSyncOption = False,
    dir_steering_file: FileOption = None,
    dir_steering_ffn: FeedForwardOption = None,
    dir_steering_attn: AttentionOption = None,
) -> None:
    """Serve the HTTP API for clients and agents."""
    limit_threads(threads)
    if chdir is not None:
        _change_directory(chdir)
    chosen = requested_effort(think, think_max, nothink, effort)
    disk = disk_settings(
        kv_disk_dir,
        no_kv_disk,
        kv_disk_space_mb,
        kv_cache_min_tokens,
        kv_cache_cold_max_tokens,
        kv_cache_continued_interval_tokens,
        kv_cache_boundary_trim_tokens,
        kv_cache_boundary_align_tokens,
        kv_cache_reject_different_quant,
        kv_no_fsync,
    )
    api_key_file = named_folder(api_key_file) if api_key_file else None
    access = access_settings(
        host,
        keys=api_key or (),
        key_file=api_key_file,
        any_origin=cors,
        origins=cors_origin or (),
        host_names=allowed_host or (),
    )

    from apps.serve.start import serve_until_stopped

    options = EngineOptions(
        model=model,
        backend=backend,
        script=script,
        context=ctx,
        prefill_chunk=prefill_chunk,
        simulate_memory=simulate_memory,
        effort_profile=effort_profile,
        load=load,
        quality=quality,
        warm_weights=warm_weights,
        threads=threads,
        power=power,
        sessions=sessions,
        checkpoint_bytes=kv_checkpoint_mb * MIB,
        steering=steering_request(dir_steering_file, dir_steering_ffn, dir_steering_attn),
    )
    settings = ServerSettings(
        max_tokens=tokens,
        thinking=chosen != "none",
        effort="high" if chosen == "none" else chosen,
        control_tokens_in_content=control_tokens_in_content,
        exact_replay=not disable_exact_dsml_tool_replay,
        tool_memory_ids=tool_memory_max_ids,
        sessions=sessions,
        max_queue=max_queue,
        checkpoint_bytes=kv_checkpoint_mb * MIB,
        disk=disk,
        access=access,
    )
    warnings = access_warnings(host, access, api_key_file)
    serve_until_stopped(
        options, settings, host, port, trace_path=trace, warnings=warnings, log_format=log_format
    )


def _change_directory(directory: Path) -> None:
    try:
        os.chdir(directory)
    except OSError as error:
        raise UsageError(f"--chdir {directory}: {error.strerror}") from None
