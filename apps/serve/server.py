"""The application on a socket: Hypercorn, its limits, and an orderly end.

Owns sockets and shutdown; knows no endpoint. Hypercorn prints tracebacks for the streams that it cuts, so
ours are finished or cut before it is told to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hypercorn.asyncio import serve
from hypercorn.config import Config
from starlette.applications import Starlette

from apps.serve.api.context import ServerContext
from apps.serve.log import ServerLog, describe
from apps.serve.settings import ServerSettings
from shared.errors import Ds4Error

_BACKLOG = 128


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet. Raises Ds4Error when the address cannot be had."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        raise Ds4Error(f"cannot listen on {host!r}: no such address ({error})") from None
    listener = socket.socket(family, kind)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise Ds4Error(
            f"cannot listen on {host}:{port}: {reason} (choose another --port or --host)"
        ) from None
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    """`http://HOST:PORT` of a bound socket, with the port it really got."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server:
    """Serves until asked to stop. Takes over the socket; the worker must have been started."""

    def __init__(
        self, app: Starlette, listener: socket.socket, settings: ServerSettings, log: ServerLog
    ) -> None:
        self._app = app
        self._listener = listener
        self._settings = settings
        self._log = log
        self._stop = asyncio.Event()
        self._requests = 0

    def request_stop(self) -> None:
        """From the event loop. The first call begins the orderly end, another one cuts what is in work."""
        self._requests += 1
        if self._requests == 1:
            self._log.line("stopping: finishing what is in work")
            self._stop.set()
        else:
            self._context.worker.cut()

    async def run(self, *, signals: bool) -> None:
        """Serve, then stop in order: new requests are refused, running ones finish or are cut at the
        deadline, the worker closes its engine. `signals`: SIGINT and SIGTERM ask to stop, and after the
        second one they kill (main thread only)."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._log_exception)
        watched = (signal.SIGINT, signal.SIGTERM) if signals else ()
        for number in watched:
            loop.add_signal_handler(number, self._on_signal)
        try:
            _drop_dead_peers(self._listener, self._settings.timing.dead_peer)
            self._listener.listen(_BACKLOG)
            url = url_of(self._listener)
            self._log.line(f"listening on {url}", url=url)
            await self._serve()
        finally:
            for number in watched:
                loop.remove_signal_handler(number)
                # All is done but the exit: an impatient second signal must not spoil its code.
                signal.signal(number, signal.SIG_IGN)

    def _on_signal(self) -> None:
        self.request_stop()
        if self._requests > 1:
            self._log.line("stopping now: what is in work is cut; a further signal kills")
            # An engine that does not come back must not keep a user from ending the process.
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL)

    @property
    def _context(self) -> ServerContext:
        context = self._app.state.server
        assert isinstance(context, ServerContext)
        return context

    async def _serve(self) -> None:
        """Hypercorn until `_end_work` is through; a connection that then still hangs is dropped."""
        ended = asyncio.Event()
        serving = asyncio.ensure_future(
            serve(self._app, self._config(), shutdown_trigger=ended.wait)  # type: ignore[arg-type]
        )
        try:
            asked = asyncio.ensure_future(self._stop.wait())
            await asyncio.wait({serving, asked}, return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            await self._end_work()
        finally:
            ended.set()
            await asyncio.wait({serving}, timeout=self._settings.timing.close_grace)
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving

    async def _end_work(self) -> None:
        """Returns when nothing of ours is in work any more."""
        # On a thread of its own: those of the loop may all be busy with large requests.
        own = ThreadPoolExecutor(1, "stop")
        grace = self._settings.timing.shutdown_grace
        await asyncio.get_running_loop().run_in_executor(own, self._context.worker.stop, grace)
        own.shutdown(wait=False)
        idle = self._context.in_flight.wait_idle
        for last_resort in (self._context.in_flight.cut, lambda: None):
            try:
                async with asyncio.timeout(self._settings.timing.close_grace):
                    await idle()
                return
            except TimeoutError:
                last_resort()

    def _config(self) -> Config:
        config = Config()
        # Hypercorn closes the descriptor it is given.
        config.bind = [f"fd://{self._listener.detach()}"]
        config.backlog = _BACKLOG
        config.accesslog = None
        config.errorlog = _silent_logger()
        config.include_server_header = False
        config.h11_max_incomplete_size = self._settings.limits.header_bytes
        config.keep_alive_timeout = self._settings.timing.idle_connection
        config.graceful_timeout = self._settings.timing.close_grace
        return config

    def _log_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What nobody else caught: one line, never a traceback."""
        error = context.get("exception")
        if isinstance(error, asyncio.CancelledError | ConnectionError | TimeoutError):
            return  # a connection that was still open at the end, or whose peer is gone
        self._log.error(f"connection error: {describe(error) if error else context['message']}")


def _drop_dead_peers(listener: socket.socket, seconds: float) -> None:
    """Connections inherit this: the kernel closes those whose peer is gone, or takes no data, for so long.
    Hypercorn would wait for them for ever."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, int(seconds)))
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))


def _silent_logger() -> logging.Logger:
    """Hypercorn's own lines say nothing that ours do not."""
    logger = logging.Logger("ds4.serve.hypercorn")
    logger.addHandler(logging.NullHandler())
    return logger
