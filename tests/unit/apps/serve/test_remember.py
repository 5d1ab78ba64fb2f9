"""What of an answer a client is expected to send back, and what is noted of it."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from apps.serve.remember import Answer, remember_answer
from apps.serve.turn_request import Ask, AskKind, TurnRequest
from shared.generate import Generation, GenerationSettings
from shared.kv.live.prompt import Prompt
from shared.kv.live.slot import LiveSlot
from shared.kv.live.tool_memory import ToolMemory
from shared.sampling import Sampling
from shared.text.messages import Message
from shared.text.segments import Segment, join
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

    def remember_respelt(self, prompt: Prompt, answer: Sequence[Segment]) -> None:
        self.told.append(f"respelt {join(answer).decode()}")

    def remember_calls(self, prompt: Prompt, calls: Sequence[str]) -> None:
        self.told.append(f"calls {' '.join(calls)}")


def _remember(
    text: str,
    *,
    thinking: bool = False,
    tools: bool = False,
    messages: list[Message] | None = None,
    cause: str = "eos",
    retried: bool = False,
    memory: ToolMemory | None = None,
    kind: AskKind = "chat",
    shows_reasoning: bool = False,
) -> list[str]:
    """What a slot is told after the model wrote `text`."""
    turn = new_turn(thinking=thinking, tools=ANY_TOOLS if tools else None)
    turn.feed(text.encode())
    turn.finish(cast("Any", cause))
    ask = Ask(
        kind,
        "m",
        False,
        messages or [Message("user", "u")],
        ANY_TOOLS if tools else None,
        "high" if thinking else "none",
        GenerationSettings(Sampling(), 100),
        shows_reasoning=shows_reasoning,
    )
    generation = cast("Generation", SimpleNamespace(cause=cause))
    slot = _Slot()
    prompt = Prompt([], [])
    answer = Answer(TurnRequest(ask, "req", prompt), prompt, turn, generation, retried)
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


class TestResponses:
    """What comes back of an answer of this dialect: its words, of its reasoning only what calls need."""

    @staticmethod
    def told(text: str, **options: Any) -> list[str]:
        return _remember(text, kind="responses", thinking=True, **options)

    def test_reasoning_is_left_out_of_text(self) -> None:
        assert self.told("so</think>fine") == ["respelt </think>fine"]
        assert self.told("so</think>fine", tools=True) == ["respelt <think></think>fine"]
        assert self.told("so</think>fine", tools=True, shows_reasoning=True) == [
            "respelt <think></think>fine"
        ]

    def test_a_client_that_sent_reasoning_back_is_expected_to_do_so_again(self) -> None:
        history = [*_ECHO, Message("tool", "out", tool_call_ids=("x",))]
        told = self.told("so</think>fine", tools=True, messages=history)
        assert told == ["returns", "respelt <think></think>fine"]

    def test_calls_come_back_with_their_reasoning_if_they_can_be_replayed_or_it_was_shown(self) -> None:
        text = f"so</think>{BASH}"
        assert self.told(text, tools=True, cause="tool", memory=ToolMemory(10)) == [
            "returns",
            f"respelt <think>so</think>{BASH}",
            "calls call_0",
        ]
        canonical = "\n\n" + BASH
        assert self.told(text, tools=True, cause="tool") == [
            f"respelt <think></think>{canonical}",
            "calls call_0",
        ]
        shown = self.told(text, tools=True, cause="tool", shows_reasoning=True)
        assert shown[0] == f"respelt <think>so</think>{canonical}"

    def test_a_misspelt_call_comes_back_as_it_should_have_been(self) -> None:
        misspelt = "so</think>" + BASH.replace("tool_calls", "tool_cals", 1)
        respelt, calls = self.told(misspelt, tools=True, cause="tool", memory=ToolMemory(10))
        assert respelt == f"respelt <think></think>\n\n{BASH}"
        assert calls == "calls call_0"

    @pytest.mark.parametrize("cause", ["length", "stop"])
    def test_an_answer_that_was_cut_is_not_remembered(self, cause: str) -> None:
        assert self.told("so</think>fine", cause=cause) == []
        assert self.told("so", cause="eos") == []

    def test_calls_are_known_however_often_they_were_tried(self) -> None:
        assert self.told(f"so</think>{BASH}", tools=True, cause="tool", retried=True) == ["calls call_0"]


def test_messages_know_their_calls_and_chat_does_not() -> None:
    memory = ToolMemory(10)
    assert _remember(BASH, tools=True, cause="tool", memory=memory, kind="messages") == [
        "returns",
        "calls call_0",
    ]
    assert _remember(BASH, tools=True, cause="tool", memory=memory) == ["returns"]
