"""A conversation that one process saved goes on in another, which still recalls a fact from it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.embedded_model import recall
from shared.abilities.case import ExpectedAnswer
from tests.support.embedded_model import cases_of, expectations, least_right, model_file
from tests.support.terminal import Terminal

_FACT = re.compile("|".join(frame.format(name="([A-Z][a-z]+)", number="([0-9]+)") for frame in recall.FACTS))


@contextmanager
def _chat(folder: Path, *arguments: str) -> Iterator[Terminal]:
    options = [
        "--temp",
        "0",
        "--nothink",
        "--ctx",
        "2048",
        "--system",
        "",
        "--kv-disk-dir",
        str(folder / "kv"),
    ]
    home = {
        "HOME": str(folder),
        "DS4_HISTORY": str(folder / "history"),
        "DS4_LOCK_FILE": str(folder / "lock"),
    }
    chat = Terminal("-m", str(model_file()), "--backend", "reference", *options, *arguments, **home)
    try:
        chat.wait_for("ds4>")
        yield chat
        chat.type("\x04")
        assert chat.wait_for_end() == 0
    finally:
        chat.close()


def _asked(chat: Terminal, line: str) -> str:
    """What is shown from a line on to the end of its answer."""
    chat.type(line + "\r")
    shown = chat.wait_for("generation: ")
    chat.wait_for("ds4>")
    return shown


def _facts(text: str) -> dict[str, str]:
    """Name to number."""
    found = (sorted(filter(None, match.groups())) for match in _FACT.finditer(text))
    return {name: number for number, name in found}


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.long)])
def test_another_process_still_knows_what_was_read(tmp_path: Path, number: int) -> None:
    name = next(name for name in expectations() if name.startswith("near recall@"))
    case = cases_of(name)[number]
    [expected] = case.expected
    assert isinstance(expected, ExpectedAnswer)
    facts = _facts(case.user)
    text = tmp_path / "text"
    text.write_text(case.user)
    with _chat(tmp_path) as chat:
        first = _asked(chat, f"/read {text}")
    right = expected.text in first
    others = [person for person in facts if f"{person}=" not in expected.text][:3]
    with _chat(tmp_path, "--resume") as chat:
        assert "session loaded id=" in chat.raw
        answers = {person: _asked(chat, f"Do you recall the number of {person}?") for person in others}
    recalled = [right, *(f"{person}={facts[person]}" in answer for person, answer in answers.items())]
    assert sum(recalled) >= least_right(name, len(recalled)), (first, answers)
