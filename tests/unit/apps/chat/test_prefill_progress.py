"""How a prefill is shown."""

import pytest

from apps.chat.prefill_progress import PrefillProgress
from tests.support import consoles


def _run(target, steps, *, chunk=4, close=False):
    progress = PrefillProgress(target.console, prompt_tokens=20, chunk=chunk)
    for done, total in steps:
        progress(done, total)
    if close:
        progress.close()
    return target.text


def test_a_terminal_shows_one_line_that_rewrites_itself():
    shown = _run(consoles.terminal(colors=False), [(0, 8), (4, 8), (8, 8)])
    half, full = "━" * 12 + "╺" * 12, "━" * 24
    assert shown == (
        f"\rprefill 20 tokens: 0/8 (0.0%) {'╺' * 24}\x1b[K"
        f"\rprefill 20 tokens: 4/8 (50.0%) {half}\x1b[K"
        f"\rprefill 20 tokens: 8/8 (100.0%) {full}\x1b[K\n"
    )


@pytest.mark.parametrize("width", [1, 10, 30, 38, 45, 60, 80])
def test_the_line_never_wraps(width):
    shown = _run(consoles.terminal(colors=False, width=width), [(0, 8), (4, 8)])
    lines = [line.removesuffix("\x1b[K") for line in shown.split("\r")[1:]]
    assert len(lines) == 2
    assert all(len(line) < max(2, width) for line in lines)
    assert lines[1].startswith("prefill 20 tokens: 4/8 (50.0%)"[: width - 1])


def test_an_interrupted_prefill_ends_its_line_once():
    shown = _run(consoles.terminal(colors=False), [(0, 8), (4, 8)], close=True)
    assert shown.count("\n") == 1
    assert shown.endswith("\n")
    assert _run(consoles.terminal(), [(8, 8)], close=True).count("\n") == 1


def test_a_file_gets_one_line_per_chunk():
    shown = _run(consoles.file(), [(0, 10), (2, 10), (4, 10), (6, 10), (8, 10), (10, 10)], close=True)
    assert shown == (
        "prefill 20 tokens: 4/10 (40.0%)\n"
        "prefill 20 tokens: 8/10 (80.0%)\n"
        "prefill 20 tokens: 10/10 (100.0%)\n"
    )


def test_nothing_to_prefill_shows_nothing():
    assert _run(consoles.file(), [(0, 0)]) == ""
    assert _run(consoles.terminal(), [(0, 0)], close=True) == ""
