"""Jobs that come too late, and what a request keeps of its body."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import pytest

from apps.serve.api.context import ServerContext
from apps.serve.errors import STOPPING, Refused
from apps.serve.jobs import EventChannel, Failed, Job
from apps.serve.log import ServerLog
from apps.serve.middleware import InFlight
from apps.serve.schema.chat_ask import parse_chat
from apps.serve.settings import ServerSettings
from apps.serve.trace import ServerTrace
from apps.serve.worker import InferenceWorker
from apps.trace import TraceFile
from shared.scripted.engine import ScriptedEngine
from shared.scripted.script_file import parse_script

_BODY = {"messages": [{"role": "user", "content": "u"}]}


def _context(trace: ServerTrace | None = None) -> ServerContext:
    """The parts of a server whose worker is started."""
    settings, log = ServerSettings(), ServerLog(io.StringIO())
    engine = ScriptedEngine(parse_script(json.dumps({"turns": [{"pieces": ["a"]}]})))
    worker = InferenceWorker(lambda: engine, 1000, settings, log, trace)
    worker.start()
    return ServerContext(worker, settings, log, InFlight(), lambda: 0.0)


def test_a_job_that_comes_too_late_fails_and_the_next_is_refused() -> None:
    """A stream sends its headers between the two: it must still hear why it ends."""

    async def submit() -> None:
        context = _context()
        turn = context.prepare(parse_chat(_BODY, context.model, context.settings), "req", b"")
        job = Job(turn, EventChannel(asyncio.get_running_loop(), eager=True))
        context.worker.stop(0)
        context.worker.submit(job)
        assert await job.channel.next(5) == [Failed(STOPPING)]
        with pytest.raises(Refused) as refused:
            context.job(turn)
        assert refused.value.failure.status == 503

    asyncio.run(submit())


@pytest.mark.parametrize("traced", [False, True])
def test_a_request_keeps_its_body_only_for_a_trace(traced: bool) -> None:
    with TraceFile(Path("/dev/null"), say=pytest.fail) as file:
        context = _context(ServerTrace(file) if traced else None)
        turn = context.prepare(parse_chat(_BODY, context.model, context.settings), "req", b"{}")
        context.worker.stop(0)
    assert turn.body == (b"{}" if traced else None)
