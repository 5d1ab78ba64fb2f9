"""Many clients at once on a server with a script of a few answers; some leave at any moment.

Knows what each answer must be, byte for byte, whatever the endpoint.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

_WORDS: Final = [f"kind{number:02}." for number in range(24)]
_PATIENCE: Final = 120.0  # seconds after which a request counts as hanging
_LEAVES: Final = 0.1


def _text(kind: str) -> str:
    """An answer that no other request has, with characters of several bytes."""
    return f"{kind} grüßt: " + " ".join(f"{kind}{number}✓" for number in range(6))


def _answer(request: _Request) -> str:
    """What the client must get; a completion is the plain text of everything."""
    text = _text(request.kind)
    return f"about {request.kind}</think>{text}" if request.path == "/v1/completions" else text


def load_script(**rest: Any) -> dict[str, Any]:
    """Each answer follows its own reasoning, in pieces that cut characters."""
    turns = []
    for kind in _WORDS:
        data = _text(kind).encode()
        pieces = [{"hex": data[at : at + 5].hex()} for at in range(0, len(data), 5)]
        turns.append({"match": kind, "pieces": [f"about {kind}", "</think>", *pieces]})
    return {"turns": turns} | rest


@dataclass
class Load:
    """What became of the requests. `wrong` says which answers were not what they had to be."""

    answered: int = 0
    left: int = 0
    turned_away: int = 0
    wrong: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True)
class _Request:
    path: str
    body: dict[str, Any]
    stream: bool
    kind: str


async def run_load(
    address: tuple[str, int],
    *,
    clients: int,
    requests: int,
    seed: int,
    every_hundred: Callable[[int], None] = lambda done: None,
) -> Load:
    """All `requests`, by so many clients; each waits for its answer before it asks again. Raises TimeoutError
    if one hangs."""
    load, left = Load(), iter(range(requests))
    done = 0

    async def client(number: int) -> None:
        nonlocal done
        draw = random.Random(seed * 1000 + number)
        history: list[dict[str, Any]] = []
        for _ in left:
            if len(history) >= 6:
                history = []
            request = _request(draw, history)
            leaves = draw.random() < _LEAVES
            async with asyncio.timeout(_PATIENCE):
                answer = (
                    await _leave(address, request, draw) if leaves else await _ask(address, request, load)
                )
            if leaves:
                load.left += 1
            elif answer == _answer(request):
                load.answered += 1
                history = [*request.body.get("messages", []), {"role": "assistant", "content": answer}]
            else:
                load.wrong.append(f"{request.path} {request.kind}: {answer!r}")
            done += 1
            if done % 100 == 0:
                every_hundred(done)

    await asyncio.gather(*(client(number) for number in range(clients)))
    return load


def _request(draw: random.Random, history: list[dict[str, Any]]) -> _Request:
    kind = draw.choice(_WORDS)
    prompt = f"{kind} " + "word " * draw.randrange(150)
    stream = draw.random() < 0.6
    path = draw.choice(["chat/completions", "chat/completions", "completions", "responses", "messages"])
    body: dict[str, Any] = {"stream": stream}
    match path:
        case "completions":
            body |= {"prompt": prompt}
        case "responses":
            body |= {"input": prompt}
        case _:
            body |= {"messages": [*history, {"role": "user", "content": prompt}]}
    if path == "messages":
        body |= {"max_tokens": 1000, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    return _Request(f"/v1/{path}", body, stream, kind)


async def _send(
    address: tuple[str, int], request: _Request
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(*address[:2])
    data = json.dumps(request.body).encode()
    head = f"POST {request.path} HTTP/1.1\r\nHost: {address[0]}\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return reader, writer


async def _ask(address: tuple[str, int], request: _Request, load: Load) -> str:
    """The text of the answer; asks again when the server has no place."""
    while True:
        reader, writer = await _send(address, request)
        raw = await reader.read()
        writer.close()
        head, _, body = raw.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        load.statuses[status] += 1
        if status in (429, 529):
            load.turned_away += 1
            await asyncio.sleep(0.05)
            continue
        if b"transfer-encoding: chunked" in head.lower():
            body = _joined(body)
        return (_streamed if request.stream else _whole)(request.path, body.decode())


async def _leave(address: tuple[str, int], request: _Request, draw: random.Random) -> None:
    """Goes away without a word: at once, or after so many pieces of the answer."""
    reader, writer = await _send(address, request)
    for _ in range(draw.randrange(12)):
        if not await reader.read(draw.randrange(1, 400)):
            break
    if draw.random() < 0.5:
        writer.transport.abort()
    else:
        writer.close()


def _joined(chunked: bytes) -> bytes:
    parts = []
    while chunked:
        size, _, chunked = chunked.partition(b"\r\n")
        parts.append(chunked[: int(size, 16)])
        chunked = chunked[int(size, 16) + 2 :]
    return b"".join(parts)


def _whole(path: str, body: str) -> str:
    answer = json.loads(body)
    match path:
        case "/v1/chat/completions":
            return str(answer["choices"][0]["message"]["content"])
        case "/v1/completions":
            return str(answer["choices"][0]["text"])
        case "/v1/responses":
            items = [item for item in answer["output"] if item["type"] == "message"]
            return "".join(part["text"] for item in items for part in item["content"])
        case _:
            return "".join(part["text"] for part in answer["content"] if part["type"] == "text")


def _streamed(path: str, body: str) -> str:
    data = [line[6:] for line in body.split("\n") if line.startswith("data: ")]
    events = [json.loads(event) for event in data if event != "[DONE]"]
    return "".join(_delta(path, event) for event in events)


def _delta(path: str, event: dict[str, Any]) -> str:
    match path:
        case "/v1/chat/completions":
            choices = event.get("choices") or [{"delta": {}}]
            return choices[0]["delta"].get("content") or ""
        case "/v1/completions":
            choices = event.get("choices") or [{}]
            return choices[0].get("text") or ""
        case "/v1/responses":
            return str(event["delta"]) if event["type"] == "response.output_text.delta" else ""
        case _:
            delta = event.get("delta", {})
            return str(delta["text"]) if delta.get("type") == "text_delta" else ""
