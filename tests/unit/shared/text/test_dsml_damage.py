"""Damaged blocks: tags lost, doubled, swapped, misspelt, words between them.

Nothing a model wrote disappears, nothing that was not written is called, quoted blocks stay text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared.text import marks
from shared.text.events import EndCause
from shared.text.messages import ToolSet
from tests.support.turns import ANY_TOOLS, M, Outcome, block, invoke, new_turn, parameter, run, tool

DECLARED = ToolSet([tool("f", "a", "b", required=["a"]), tool("g", "c", required=["c"])])
WORD = re.compile(r"w\d+")
WRAPPER = re.compile(r"<[^</>]*DSML[^</>]*tool_cal[^<>]*>")
CLOSER = re.compile(r"</[^<>]*tool_cal")
OPENER = re.compile(r'parameter name="(\w+)"[^<>]*>(w\d+)')


@dataclass(frozen=True)
class Damage:
    """One thing that goes wrong at a place of the block, counted in fragments."""

    what: str
    place: int

    def strike(self, fragments: list[str]) -> None:
        if not fragments:
            return
        place = self.place % len(fragments)
        fragment = fragments[place]
        if self.what == "lose":
            del fragments[place]
        elif self.what == "double":
            fragments.insert(place, fragment if not WORD.search(fragment) else " or ")
        elif self.what == "swap":
            other = (place + 1) % len(fragments)
            fragments[place], fragments[other] = fragments[other], fragment
        elif self.what == "misspell":
            fragments[place] = fragment.replace("invoke", "invk").replace("tool_calls", "tool_cals")
        elif self.what == "plain" and not WORD.search(fragment):
            fragments[place] = fragment.replace(M, "")
        elif self.what == "bars" and not WORD.search(fragment):
            fragments[place] = fragment.replace("｜", "|")
        elif self.what == "words":
            fragments.insert(place, " and ")


class _Words:
    """Words of which each comes once, so that each can be found again."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self) -> str:
        self._count += 1
        return f"w{self._count}"


KINDS = ("lose", "double", "swap", "misspell", "plain", "bars", "words")
DAMAGE = st.builds(Damage, st.sampled_from(KINDS), st.integers(0, 60))


@st.composite
def damaged_blocks(draw: st.DrawFn, least: tuple[str, ...] = (), most_damages: int = 4) -> str:
    """A block whose calls have the parameters `least` and others, and what went wrong with it."""
    word = _Words()
    keys = st.lists(st.sampled_from("abc"), unique=True, max_size=3)
    fragments = [f"<{M}tool_calls>", "\n"]
    for name, more in draw(st.lists(st.tuples(st.sampled_from("fg"), keys), min_size=1, max_size=3)):
        fragments += [f'<{M}invoke name="{name}">', "\n"]
        for key in dict.fromkeys((*least, *more)):
            fragments += [f'<{M}parameter name="{key}" string="true">', word(), f"</{M}parameter>", "\n"]
        fragments += [f"</{M}invoke>", "\n"]
    fragments.append(f"</{M}tool_calls>")
    for damage in draw(st.lists(DAMAGE, min_size=1, max_size=most_damages)):
        damage.strike(fragments)
    return "".join(fragments)


CONDITIONS: dict[str, Any] = {
    "text": damaged_blocks(),
    "thinking": st.booleans(),
    "tools": st.sampled_from([ANY_TOOLS, DECLARED]),
    "cause": st.sampled_from(["eos", "length", "stop"]),
}


def shown(outcome: Outcome) -> str:
    """Everything that whoever asked gets to see, calls included."""
    turn = outcome.turn
    return "\n".join([turn.reasoning, turn.content, *(call.arguments for call in turn.calls)])


def sampled(text: str, tools: ToolSet) -> str:
    """The part of `text` that is generated in content: generation stops where a block ends.

    That is at its closing wrapper; without an opening one at whatever is no invoke behind an invoke.
    """
    turn = new_turn(tools=tools)
    for end, letter in enumerate(text):
        turn.feed(letter.encode())
        if turn.should_stop:
            assert CLOSER.search(text, 0, end) or not WRAPPER.search(text, 0, end)
            return text[:end]
    return text


TWO_WITHOUT_WRAPPER = invoke("f", parameter("a", "w1")) + " and \n" + invoke("f", parameter("a", "w2"))
VALUE_BEFORE_A_CALL_WITHOUT_OPENER = block(
    f"</{M}parameter>w1\n" + parameter("b", "w2") + f"</{M}invoke>\n", invoke("f", parameter("a", "w3"))
)


@settings(max_examples=200, deadline=None)
@given(**CONDITIONS)
@example(text=VALUE_BEFORE_A_CALL_WITHOUT_OPENER, thinking=False, tools=ANY_TOOLS, cause="eos")
@example(text=TWO_WITHOUT_WRAPPER, thinking=False, tools=ANY_TOOLS, cause="eos")
@example(text=TWO_WITHOUT_WRAPPER, thinking=True, tools=ANY_TOOLS, cause="eos")
def test_every_word_is_in_a_call_or_shown(text: str, thinking: bool, tools: ToolSet, cause: EndCause) -> None:
    outcome = run(text, thinking=thinking, tools=tools, cause=cause)
    seen, written = sorted(WORD.findall(shown(outcome))), sorted(WORD.findall(text))
    if seen != written:
        assert outcome.turn.calls
        assert set(WORD.findall(sampled(text, tools))) <= set(seen) < set(written)
        assert len(set(seen)) == len(seen)


@settings(max_examples=200, deadline=None)
@given(**CONDITIONS)
def test_a_call_has_the_arguments_that_were_written_for_it(
    text: str, thinking: bool, tools: ToolSet, cause: EndCause
) -> None:
    """Each value begins with what stood behind an opening tag of its name."""
    outcome = run(text, thinking=thinking, tools=tools, cause=cause)
    written = set(OPENER.findall(text))
    for call in outcome.turn.calls:
        for key, value in json.loads(call.arguments).items():
            begin = WORD.match(value)
            assert begin is None or (key, begin[0]) in written, (call, text)


@settings(max_examples=150, deadline=None)
@given(
    text=damaged_blocks(least=("a", "c"), most_damages=1),
    thinking=st.booleans(),
    cause=st.sampled_from(["eos", "length", "stop"]),
)
def test_a_call_that_lost_what_its_tool_requires_is_not_made(
    text: str, thinking: bool, cause: EndCause
) -> None:
    for call in run(text, thinking=thinking, tools=DECLARED, cause=cause).turn.calls:
        assert DECLARED.required(call.name) <= json.loads(call.arguments).keys()


@settings(max_examples=100, deadline=None)
@given(step=st.sampled_from([1, 3, 8]), **CONDITIONS)
def test_cuts_change_nothing(text: str, thinking: bool, tools: ToolSet, cause: EndCause, step: int) -> None:
    how: dict[str, Any] = {"thinking": thinking, "tools": tools, "cause": cause}
    whole, cut = run(text, **how), run(text, step=step, **how)
    assert (whole.events, whole.turn.calls, whole.turn.notice) == (
        cut.events,
        cut.turn.calls,
        cut.turn.notice,
    )


@settings(max_examples=100, deadline=None)
@given(**CONDITIONS)
def test_a_quoted_block_is_text(text: str, thinking: bool, tools: ToolSet, cause: EndCause) -> None:
    fenced = f"Like this:\n````xml\n{text}\n````\nand no more."
    turn = run(fenced, thinking=thinking, tools=tools, cause=cause).turn
    assert turn.calls == []
    assert (turn.reasoning, turn.content) == ((fenced, "") if thinking else ("", fenced))


@settings(max_examples=100, deadline=None)
@given(**CONDITIONS)
def test_no_markup_is_shown(text: str, thinking: bool, tools: ToolSet, cause: EndCause) -> None:
    turn = run(text, thinking=thinking, tools=tools, cause=cause).turn
    assert not any(mark in turn.content + turn.reasoning for mark in marks.ALL)
    assert "DSML" not in turn.content + turn.reasoning


@pytest.mark.parametrize("cause", ["length", "stop", "cancelled"])
def test_a_block_cut_at_any_byte_loses_no_word(cause: EndCause) -> None:
    text = f'<{M}tool_calls>\n<{M}invoke name="f">\n<{M}parameter name="a" string="true">w1</{M}parameter>\n'
    text += f'</{M}invoke>\n<{M}invoke name="g">\n<{M}parameter name="c" string="true">w2 w3'
    data = text.encode()
    for end in range(len(data)):
        outcome = run(data[:end], cause=cause)
        seen = sorted(WORD.findall(shown(outcome)))
        assert seen == WORD.findall(data[:end].decode("utf-8", "ignore")), end
        assert all(call.name == "f" for call in outcome.turn.calls), end
