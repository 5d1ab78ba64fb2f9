"""The parts of one request's trace, as text. Spec: chat §7.2. Knows no file and no clock."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from apps.serve.live_match import LiveMatch
from apps.serve.turn_request import TurnRequest
from shared.generate import Generation
from shared.kv.live.start import Start
from shared.text.tokenizer import Tokenizer
from shared.text.turn import Turn

_WINDOW: Final = 8


def settings(request: TurnRequest) -> str:
    """What was asked for besides the prompt."""
    ask, sampling = request.ask, request.ask.generation.sampling
    return (
        f"kind={ask.kind} model={_quoted(ask.model)} stream={_word(ask.stream)} "
        f"include_usage={_word(ask.include_usage)} "
        f"tools={len(ask.tools or ())} think={ask.effort}\n"
        f"prompt={len(request.prompt.tokens)} max_tokens={ask.generation.max_tokens} "
        f"temperature={sampling.temperature} top_p={sampling.top_p} min_p={sampling.min_p} "
        f"top_k={sampling.top_k} seed={'random' if ask.generation.seed is None else ask.generation.seed} "
        f"stop={_quoted(ask.generation.stop)}\n"
    )


def live_match(match: LiveMatch, request: TurnRequest) -> str:
    """How the prompt compares with the live tokens, and whose calls were replayed."""
    replay = request.replay
    replayed = "off"
    if replay is not None:
        replayed = (
            f"mem={replay.mem} disk={replay.disk} canonical={replay.canonical} "
            f"missing_ids={replay.missing_ids}"
        )
    return (
        f"live={match.live} prompt={match.prompt} common={match.common} "
        f"reusable={_word(match.reusable)} reason={match.reason}\n"
        f"replay: {replayed}\n"
    )


def windows(live: Sequence[int], prompt: Sequence[int], common: int, tokenizer: Tokenizer) -> str:
    """The tokens around the first that differs, on both sides: position, id, text."""
    return _window("live", live, common, tokenizer) + _window("prompt", prompt, common, tokenizer)


def reuse(start: Start) -> str:
    """What the turn goes on from: `cached` tokens, of which `disk` were read from `file`."""
    disk = start.reused if start.file is not None else 0
    file = f" file={start.file.path.name}" if start.file is not None else ""
    return (
        f"source={start.source} slot={start.slot.number} effective={len(start.tokens)} "
        f"cached={start.reused} disk={disk}{file}\n"
    )


def prompts(request: TurnRequest) -> str:
    """The request as it came and the prompt as the model gets it."""
    return block("request json", request.body or b"") + block("prompt", request.prompt.rendered)


def parsed(turn: Turn, generation: Generation, *, tool_start: bool, tool_end: bool, seconds: float) -> str:
    """What the generated text came to, and whether a tool block was seen to begin and to end."""
    calls = "".join(
        f"call {index}: id={call.id} name={_quoted(call.name)} arguments={_quoted(call.arguments)}\n"
        for index, call in enumerate(turn.calls)
    )
    return (
        "--- parsed ---\n"
        f"finish={generation.finish_reason} cause={generation.cause} tokens={generation.completion_tokens} "
        f"reasoning_tokens={generation.reasoning_tokens} tool_start={_word(tool_start)} "
        f"tool_end={_word(tool_end)} calls={len(turn.calls)} seconds={seconds:.3f}\n"
        f"{block('reasoning', turn.reasoning.encode())}{block('content', turn.content.encode())}{calls}"
    )


def block(name: str, data: bytes) -> str:
    """A text of its own, its length told first: it may hold anything, marks of the trace included."""
    return f"--- {name}: {len(data)} bytes ---\n{data.decode('utf-8', 'backslashreplace')}\n"


def escaped(data: bytes) -> str:
    """Bytes as a quoted text on one line; what is not UTF-8 or cannot be seen is escaped."""
    text = data.decode("utf-8", "surrogateescape")
    return '"' + "".join(map(_visible, text)) + '"'


def _visible(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    if character in '"\\':
        return "\\" + character
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def _window(side: str, tokens: Sequence[int], common: int, tokenizer: Tokenizer) -> str:
    lines = [f"{side} around {common}:"]
    for position in range(max(0, common - _WINDOW), min(len(tokens), common + _WINDOW)):
        mark = ">" if position == common else " "
        token = tokens[position]
        lines.append(f"{mark} {position} {token} {escaped(tokenizer.token_bytes(token))}")
    return "\n".join(lines) + "\n"


def _quoted(value: str | Sequence[str]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _word(value: bool) -> str:
    return "yes" if value else "no"
