"""What a client sees of a server: times and rates over raw connections, as cheaply as Python can read them.

Must not know: which server it is.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import subprocess
import time
from typing import Any, NamedTuple

from bench.serve_servers import BRIEFLY, Server

_PROMPT = "Tell me about the harbour. " * 8
_NUMBERS = itertools.count()
_TOKEN = re.compile(rb'"content": ?"[^"]')


class Work(NamedTuple):
    """How much of everything: `tokens` of a stream, `first` requests for the first token, short `answers`,
    idle `connections`."""

    tokens: int
    first: int
    answers: int
    connections: int


FULL = Work(tokens=300, first=20, answers=96, connections=300)
QUICK = Work(tokens=20, first=2, answers=16, connections=10)


class Figures(NamedTuple):
    """Of one round, or the best of several; of the memory the most."""

    first_ms: float
    stream_rate: float
    streams_rate: float
    answers_rate: float
    idle_kib: float


def best(rounds: list[Figures]) -> Figures:
    """On a machine that does other things too, what disturbs a round only makes it worse. The memory of
    closed connections is used again, so the first round tells most of it."""
    first, *rates = zip(*rounds, strict=True)
    return Figures(min(first), *(max(values) for values in rates))


def measure(server: Server, work: Work) -> Figures:
    """One round."""
    return asyncio.run(_measure(server, work))


async def _measure(server: Server, work: Work) -> Figures:
    times = [await _first(server.port) for _ in range(work.first)]
    return Figures(
        1000 * min(times),
        await _streams(server.port, 1, work.tokens),
        await _streams(server.port, 16, work.tokens),
        await _answers(server.port, work.answers),
        await _idle(server, work.connections),
    )


async def _first(port: int) -> float:
    """Seconds from the request to the first token of a stream."""
    began = time.perf_counter()
    reader, writer = await _send(port, stream=True, tokens=4)
    data = b""
    while not _TOKEN.search(data):
        data += await _part(reader)
    seconds = time.perf_counter() - began
    await reader.read()
    writer.close()
    return seconds


async def _streams(port: int, count: int, tokens: int) -> float:
    """Tokens a second of so many streams together."""

    async def stream() -> None:
        reader, writer = await _send(port, stream=True, tokens=tokens)
        frames, rest = 0, b""
        while part := await reader.read(1 << 18):
            rest += part
            frames += rest.count(b"data: ")
            rest = rest[-5:]
        writer.close()
        if frames < tokens:
            raise RuntimeError(f"{frames} frames for {tokens} tokens")

    began = time.perf_counter()
    await asyncio.gather(*(stream() for _ in range(count)))
    return count * tokens / (time.perf_counter() - began)


async def _answers(port: int, count: int) -> float:
    """Answers of 8 tokens a second, for 16 clients."""
    left = iter(range(count))

    async def client() -> None:
        for _ in left:
            reader, writer = await _send(port, stream=False, tokens=8)
            if b'"choices"' not in await reader.read():
                raise RuntimeError("no answer")
            writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(16)))
    return count / (time.perf_counter() - began)


async def _idle(server: Server, count: int) -> float:
    """KiB of memory that a connection takes on which nothing was sent yet."""
    before = _kib(server.pid)
    opened = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(count)]
    await asyncio.sleep(1)
    each = (_kib(server.pid) - before) / count
    for _, writer in opened:
        writer.close()
    await asyncio.sleep(0.5)
    return each


async def _send(port: int, *, stream: bool, tokens: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    # Each begins in its own way: none is known from an earlier one.
    content = f"{next(_NUMBERS)}: {_PROMPT}" + (BRIEFLY if tokens <= 8 else "")
    body: dict[str, Any] = {"messages": [{"role": "user", "content": content}], "stream": stream}
    data = json.dumps(body | {"max_tokens": tokens, "temperature": 0, "think": False}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    kind = f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write((head + kind).encode() + data)
    return reader, writer


async def _part(reader: asyncio.StreamReader) -> bytes:
    part = await reader.read(1 << 16)
    if not part:
        raise RuntimeError("the server ended the answer too early")
    return part


def _kib(pid: int) -> int:
    return int(subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=True).stdout)
