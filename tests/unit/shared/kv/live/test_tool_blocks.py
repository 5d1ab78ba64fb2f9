"""Where tool-call blocks are found in a text, wherever it is cut, and whose reasoning stood before them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kv.live.tool_blocks import ToolBlock, reasoning_before, tool_blocks
from shared.text.prompt_texts import TOOLS_BEFORE_SCHEMAS

FULL = ("<｜DSML｜tool_calls>".encode(), "</｜DSML｜tool_calls>".encode())
SHORT = ("<DSML｜tool_calls>".encode(), "</DSML｜tool_calls>".encode())
PLAIN = (b"<tool_calls>", b"</tool_calls>")
FAMILIES = (FULL, SHORT, PLAIN)


def _raw(text: bytes) -> list[bytes]:
    return [block.raw for block in tool_blocks(text)]


@pytest.mark.parametrize(("start", "end"), FAMILIES)
def test_each_spelling_with_and_without_a_blank_line(start: bytes, end: bytes) -> None:
    block = start + b"\nx" + end
    assert list(tool_blocks(b"ab" + block + b"c")) == [ToolBlock(2, block)]
    assert list(tool_blocks(b"ab\n\n" + block)) == [ToolBlock(2, b"\n\n" + block)]
    assert list(tool_blocks(b"ab\n" + block)) == [ToolBlock(3, block)]
    assert _raw(b"\n\n\n" + block) == [b"\n\n" + block]


def test_a_block_ends_at_the_first_end_tag_of_its_own_spelling() -> None:
    assert _raw(FULL[0] + PLAIN[1] + FULL[1] + FULL[1]) == [FULL[0] + PLAIN[1] + FULL[1]]
    assert _raw(FULL[0] + FULL[0] + FULL[1] + b"x" + FULL[1]) == [FULL[0] + FULL[0] + FULL[1]]


def test_the_earliest_start_that_has_an_end_wins_over_one_that_has_none() -> None:
    inner = PLAIN[0] + PLAIN[1]
    assert _raw(FULL[0] + b"x" + inner) == [inner]
    assert _raw(FULL[0] + b"x" + inner + FULL[1]) == [FULL[0] + b"x" + inner + FULL[1]]
    assert _raw(FULL[1] + FULL[0]) == []


def test_the_example_in_the_tool_instructions_hides_no_block() -> None:
    block = FULL[0] + b"\nreal" + FULL[1]
    text = TOOLS_BEFORE_SCHEMAS.encode() + b"\n\n" + block
    assert _raw(text)[-1] == b"\n\n" + block


def _slow_blocks(text: bytes) -> list[bytes]:
    """The rule, word by word: try every place, take the first that works."""
    found, position = [], 0
    while position < len(text):
        for lead in (b"\n\n", b""):
            for start, end in FAMILIES:
                opening = lead + start
                if text.startswith(opening, position) and end in text[position + len(opening) :]:
                    stop = text.index(end, position + len(opening)) + len(end)
                    found.append(text[position:stop])
                    break
            else:
                continue
            position = stop
            break
        else:
            position += 1
    return found


_TAGS = [tag for family in FAMILIES for tag in family]
soups = st.lists(st.sampled_from([*_TAGS, b"\n", b"\n\n", b"x", b"<", "｜".encode()]), max_size=14).map(
    b"".join
)


@given(soups, st.data())
def test_any_text_cut_anywhere_is_read_by_the_rule(text: bytes, data: st.DataObject) -> None:
    cut = text[: data.draw(st.integers(0, len(text)))]
    assert _raw(text) == _slow_blocks(text)
    assert _raw(cut) == _slow_blocks(cut)


@st.composite
def whole_blocks(draw: st.DrawFn) -> bytes:
    start, end = draw(st.sampled_from(FAMILIES))
    return (
        draw(st.sampled_from([b"", b"\n\n"])) + start + draw(st.binary(max_size=4)).replace(b"<", b"") + end
    )


@given(st.lists(whole_blocks(), min_size=1, max_size=5), st.data())
def test_a_cut_text_holds_the_blocks_that_are_whole(blocks: list[bytes], data: st.DataObject) -> None:
    text = b"".join(b"said." + block for block in blocks)
    size = data.draw(st.integers(0, len(text)))
    ends = [len(b"".join(b"said." + block for block in blocks[: n + 1])) for n in range(len(blocks))]
    assert _raw(text[:size]) == [block for block, end in zip(blocks, ends, strict=True) if end <= size]


def _reasoning(before: str) -> str:
    text = before.encode() + FULL[0] + FULL[1]
    (block,) = tool_blocks(text)
    return reasoning_before(text, block)


@pytest.mark.parametrize(
    ("before", "reasoning"),
    [
        ("<｜User｜>hi<｜Assistant｜><think>why not</think>Let me see.\n\n", "why not"),
        (
            "<｜Assistant｜><think>old</think>x<｜end▁of▁sentence｜><｜User｜><｜Assistant｜><think>new</think>",
            "new",
        ),
        ("<｜Assistant｜><think><think>twice</think>", "twice"),
        ("<｜Assistant｜><think>the `<think>` tag</think>", "the `<think>` tag"),
        ("<｜Assistant｜><think>Größe</think>", "Größe"),
        ("<｜Assistant｜><think>never closed\n", "never closed\n"),
        ("<｜Assistant｜></think>not thinking", ""),
        ("<｜Assistant｜>no mark <think>x</think>", ""),
        ("<think>no answer</think>", ""),
        ("<｜Assistant｜><think>t</think>said<｜end▁of▁sentence｜><｜User｜>quoted: ", ""),
        ("<｜Assistant｜><think>t</think>said<｜User｜>quoted: ", ""),
    ],
)
def test_the_reasoning_of_the_answer_that_holds_the_block(before: str, reasoning: str) -> None:
    assert _reasoning(before) == reasoning


def test_the_reasoning_of_each_block_and_bytes_that_are_no_text() -> None:
    one = "<｜Assistant｜><think>1</think>".encode() + FULL[0] + b"a" + FULL[1]
    two = b"".join(["<｜Assistant｜><think>".encode(), b"\xff", b"</think>", FULL[0], b"b", FULL[1]])
    text = one + two
    assert [reasoning_before(text, block) for block in tool_blocks(text)] == ["1", "\ufffd"]
