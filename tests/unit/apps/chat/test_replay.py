"""The last turns of a conversation, as they are shown when it is taken up again."""

from __future__ import annotations

import pytest

from apps.chat.replay import ShownTurn, last_turns, show_turns
from shared.scripted.vocabulary import tokenizer
from tests.support import consoles

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"


def turns(*rendered, count=3):
    tokens = tokenizer().encode_rendered(BOS + "system" + "".join(rendered))
    return last_turns(tokens, tokenizer(), count)


def said(message, answer):
    return f"<｜User｜>{message}<｜Assistant｜>{answer}"


def test_the_last_three_without_thinking_and_marks():
    assert turns(
        said("1", f"</think>one{EOS}"),
        said("2", f"<think>hm</think>\n\ntwo{EOS}"),
        said("3", "</think>three"),
        said("4", f"four{EOS}"),
    ) == [ShownTurn("2", "two"), ShownTurn("3", "three"), ShownTurn("4", "four")]


@pytest.mark.parametrize(
    ("rendered", "expected"),
    [
        ("", []),
        ("<｜User｜>alone", [ShownTurn("alone", "")]),
        (said("q", f"<think>never came to it{EOS}"), [ShownTurn("q", "")]),
        (said("q", ""), [ShownTurn("q", "")]),
        (said("q", "</think>a"), [ShownTurn("q", "a")]),
    ],
)
def test_what_is_not_whole(rendered, expected):
    assert turns(rendered) == expected


def test_long_ones_are_cut_at_the_end_of_a_message_and_the_start_of_an_answer():
    lines = [str(number) for number in range(200)]
    (shown,) = turns(said("\n".join(lines), "</think>" + "\n".join(lines)))
    assert shown.message.split() == [*lines[:24], "[...]"]
    assert shown.answer.split() == ["[...]", *lines[-80:]]
    (wide,) = turns(said("é" * 9000, "</think>" + "é" * 9000))
    assert (wide.message.count("é"), wide.answer.count("é")) == (3000, 6000)


def test_nothing_in_them_drives_the_terminal():
    err = consoles.terminal(colors=False)
    show_turns(turns(said("a\x1b[2Jb", "</think>c\rd")), on=err.console)
    assert err.text == "> a[2Jb\ncd\n"
