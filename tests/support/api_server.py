"""A real server on a loopback port inside the test process, around a script or any engine."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apps.serve.app import create_app
from apps.serve.log import ServerLog
from apps.serve.middleware import InFlight
from apps.serve.server import Server, bind, url_of
from apps.serve.settings import ServerSettings, Timing
from apps.serve.trace import ServerTrace
from apps.serve.worker import InferenceWorker
from shared.session import Engine

QUICK = Timing(
    keepalive_waiting=0.05, keepalive_decode=0.05, refusal_linger=0.2, shutdown_grace=5.0, close_grace=0.3
)


@dataclass
class RunningServer:
    """`journal` holds one object for each engine call of a scripted engine."""

    url: str
    address: tuple[str, int]
    worker: InferenceWorker
    journal_file: Path | None
    _log: io.StringIO
    _stop: Callable[[], None]
    _in_flight: InFlight
    _loop: asyncio.AbstractEventLoop

    @property
    def connections(self) -> int:
        """Those that Hypercorn still holds: each is a task of this name."""
        return sum("_server_callback" in repr(task) for task in asyncio.all_tasks(self._loop))

    @property
    def tasks(self) -> int:
        """Everything that runs on the event loop."""
        return len(asyncio.all_tasks(self._loop))

    @property
    def log(self) -> str:
        return self._log.getvalue()

    @property
    def requests_in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def journal(self) -> list[dict[str, Any]]:
        assert self.journal_file is not None
        return [json.loads(line) for line in self.journal_file.read_text().splitlines()]

    def stop(self) -> None:
        """What a signal does; returns at once."""
        self._stop()

    def wait_idle(self, seconds: float = 5.0) -> None:
        wait_for(lambda: not self.worker.busy and not self.worker.queued, seconds)


def wait_for(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Poll until `condition` holds; fails the test when it never does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition never held"
        time.sleep(0.005)


@contextmanager
def serve_engine(
    open_engine: Callable[[], Engine],
    *,
    context: int = 4096,
    settings: ServerSettings | None = None,
    journal_file: Path | None = None,
    trace: ServerTrace | None = None,
) -> Iterator[RunningServer]:
    """Runs until the block ends; then the server must have stopped in good order."""
    settings = settings or ServerSettings(timing=QUICK)
    text = io.StringIO()
    log = ServerLog(text, colour=False)
    listener = bind("127.0.0.1", 0)
    url, address = url_of(listener), listener.getsockname()
    worker = InferenceWorker(open_engine, context, settings, log, trace)
    try:
        worker.start()
    except BaseException:
        listener.close()
        raise
    ready = threading.Event()
    parts: dict[str, Any] = {}

    async def main() -> None:
        app = create_app(worker, settings)
        parts["in_flight"] = app.state.server.in_flight
        parts["server"] = server = Server(app, listener, settings, log)
        parts["loop"] = asyncio.get_running_loop()
        parts["loop"].call_soon(ready.set)
        await server.run(signals=False)

    thread = threading.Thread(target=asyncio.run, args=(main(),), name="api-server")
    thread.start()
    ready.wait()
    wait_for(lambda: _accepts(address))

    def stop() -> None:
        parts["loop"].call_soon_threadsafe(parts["server"].request_stop)

    try:
        yield RunningServer(url, address, worker, journal_file, text, stop, parts["in_flight"], parts["loop"])
    finally:
        if thread.is_alive():
            stop()
        thread.join(20)
        assert not thread.is_alive(), "the server did not stop"
        assert "Traceback" not in text.getvalue()


@contextmanager
def serve_script(
    script: dict[str, Any],
    *,
    context: int = 4096,
    settings: ServerSettings | None = None,
    gate: threading.Event | None = None,
    trace: ServerTrace | None = None,
) -> Iterator[RunningServer]:
    """A server around the scripted engine; every call is journalled. With a `gate`, all of the script's
    pauses last until it is set, however long they claim to be."""
    from shared.scripted.engine import ScriptedEngine
    from shared.scripted.pauses import Pauses
    from shared.scripted.script_file import parse_script

    def wait_at_gate(seconds: float) -> None:
        assert gate is not None
        assert gate.wait(30), "the gate was never opened"

    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "journal.jsonl"
        journal.touch()
        parsed = parse_script(json.dumps({"journal": str(journal)} | script))

        def open_engine() -> Engine:
            return ScriptedEngine(parsed, pauses=None if gate is None else Pauses(sleep=wait_at_gate))

        with serve_engine(
            open_engine, context=context, settings=settings, journal_file=journal, trace=trace
        ) as server:
            yield server


def _accepts(address: tuple[str, int]) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(address) == 0
