"""Puts a server together and runs it: socket, engine, application, in the order that fails soonest."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from apps.backend import open_engine
from apps.options import EngineOptions
from apps.serve.app import create_app
from apps.serve.log import LogFormat, ServerLog
from apps.serve.server import Server, bind
from apps.serve.settings import ServerSettings
from apps.serve.trace import ServerTrace
from apps.serve.worker import InferenceWorker
from apps.startup import engine_notes, thinking_line
from apps.trace import TraceFile
from shared.session import Engine
from shared.text.effort import resolve_effort


def serve_until_stopped(
    options: EngineOptions,
    settings: ServerSettings,
    host: str,
    port: int,
    *,
    trace_path: Path | None = None,
    warnings: Sequence[str] = (),
    log_format: LogFormat = "auto",
) -> None:
    """Blocks until SIGINT or SIGTERM. The port is taken before the model is loaded, and opened after;
    `warnings` are the first lines of the log."""
    log = ServerLog(form=log_format)
    with ExitStack() as held:
        listener = held.enter_context(closing(bind(host, port)))
        for warning in warnings:
            log.warning(warning)

        def open_and_report() -> Engine:
            engine = open_engine(options, say=log.line)
            for line in _start_lines(engine, options.context, settings):
                log.line(line)
            return engine

        trace = None
        if trace_path is not None:
            trace = ServerTrace(held.enter_context(TraceFile(trace_path, say=log.warning)))
            log.warning(f"--trace: {trace_path} gets every prompt and answer in full")
        worker = InferenceWorker(open_and_report, options.context, settings, log, trace)
        worker.start()
        server = Server(create_app(worker, settings), listener, settings, log)
        asyncio.run(server.run(signals=True))
    log.line("stopped")


def _start_lines(engine: Engine, context: int, settings: ServerSettings) -> list[str]:
    effort, note = resolve_effort(settings.effort, engine.effort_profile, context, pro=engine.model_id == 1)
    return [
        *engine_notes(engine),
        f"model {engine.name}",
        thinking_line(engine, effort if settings.thinking else "none"),
        *([note] if note and settings.thinking else []),
    ]
