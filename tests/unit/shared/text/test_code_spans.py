"""Where code stands, checked against a reading of the whole text at once."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.turns import new_turn, run

STRAY = "<think>"


def without_strays_outside_code(text: str) -> str:
    """The plain reading: fences first, line by line, then inline spans within each line.

    A stray mark before an opening fence is removed, so the fence stands at its line's start.
    """
    shown: list[str] = []
    lines = text.splitlines(keepends=True)
    place = 0
    while place < len(lines):
        line = re.sub(f"^( |{STRAY})+", lambda lead: lead[0].replace(STRAY, ""), lines[place])
        fence = re.match(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})", line.rstrip("\n"))
        if fence:
            closing = re.compile(rf" {{0,3}}{re.escape(fence[1][0])}{{{len(fence[1])},}}")
            end = next((i for i in range(place + 1, len(lines)) if closing.match(lines[i])), None)
            if end is None:
                return "".join([*shown, line, *lines[place + 1 :]])
            shown += [line, *lines[place + 1 : end]]
            run = closing.match(lines[end])
            assert run is not None
            shown += [run[0], inline(lines[end][run.end() :])]
            place = end + 1
        else:
            shown.append(inline(lines[place]))
            place += 1
    return "".join(shown)


def inline(line: str) -> str:
    parts = re.split(r"(`+)", line)
    shown, place = "", 0
    while place < len(parts):
        if place % 2 and parts[place] in parts[place + 2 :: 2]:
            end = parts.index(parts[place], place + 2)
            while end % 2 == 0:
                end = parts.index(parts[place], end + 1)
            shown += "".join(parts[place : end + 1])
            place = end + 1
        else:
            shown += parts[place].replace(STRAY, "")
            place += 1
    return shown


@settings(max_examples=400, deadline=None)
@given(
    text=st.lists(
        st.sampled_from(
            ["`", "``", "```", "````", "~~~", "~~~~", "\n", "\n", STRAY, STRAY, "a", "b c", " ", "    "]
        ),
        max_size=24,
    ).map("".join),
    step=st.sampled_from([1, 3, 10_000]),
)
def test_strays_stay_exactly_in_code(text: str, step: int) -> None:
    assert run(text, tools=None, step=step).turn.content == without_strays_outside_code(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("`<think>`", "`<think>`"),
        ("`<think>", "`"),
        ("`<think>\n`", "`\n`"),
        ("``<think>`", "```"),
        ("```\n<think>\n```", "```\n<think>\n```"),
        ("```\n<think>\n``", "```\n<think>\n``"),
        ("```\n<think>\n~~~", "```\n<think>\n~~~"),
        ("x```\n<think>\n```", "x```\n\n```"),
        ("    ```\n<think>\n    ```", "    ```\n\n    ```"),
        ("```\na\n```<think>", "```\na\n```"),
    ],
)
def test_examples(text: str, shown: str) -> None:
    assert run(text, tools=None).turn.content == shown


def test_a_run_of_ticks_may_arrive_in_pieces() -> None:
    turn = new_turn(tools=None)
    for piece in ("`", "`", "`\n<think>", "\n``", "`\n<think>"):
        turn.feed(piece.encode())
    turn.finish("eos")
    assert turn.content == "```\n<think>\n```\n"
