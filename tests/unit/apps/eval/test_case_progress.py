"""The progress of a run over cases: a bar on a terminal, few lines elsewhere, and never nothing."""

from __future__ import annotations

from apps.eval.case_progress import case_progress
from tests.support import consoles


def test_a_terminal_shows_a_bar_with_the_case() -> None:
    target = consoles.terminal(width=100, colors=False)
    with case_progress("asked", 4, target.console) as advance:
        for number in range(3):
            advance(f"tools/{number} [b]ok")
    assert "3/4" in target.text
    assert "tools/2 [b]ok" in target.text


def test_a_file_gets_a_line_at_once_and_then_one_in_twenty() -> None:
    target = consoles.file()
    with case_progress("asked", 45, target.console) as advance:
        assert target.text == "45 cases to be asked\n"
        for number in range(45):
            advance(f"tools/{number}")
    assert target.text.splitlines()[1:] == [
        "asked 20/45 tools/19",
        "asked 40/45 tools/39",
        "asked 45/45 tools/44",
    ]
