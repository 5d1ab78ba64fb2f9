"""Log probabilities in the bodies and chunks of chat answers."""

from __future__ import annotations

import json
import math
from typing import Any

from apps.serve.encode.chat import ChatStream
from apps.serve.encode.envelope import Envelope
from apps.serve.encode.logprobs import logprobs_body
from shared.text.events import TextDelta, TextScores, ThinkingDelta, TokenScore, ToolArguments

_A = TokenScore(b"a", -0.5, ((b"a", -0.5), (b"\xc3", -math.inf)))
_B = TokenScore(b"b", -math.inf)


def _entry(token: str, logprob: float, data: list[int], *best: Any) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": data, "top_logprobs": list(best)}


def test_each_channel_has_its_list_and_infinity_a_number() -> None:
    best = [
        {"token": "a", "logprob": -0.5, "bytes": [97]},
        {"token": "\ufffd", "logprob": -9999.0, "bytes": [0xC3]},
    ]
    body = logprobs_body([TextScores(False, (_A,)), TextScores(True, (_B,)), TextScores(False, (_B,))])
    assert body == {
        "content": [_entry("a", -0.5, [97], *best), _entry("b", -9999.0, [98])],
        "reasoning_content": [_entry("b", -9999.0, [98])],
        "refusal": None,
    }
    assert "Infinity" not in json.dumps(body)
    assert logprobs_body([]) is None


def test_a_chunk_carries_the_scores_of_its_own_text() -> None:
    events = [
        TextScores(True, (_B,)),
        ThinkingDelta("b"),
        TextScores(False, (_A,)),
        TextDelta("a"),
        TextDelta("c"),
        ToolArguments(0, "{"),
    ]
    for asked in (True, False):
        stream = ChatStream(Envelope("id", 1, "model"), include_usage=False, logprobs=asked)
        frames = stream.emitted(events).decode().split("\n\n")
        choices = [json.loads(frame.removeprefix("data: "))["choices"][0] for frame in frames if frame]
        assert [list(choice["delta"]) for choice in choices] == [
            ["reasoning_content"],
            ["content"],
            ["content"],
            ["tool_calls"],
        ]
        if not asked:
            assert all("logprobs" not in choice for choice in choices)
            continue
        first, second, *rest = [choice["logprobs"] for choice in choices]
        assert (first["content"], len(first["reasoning_content"])) == (None, 1)
        assert (len(second["content"]), second["reasoning_content"]) == (1, None)
        assert rest == [None, None]
