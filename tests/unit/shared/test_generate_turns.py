"""The decode loop with the real turn machine: what users of such engines have seen go wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.generate import HELD_CALL_TOKENS, Generation, GenerationSettings
from shared.sampling import GREEDY, Sampling
from shared.scripted.vocabulary import CONTROL
from shared.text.events import TurnEvent
from shared.text.messages import ToolSet
from shared.text.turn import Turn
from tests.support.scripted import scripted

PROMPT = [CONTROL["<｜User｜>"], *b"hi", CONTROL["<｜Assistant｜>"], CONTROL["<think>"]]
TOOLS = ToolSet(
    [{"name": "bash", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}]
)
BLOCK = (
    "\n\n<｜DSML｜tool_calls>\n"
    '<｜DSML｜invoke name="bash">\n'
    '<｜DSML｜parameter name="command" string="true">ls -l</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n"
    "</｜DSML｜tool_calls>"
)


def run(
    pieces: list[Any],
    *,
    thinking: bool = True,
    tools: ToolSet | None = None,
    budget: int = 2000,
    eos: bool = True,
    look_ahead: bool = True,
    sampling: Sampling = GREEDY,
    stop: tuple[str, ...] = (),
) -> tuple[Turn, Generation, list[TurnEvent], list[int]]:
    engine = scripted({"pieces": pieces, "eos": eos})
    session = engine.open_session(4096)
    session.sync(PROMPT)
    turn = Turn(thinking=thinking, tools=tools)
    settings = GenerationSettings(sampling, budget, stop, seed=1, look_ahead=look_ahead)
    generation = Generation(session, engine.tokenizer, turn, settings)
    events = [event for item in generation for event in item]
    return turn, generation, events, session.tokens[len(PROMPT) :]


@pytest.mark.parametrize(("budget", "reason"), [(2000, "stop"), (4, "length")])
def test_thinking_that_never_closes_stays_reasoning(budget: int, reason: str) -> None:
    """The end is told honestly, no control text shows, and the reasoning is counted."""
    turn, generation, _, _ = run(["Good", " morning."], budget=budget)
    assert (turn.reasoning, turn.content) == ("Good morning."[:budget], "")
    assert generation.finish_reason == reason
    assert generation.reasoning_tokens == generation.completion_tokens == min(budget, 13)


def test_thinking_that_eats_the_budget() -> None:
    turn, generation, _, _ = run(["x"] * 50, budget=16)
    assert (generation.finish_reason, generation.reasoning_tokens, turn.content) == ("length", 16, "")


@pytest.mark.parametrize("channel", ["content", "reasoning"])
def test_characters_split_over_tokens(channel: str) -> None:
    pieces = [
        {"hex": "F09F"},
        {"hex": "9AA9"},
        {"hex": "E4"},
        {"hex": "BDA0"},
        {"hex": "FF"},
        "x",
        {"hex": "E4BD"},
    ]
    turn, _, events, _ = run(pieces, thinking=channel == "reasoning")
    text = getattr(turn, channel)
    assert text == "\U0001f6a9你\ufffdx\ufffd"
    assert "".join(event.text for event in events) == text


def test_characters_split_in_tool_arguments() -> None:
    before, after = BLOCK.split("ls -l")
    turn, generation, _, _ = run(
        ["</think>", before, {"hex": "F09F"}, {"hex": "9AA9"}, after, "never"], tools=TOOLS
    )
    assert json.loads(turn.calls[0].arguments) == {"command": "\U0001f6a9"}
    assert generation.finish_reason == "tool_calls"


@pytest.mark.parametrize("script", [["ab", "Xc"], ["a", "bX", "c"]])
def test_stop_strings_in_streams(script: list[str]) -> None:
    turn, generation, _, _ = run(script, thinking=False, stop=("X",))
    assert (turn.content, generation.finish_reason, generation.matched_stop) == ("ab", "stop", "X")


def test_stop_string_after_a_split_character() -> None:
    turn, generation, _, _ = run([{"hex": "F09F"}, {"hex": "9AA9"}, "a", "bX"], thinking=False, stop=("bX",))
    assert (turn.content, generation.cause) == ("\U0001f6a9a", "stop")


@pytest.mark.parametrize("look_ahead", [True, False])
@pytest.mark.parametrize("bytewise", [True, False])
def test_a_block_in_content_ends_the_turn_at_its_last_byte(look_ahead: bool, bytewise: bool) -> None:
    pieces = [{"hex": f"{byte:02x}"} for byte in BLOCK.encode()] if bytewise else [BLOCK + "more"]
    turn, generation, _, sampled = run(
        ["why", "</think>", "Now:", *pieces, "more"], tools=TOOLS, look_ahead=look_ahead, eos=False
    )
    assert (generation.cause, generation.finish_reason) == ("tool", "tool_calls")
    assert bytes(sampled[4:]) == b"Now:" + BLOCK.encode()
    assert (turn.reasoning, turn.content) == ("why", "Now:")
    assert turn.raw_block == BLOCK.encode()


def test_a_stop_string_inside_a_block_loses_the_call() -> None:
    turn, generation, _, _ = run(["</think>", BLOCK], tools=TOOLS, stop=("-l",))
    assert (generation.cause, generation.finish_reason, turn.calls) == ("stop", "stop", [])


def test_a_block_in_open_thinking_is_delivered_after_its_chance() -> None:
    turn, generation, _, sampled = run(["Need it.", BLOCK], tools=TOOLS, eos=False)
    assert (generation.cause, generation.finish_reason) == ("tool", "tool_calls")
    assert len(sampled) == len("Need it.") + len(BLOCK.encode()) + HELD_CALL_TOKENS
    assert (turn.reasoning, [call.name for call in turn.calls]) == ("Need it.", ["bash"])
    # The call is none of the reasoning, but for its first letters: what they open is known behind them.
    opener = BLOCK.partition(">")[0] + ">"
    assert len("Need it.") < generation.reasoning_tokens <= len(f"Need it.{opener}".encode())


def test_a_block_that_turns_out_to_be_part_of_the_thinking_is_counted_as_such() -> None:
    turn, generation, _, _ = run(["Need it.", BLOCK, " No.", "</think>", "ok"], tools=TOOLS)
    assert (turn.calls, turn.content) == ([], "ok")
    assert generation.reasoning_tokens == generation.completion_tokens - len("ok")


def test_a_block_that_thinking_takes_back_is_not_run() -> None:
    turn, generation, _, _ = run(["Maybe", BLOCK, " no.", "</think>", "Done."], tools=TOOLS)
    assert (generation.finish_reason, turn.calls, turn.content) == ("stop", [], "Done.")


def test_tags_are_sampled_greedily_and_values_are_not() -> None:
    """The same coin falls on one side in the name of a tag, on both inside a value."""
    before, after = BLOCK.split("ls -l")
    coin = {"logits": {"a": 0.01, "b": 0.0}}
    head, tail = '\n<｜DSML｜parameter name="', '" string="true">x</｜DSML｜parameter>'
    value = [coin] * 40
    tag = [head, *[coin] * 40, tail]
    pieces = ["</think>", before, *value, "</｜DSML｜parameter>", *tag, after.split(">", 1)[1]]
    turn, generation, _, _ = run(pieces, tools=TOOLS, sampling=Sampling())
    arguments = json.loads(turn.calls[0].arguments)
    assert set(arguments.pop("command")) == {"a", "b"}
    assert list(arguments) == ["a" * 40]
    assert generation.finish_reason == "tool_calls"
