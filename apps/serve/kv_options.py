"""The options of `ds4 serve` about what is kept of conversations: sessions, checkpoints, the disk store.

Owns the options and what they mean together; knows no store at work. Spec: kv §5.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from apps.kv_folder import disk_dir, named_folder
from apps.serve.settings import DiskSettings
from shared.errors import UsageError
from shared.kv.store.policy import DEFAULT_BUDGET_BYTES, StoreSettings

MIB: Final = 2**20
DEFAULT_SPACE_MB: Final = DEFAULT_BUDGET_BYTES // MIB
_PANEL: Final = "Prompt cache"
_MOST_TOKENS: Final = 2**31 - 1

SessionsOption = Annotated[
    int,
    typer.Option(
        "--sessions",
        metavar="N",
        envvar="DS4_SESSIONS",
        min=1,
        max=256,
        help="Requests answered at once and conversations kept in memory, each with a context of its own.",
        rich_help_panel=_PANEL,
    ),
]
CheckpointOption = Annotated[
    int,
    typer.Option(
        "--kv-checkpoint-mb",
        metavar="N",
        envvar="DS4_KV_CHECKPOINT_MB",
        min=0,
        max=2**20,
        help="Memory for points that a conversation can go back to, all sessions together; 0: for none.",
        rich_help_panel=_PANEL,
    ),
]
DiskDirOption = Annotated[
    Path | None,
    typer.Option(
        "--kv-disk-dir",
        parser=disk_dir,
        metavar="DIR",
        envvar="DS4_KV_DISK_DIR",
        show_default="in the user's cache, one folder a model",
        help="Folder of the disk store, for one model.",
        rich_help_panel=_PANEL,
    ),
]
NoDiskOption = Annotated[
    bool,
    typer.Option(
        "--no-kv-disk",
        envvar="DS4_NO_KV_DISK",
        help="Keep no prompt states on disk.",
        rich_help_panel=_PANEL,
    ),
]
DiskSpaceOption = Annotated[
    int,
    typer.Option(
        "--kv-disk-space-mb",
        metavar="N",
        envvar="DS4_KV_DISK_SPACE_MB",
        min=0,
        max=2**30,
        help="Most MiB of the disk store; 0 means the default.",
        rich_help_panel=_PANEL,
    ),
]
MinTokensOption = Annotated[
    int,
    typer.Option(
        "--kv-cache-min-tokens",
        metavar="N",
        envvar="DS4_KV_CACHE_MIN_TOKENS",
        min=1,
        max=_MOST_TOKENS,
        help="Shorter prefixes are not kept on disk.",
        rich_help_panel=_PANEL,
    ),
]
ColdMaxOption = Annotated[
    int,
    typer.Option(
        "--kv-cache-cold-max-tokens",
        metavar="N",
        envvar="DS4_KV_CACHE_COLD_MAX_TOKENS",
        min=0,
        max=_MOST_TOKENS,
        help="Longest new prompt whose beginning is saved right away; 0: none is.",
        rich_help_panel=_PANEL,
    ),
]
ContinuedOption = Annotated[
    int,
    typer.Option(
        "--kv-cache-continued-interval-tokens",
        metavar="N",
        envvar="DS4_KV_CACHE_CONTINUED_INTERVAL_TOKENS",
        min=0,
        max=_MOST_TOKENS,
        help="A growing conversation is saved after so many tokens; 0: it is not.",
        rich_help_panel=_PANEL,
    ),
]
TrimOption = Annotated[
    int,
    typer.Option(
        "--kv-cache-boundary-trim-tokens",
        metavar="N",
        envvar="DS4_KV_CACHE_BOUNDARY_TRIM_TOKENS",
        min=0,
        max=_MOST_TOKENS,
        help="Last tokens of a new prompt that are not saved with it.",
        rich_help_panel=_PANEL,
    ),
]
AlignOption = Annotated[
    int,
    typer.Option(
        "--kv-cache-boundary-align-tokens",
        metavar="N",
        envvar="DS4_KV_CACHE_BOUNDARY_ALIGN_TOKENS",
        min=0,
        max=_MOST_TOKENS,
        help="Saved prefixes are multiples of this; 0: of any length.",
        rich_help_panel=_PANEL,
    ),
]
RejectQuantOption = Annotated[
    bool,
    typer.Option(
        "--kv-cache-reject-different-quant",
        envvar="DS4_KV_CACHE_REJECT_DIFFERENT_QUANT",
        help="Ignore states that were computed with another quantisation of the model.",
        rich_help_panel=_PANEL,
    ),
]
NoSyncOption = Annotated[
    bool,
    typer.Option(
        "--kv-no-fsync",
        envvar="DS4_KV_NO_FSYNC",
        help="Do not wait until saved states are on the disk: faster, but a power cut may cost them.",
        rich_help_panel=_PANEL,
    ),
]


def disk_settings(
    directory: Path | None,
    off: bool,
    space_mb: int,
    min_tokens: int,
    cold_max: int,
    continued_interval: int,
    trim: int,
    align: int,
    reject_other_quant: bool,
    no_fsync: bool,
) -> DiskSettings | None:
    """The store that the options ask for; None for none. Raises UsageError when they contradict each
    other."""
    if off and directory is not None:
        raise UsageError("--no-kv-disk contradicts --kv-disk-dir: give one of them")
    if 0 < cold_max < min_tokens:
        raise UsageError(
            f"--kv-cache-cold-max-tokens {cold_max} is below --kv-cache-min-tokens {min_tokens}: raise it, "
            "or give 0 to save no new prompts"
        )
    if off:
        return None
    store = StoreSettings(
        min_tokens=min_tokens,
        cold_max_tokens=cold_max,
        continued_interval=continued_interval,
        trim_tokens=trim,
        align_tokens=align,
        budget_bytes=(space_mb or DEFAULT_SPACE_MB) * MIB,
        reject_other_quant=reject_other_quant,
        durable=not no_fsync,
    )
    return DiskSettings(named_folder(directory) if directory else None, store)
