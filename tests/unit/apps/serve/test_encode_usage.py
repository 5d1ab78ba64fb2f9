"""Counts and rates as the clients get them."""

from __future__ import annotations

import json
from typing import Any

from apps.serve.encode.envelope import Envelope, last_frames, totals
from apps.serve.encode.usage import timings_body, usage_body
from apps.serve.jobs import Finished, Timings, Usage

_FINISHED = Finished("stop", None, Usage(10, 7, 2, 20, 5), (), True, Timings(0.0015, 4.0))
_RATES = {
    "cache_n": 7,
    "prompt_n": 3,
    "prompt_ms": 1.5,
    "prompt_per_second": 2000.0,
    "predicted_n": 20,
    "predicted_ms": 4000.0,
    "predicted_per_second": 5.0,
}
_USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 20,
    "total_tokens": 30,
    "prompt_tokens_details": {"cached_tokens": 7, "cache_write_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 5},
}


def test_usage_and_rates() -> None:
    assert usage_body(_FINISHED.usage) == _USAGE
    assert timings_body(_FINISHED) == _RATES
    assert totals(_FINISHED) == {"usage": _USAGE, "timings": _RATES}


def test_a_turn_that_took_no_time_has_no_rate() -> None:
    instant = timings_body(Finished("stop", None, Usage(1, 1), ()))
    assert (instant["prompt_per_second"], instant["predicted_per_second"]) == (0.0, 0.0)


def _events(frames: bytes) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in frames.decode().split("\n\n")[:-1]]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def test_rates_go_with_the_last_chunk() -> None:
    last = Envelope("id", 5, "m").wrap("kind", [{"index": 0}])
    without = _events(last_frames(last, _FINISHED, include_usage=False))
    assert without == [last | {"timings": _RATES}, "[DONE]"]
    asked = _events(last_frames(last, _FINISHED, include_usage=True))
    assert asked == [last, last | {"choices": [], "usage": _USAGE, "timings": _RATES}, "[DONE]"]
