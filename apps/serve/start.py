"""Puts a server together and runs it: socket, engine, application, in the order that fails soonest."""

from __future__ import annotations

import asyncio

from apps.backend import open_engine
from apps.options import EngineOptions
from apps.serve.app import create_app
from apps.serve.log import ServerLog
from apps.serve.server import Server, bind, is_loopback
from apps.serve.settings import ServerSettings
from apps.serve.turn_request import ModelFacts
from apps.serve.worker import InferenceWorker
from shared.session import Engine, MemoryPlan

_MIB = 2**20


def serve_until_stopped(options: EngineOptions, settings: ServerSettings, host: str, port: int) -> None:
    """Blocks until SIGINT or SIGTERM. The port is taken before the model is loaded, and opened after."""
    log = ServerLog()
    listener = bind(host, port)
    try:
        if not is_loopback(host):
            log.warning(
                f"{host} can be reached by other machines and there are no API keys: anyone may use it"
            )

        def open_and_report() -> Engine:
            engine = open_engine(options, say=log.line)
            _report_plan(engine.memory_plan(options.context), engine.backend, log)
            return engine

        worker = InferenceWorker(open_and_report, options.context, settings, log)
        _report_model(worker.start(), settings, log)
        server = Server(create_app(worker, settings), listener, settings, log)
    except BaseException:
        listener.close()
        raise
    asyncio.run(server.run(signals=True))
    log.line("stopped")


def _report_plan(plan: MemoryPlan, backend: str, log: ServerLog) -> None:
    log.line(
        f"context buffers {plan.context_buffers / _MIB:.1f} MiB (ctx={plan.context} backend={backend} "
        f"prefill_chunk={plan.prefill_chunk} raw_rows={plan.raw_rows} compressed_rows={plan.compressed_rows})"
    )


def _report_model(model: ModelFacts, settings: ServerSettings, log: ServerLog) -> None:
    thinking = f"on, effort {settings.effort}" if settings.thinking else "off"
    log.line(
        f"model {model.name} ({model.id}) ctx={model.context} thinking {thinking} "
        f"effort profile {model.effort_profile}"
    )
