"""Cut anywhere: the same bytes give the same events whatever the pieces, and nothing shown is markup."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.text import marks
from shared.text.dsml_tags import Tag, stray_markup
from shared.text.events import EndCause
from shared.text.messages import ToolSet
from tests.support.turns import ANY_TOOLS, BASH, F6, F7, F10, FIXTURES, M, Outcome, run, tool

DECLARED = ToolSet([tool("x", "a", "b", "task", required=["a"]), tool("bash", "command"), tool("edit")])

PIECES = [
    *("<", "</", ">", " ", "\n", "\n\n", "`", "``", "```", "\n```\n", "\n~~~\n", "```py\n", "|", "｜"),
    "DSML",
    *(M, "tool_calls", "invoke", "parameter", ' name="x"', ' name="arguments"', ' string="true"', ">"),
    *(f"<{M}tool_calls>", f"\n<{M}tool_calls>\n", f"</{M}tool_calls>", f"<{M}invoke name=\"x\">"),
    *(f"</{M}invoke>", f'<{M}parameter name="a" string="true">', f'<{M}parameter name="b" string="false">'),
    *(f'<{M}parameter name="n">', f"</{M}parameter>", "</parameter>", "</invoke>", '<invoke name="x">'),
    *("<tool_calls>", "</tool_calls>", "<function>", "<name>x</name>", '<parameter name="q" string="true">'),
    *("</function_calls>", "<task>", "</task>", "<think>", "</think>", "<thi", "nk>", "<｜User｜>", "<｜Us"),
    *("er｜>", "&lt;", "&amp;", f"&lt;/{M}parameter>", "é", "中", '"', "\\", "{", "}", "[", "]", ",", ":"),
    "1",
    *("null", "text", "a b", '<｜｜DSML｜｜invoke name="y">', "</DSML｜invoke>"),
    '<DSML｜parameter name="z">',
    *(f"<{M} calls>", BASH, f"\n{BASH}\n", F6, F7, F10),
]  # fmt: skip
OUTPUTS = st.lists(
    st.sampled_from([piece.encode() for piece in PIECES])
    | st.sampled_from([b"\xff", b"\xe4\xb8", b"\xef", b"\xc3"]),
    max_size=30,
).map(b"".join)
CONDITIONS = st.fixed_dictionaries(
    {
        "thinking": st.booleans(),
        "tools": st.sampled_from([None, ANY_TOOLS, DECLARED]),
        "cause": st.sampled_from(get_args(EndCause)),
        "unescape": st.sampled_from(["closing-tag-only", "entities"]),
    }
)


def result(outcome: Outcome) -> tuple[Any, ...]:
    turn = outcome.turn
    return (
        *(outcome.events, turn.finish_reason, turn.raw_block, turn.notice, turn.thinking_closed),
        *(turn.repaired, turn.calls, turn.should_stop, turn.decode_state),
    )


@pytest.mark.parametrize("name", FIXTURES)
@pytest.mark.parametrize("thinking", [False, True])
def test_fixtures_at_every_cut(name: str, thinking: bool) -> None:
    data = FIXTURES[name].encode()
    for tools, cause in ((ANY_TOOLS, "eos"), (ANY_TOOLS, "length")):
        how: dict[str, Any] = {"thinking": thinking, "tools": tools, "cause": cause}
        whole = result(run(data, **how))
        for cut in range(1, len(data), 1 if cause == "eos" else 4):
            assert result(run(data, cuts=[cut], **how)) == whole, cut
        for step in (1, 2, 7):
            assert result(run(data, step=step, **how)) == whole, step


@pytest.mark.parametrize("name", FIXTURES)
def test_every_shortened_fixture(name: str) -> None:
    data = FIXTURES[name].encode()
    for end in range(0, len(data), 5):
        for cause in ("eos", "length"):
            whole = result(run(data[:end], thinking=True, cause=cause))
            assert result(run(data[:end], thinking=True, cause=cause, step=1)) == whole, end


@settings(max_examples=120, deadline=None)
@given(data=OUTPUTS, how=CONDITIONS, draw=st.data())
def test_random_output_at_random_cuts(data: bytes, how: dict[str, Any], draw: st.DataObject) -> None:
    whole = result(run(data, **how))
    assert result(run(data, step=1, **how)) == whole
    cuts = draw.draw(st.lists(st.integers(0, len(data)), max_size=6))
    assert result(run(data, cuts=cuts, **how)) == whole


@settings(max_examples=120, deadline=None)
@given(data=OUTPUTS.filter(lambda data: b"`" not in data and b"~" not in data), how=CONDITIONS)
def test_nothing_shown_outside_code_is_markup(data: bytes, how: dict[str, Any]) -> None:
    turn = run(data, **how).turn
    for shown in (turn.reasoning, turn.content):
        assert not any(mark in shown for mark in marks.ALL)
        text = shown.encode()
        for place, byte in enumerate(text):
            assert byte not in b"<" or not isinstance(stray_markup(text, place), Tag), shown[place:]


@settings(max_examples=60, deadline=None)
@given(data=OUTPUTS, how=CONDITIONS)
def test_without_thinking_or_tools_there_is_none(data: bytes, how: dict[str, Any]) -> None:
    turn = run(data, **how | {"thinking": False, "tools": None}).turn
    assert (turn.reasoning, turn.calls, turn.notice) == ("", [], "")
    plain = run(data.replace(b"<", b"(").replace(marks.DSML.encode(), b"").replace(M[:3].encode(), b"!")).turn
    assert plain.calls == []
