"""Generated blocks: what is written comes back, misspelt ones are recovered, and quoted ones never run."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.text.dsml_write import canonical_block
from shared.text.events import EndCause
from shared.text.messages import ToolCall, ToolSet
from tests.support.turns import ANY_TOOLS, M, run, tool

NAMES = st.text(min_size=1, max_size=12)
TRICKY = st.sampled_from(
    [
        *(
            "</parameter>",
            f"</{M}invoke>",
            f"</{M}tool_calls>",
            f"<{M}tool_calls>",
            "<think>",
            "</think>",
            "```",
        ),
        *("`", "&lt;", "&amp;", "<b>", "</b>", "\n", "  ", '"', "\\", "é", "🚩", "<", "</", f"<{M}", "&"),
        *(
            f'<{M}invoke name="x">',
            f'<{M}parameter name="y" string="true">',
            "</invoke>",
            "</tool_calls>",
            "text",
        ),
    ]
)
STRINGS = st.lists(TRICKY, max_size=6).map("".join) | st.text(max_size=30)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner | STRINGS, max_size=3) | st.dictionaries(STRINGS, inner | STRINGS, max_size=3)
    ),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(NAMES, STRINGS | JSON_VALUES, max_size=4)
# Texts that the format cannot carry: the escaped closing tag itself, and closing tags that are followed by
# what only follows when a closing tag was misspelt.
AMBIGUOUS = re.compile(
    rf"&lt;/{M}parameter>|</parameter>.*</?{M}|</{M}(invoke|tool_calls)>.*<{M}invoke", re.DOTALL
)


def comes_back(value: Any) -> bool:
    return not isinstance(value, str) or not AMBIGUOUS.search(value)


@settings(max_examples=100, deadline=None)
@given(
    calls=st.lists(st.tuples(NAMES, ARGUMENTS), min_size=1, max_size=3),
    lead=st.sampled_from(["", "text", "<think>"]),
    step=st.sampled_from([1, 5, 10_000]),
)
def test_written_calls_are_read_back(calls: list[tuple[str, dict[str, Any]]], lead: str, step: int) -> None:
    calls = [(name, {k: v for k, v in args.items() if comes_back(v)}) for name, args in calls]
    written = [ToolCall(f"id{i}", name, json.dumps(args)) for i, (name, args) in enumerate(calls)]
    raw = canonical_block(written)
    outcome = run(lead.encode() + raw, step=step)
    assert outcome.calls == calls
    assert [list(json.loads(call.arguments)) for call in outcome.turn.calls] == [
        list(args) for _, args in calls
    ]
    assert outcome.turn.raw_block == raw
    assert outcome.turn.content == lead.replace("<think>", "")
    assert canonical_block(outcome.turn.calls) == raw
    again = run(b"a </think>" + raw, thinking=True)
    assert again.calls == calls


@dataclass(frozen=True)
class Spelling:
    """How one generated block is written."""

    mark: str
    close_mark: str
    wrapper: str | None
    wrapper_close: str | None
    invoke_close: str | None
    space: str
    slash_after_mark: bool


MARKS = ["｜DSML｜", "｜｜DSML｜｜", "DSML｜", "|DSML|", "｜DSML", "｜DSML｜ ", "||DSML｜"]
SPELLINGS = st.builds(
    Spelling,
    mark=st.sampled_from([*MARKS, ""]),
    close_mark=st.sampled_from(MARKS),
    wrapper=st.sampled_from([None, "tool_calls", "function_calls"]),
    wrapper_close=st.sampled_from([None, "tool_calls", "tool_cs", "function_calls"]),
    invoke_close=st.sampled_from(["invoke", "inv", "invok", None]),
    space=st.sampled_from(["", "\n", "\n  ", " \r\n"]),
    slash_after_mark=st.booleans(),
)
VALUES = st.sampled_from(
    ["v", "", " a b ", '2>/dev/null || echo "none > here"', "<b>x</b>", "1 < 2 && 3", "`x`\n"]
)
CALLS = st.lists(
    st.tuples(st.sampled_from(["f", "g"]), st.lists(st.tuples(st.sampled_from("abc"), VALUES), max_size=3)),
    min_size=1,
    max_size=3,
)


def spell(calls: list[tuple[str, list[tuple[str, str]]]], how: Spelling) -> str:
    def close(word: str) -> str:
        return f"<{how.close_mark}/{word}>" if how.slash_after_mark else f"</{how.close_mark}{word}>"

    text = f"<{how.mark}{how.wrapper}>{how.space}" if how.wrapper else ""
    for place, (name, parameters) in enumerate(calls):
        text += f'<{how.mark}invoke name="{name}">{how.space}'
        for key, value in parameters:
            text += f'<{how.mark}parameter name="{key}" string="true">{value}{close("parameter")}{how.space}'
        if how.invoke_close and (how.wrapper or place < len(calls) - 1 or how.wrapper_close):
            text += close(how.invoke_close) + how.space
    return text + (close(how.wrapper_close) if how.wrapper_close else "")


@settings(max_examples=150, deadline=None)
@given(
    calls=CALLS,
    how=SPELLINGS,
    lead=st.sampled_from(["", "words\n", "\n\n"]),
    step=st.sampled_from([1, 9, 9999]),
)
def test_misspelt_blocks_are_recovered(
    calls: list[tuple[str, list[tuple[str, str]]]], how: Spelling, lead: str, step: int
) -> None:
    outcome = run(lead + spell(calls, how), step=step)
    read = [(call.name, json.loads(call.arguments, object_pairs_hook=list)) for call in outcome.turn.calls]
    assert [(name, [tuple(pair) for pair in pairs]) for name, pairs in read] == calls
    assert outcome.turn.content == lead.rstrip()
    assert outcome.turn.finish_reason == "tool_calls"


def quote(text: str, way: str) -> str | None:
    """`text` as code, or None if that way of quoting cannot hold it."""
    if way == "inline":
        return None if "`" in text or "\n" in text else f"see `{text}` there\n"
    if way == "fence":
        return f"see\n````md\n{text}\n````\n"
    return f"see\n~~~\n{text}\n~~~\n"


@settings(max_examples=100, deadline=None)
@given(
    calls=CALLS,
    how=SPELLINGS,
    way=st.sampled_from(["inline", "fence", "tilde"]),
    thinking=st.booleans(),
    cause=st.sampled_from(["eos", "length", "stop"]),
    step=st.sampled_from([1, 9, 9999]),
)
def test_quoted_blocks_never_run(
    calls: list[tuple[str, list[tuple[str, str]]]],
    how: Spelling,
    way: str,
    thinking: bool,
    cause: EndCause,
    step: int,
) -> None:
    text = quote(spell(calls, how), way)
    if text is None:
        return
    turn = run(text, thinking=thinking, cause=cause, step=step).turn
    assert turn.calls == []
    assert (turn.reasoning, turn.content) == ((text, "") if thinking else ("", text))


@settings(max_examples=100, deadline=None)
@given(calls=CALLS, how=SPELLINGS, data=st.data(), cause=st.sampled_from(["length", "stop", "cancelled"]))
def test_a_call_that_was_cut_never_ends(
    calls: list[tuple[str, list[tuple[str, str]]]], how: Spelling, data: st.DataObject, cause: EndCause
) -> None:
    text = spell(calls, how).encode()
    outcome = run(text[: data.draw(st.integers(0, len(text)))], cause=cause)
    whole = [(name, [list(pair) for pair in pairs]) for name, pairs in calls]
    read = [(c.name, json.loads(c.arguments, object_pairs_hook=list)) for c in outcome.turn.calls]
    assert [(name, [list(pair) for pair in pairs]) for name, pairs in read] == whole[: len(read)]


@pytest.mark.parametrize("tools", [ANY_TOOLS, ToolSet([tool("f", "a", required=["a"])])])
@settings(max_examples=60, deadline=None)
@given(value=st.text(st.characters(codec="utf-8", exclude_characters="<>&`~｜")))
def test_a_lost_value_is_shown(tools: ToolSet, value: str) -> None:
    text = f'<{M}tool_calls>\n<{M}invoke name="f">\n<{M}parameter name="a" string="true">{value}'
    turn = run(text, cause="length", tools=tools).turn
    assert turn.calls == []
    assert value.strip() in turn.content
