"""From completion bodies to turns."""

from __future__ import annotations

from typing import Any

import pytest

from apps.serve.schema.completions import parse_completion
from apps.serve.settings import ServerSettings
from apps.serve.turn_request import Ask
from shared.sampling import Sampling
from tests.support.asks import BIG, rendered


def _ask(**body: Any) -> Ask:
    return parse_completion(body, BIG, ServerSettings())


def test_the_first_prompt_becomes_a_user_message_behind_a_system_text() -> None:
    assert rendered(_ask(prompt=["p1", "p2"], reasoning_effort="none")) == (
        "<｜begin▁of▁sentence｜>You are a helpful assistant<｜User｜>p1<｜Assistant｜></think>"
    )
    assert rendered(_ask(prompt="p1")).endswith("<｜User｜>p1<｜Assistant｜><think>")


@pytest.mark.parametrize(
    ("body", "effort"),
    [
        ({}, "high"),
        ({"think": False}, "none"),
        ({"thinking": {"type": "disabled"}}, "none"),
        ({"model": "deepseek-chat"}, "none"),
        ({"model": "deepseek-chat", "think": None}, "high"),
        ({"reasoning_effort": "none"}, "none"),
    ],
)
def test_thinking_is_controlled_as_on_chat(body: dict[str, Any], effort: str) -> None:
    assert _ask(prompt="x", **body).effort == effort


def test_what_the_endpoint_shares_with_chat() -> None:
    ask = _ask(
        prompt="x",
        model="mine",
        think=False,
        max_tokens=7.0,
        temperature=0.5,
        top_p=0.9,
        top_k=5,
        min_p=0.1,
        seed=3,
        stop=["a", ""],
        stream=True,
        stream_options={"include_usage": True},
        suffix="s",
        echo=True,
        best_of=3,
    )
    assert (ask.kind, ask.model, ask.stream, ask.include_usage) == ("completion", "mine", True, True)
    assert ask.tools is None
    generation = ask.generation
    assert generation.sampling == Sampling(0.5, 0.9, 0.1, 5)
    assert (generation.max_tokens, generation.seed, generation.stop) == (7, 3, ("a",))
    assert _ask(prompt="x").generation.max_tokens == 393_216
    assert _ask(prompt="x", max_tokens=-5).generation.max_tokens == 0
