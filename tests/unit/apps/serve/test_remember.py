"""What of an answer a client is expected to send back, and what is noted of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from apps.serve.remember import Answer, remember_answer
from apps.serve.turn_request import Ask, TurnRequest
from shared.generate import Generation, GenerationSettings
from shared.kv.live.prompt import Prompt
from shared.kv.live.slot import LiveSlot
from shared.kv.live.tool_memory import ToolMemory
from shared.sampling import Sampling
from shared.text.messages import Message
from tests.support.turns import ANY_TOOLS, BASH, new_turn

_ECHO = [Message("user", "u"), Message("assistant", "a", reasoning="because"), Message("user", "v")]


class _Slot:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def answer_returns(self) -> None:
        self.told.append("returns")

    def remember_visible(self, prompt: Prompt, content: str) -> None:
        self.told.append(f"visible {content}")


def _remember(
    text: str,
    *,
    thinking: bool = False,
    tools: bool = False,
    messages: list[Message] | None = None,
    cause: str = "eos",
    retried: bool = False,
    memory: ToolMemory | None = None,
) -> list[str]:
    """What a slot is told after the model wrote `text`."""
    turn = new_turn(thinking=thinking, tools=ANY_TOOLS if tools else None)
    turn.feed(text.encode())
    turn.finish(cast("Any", cause))
    ask = Ask(
        "chat",
        "m",
        False,
        messages or [Message("user", "u")],
        ANY_TOOLS if tools else None,
        "high" if thinking else "none",
        GenerationSettings(Sampling(), 100),
    )
    generation = cast("Generation", SimpleNamespace(cause=cause))
    slot = _Slot()
    answer = Answer(TurnRequest(ask, "req", Prompt([], [])), turn, generation, retried)
    remember_answer(answer, cast("LiveSlot", slot), memory)
    return slot.told


def test_a_plain_answer_returns_if_all_of_it_was_sent() -> None:
    assert _remember("hello") == ["returns"]
    assert _remember("hello", cause="length") == ["returns"]
    assert _remember("hello", cause="stop") == []
    assert _remember("hello", tools=True) == ["returns"]


def test_a_thinking_answer_returns_without_its_reasoning() -> None:
    assert _remember("so</think>fine", thinking=True) == ["visible fine"]
    assert _remember("so", thinking=True) == []
    assert _remember("so</think>fine", thinking=True, cause="length") == []


@pytest.mark.parametrize("messages", [None, [*_ECHO, Message("tool", "out", tool_call_ids=("x",))]])
def test_with_tools_reasoning_returns_from_clients_that_sent_it_before(messages: Any) -> None:
    told = _remember("so</think>fine", thinking=True, tools=True, messages=messages)
    assert told == ([] if messages is None else ["returns"])
    if messages is not None:
        assert _remember("so", thinking=True, messages=messages) == []


def test_a_call_returns_if_it_can_be_replayed() -> None:
    memory = ToolMemory(10)
    assert _remember(f"so</think>{BASH}", thinking=True, tools=True, cause="tool", memory=memory) == [
        "returns"
    ]
    assert len(memory) == 1
    assert _remember(f"so</think>{BASH}", thinking=True, tools=True, cause="tool") == []
    misspelt = BASH.replace("tool_calls", "tool_cals", 1)
    assert _remember(misspelt, tools=True, cause="tool", memory=memory) == []
    assert len(memory) == 1


def test_what_a_client_never_saw_does_not_return() -> None:
    assert _remember("hello", tools=True, retried=True) == []
    broken = BASH.replace(' name="bash"', "")
    assert _remember(broken, tools=True, cause="tool") == []
