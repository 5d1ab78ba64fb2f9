"""Prompts in a dataset, and how they are read: each from the start, cut to the context and to the limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from shared.errors import UsageError
from shared.quantise.imatrix_reading import Reading, read_all, read_prompts
from shared.session import Session
from shared.text.tokenizer import Tokenizer

MARK = "===== DS4_IMATRIX_PROMPT"


@pytest.mark.parametrize(
    ("text", "prompts"),
    [
        (f"before\n{MARK} 1 =====\na\n\nb\n{MARK}\n\n  c \t\n", ["a\n\nb", "c"]),
        (" no mark\nat all\n", ["no mark\nat all"]),
        (f"{MARK}\r\na\r\nb\r\n", ["a\r\nb"]),
        (f"{MARK}\n  \n{MARK}\nx {MARK} y\n{MARK}", [f"x {MARK} y"]),
        (f"{MARK}2\na", ["a"]),
        (f"\ufeff{MARK}\na\n{MARK}\nb", ["a", "b"]),
        ("\ufeffno mark", ["no mark"]),
    ],
)
def test_prompts_stand_behind_marker_lines(tmp_path: Path, text: str, prompts: list[str]) -> None:
    (tmp_path / "d.txt").write_text(text, encoding="utf-8", newline="")
    assert read_prompts(tmp_path / "d.txt") == [prompt.encode() for prompt in prompts]


def test_bytes_that_are_no_text_are_kept(tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_bytes(b"a\xff\xe2\x80\xa8b")
    assert read_prompts(tmp_path / "d.txt") == [b"a\xff\xe2\x80\xa8b"]


@pytest.mark.parametrize("text", ["", " \n\n", f"text\n{MARK}\n \n"])
def test_a_dataset_without_prompts(tmp_path: Path, text: str) -> None:
    (tmp_path / "d.txt").write_text(text)
    with pytest.raises(UsageError, match="holds no prompt"):
        read_prompts(tmp_path / "d.txt")


def test_a_dataset_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read the dataset .*gone: No such file or directory"):
        read_prompts(tmp_path / "gone")
    with pytest.raises(UsageError, match="Is a directory"):
        read_prompts(tmp_path)


class _Bytes:
    """Tokens are bytes."""

    def encode_rendered(self, text: bytes) -> list[int]:
        return list(text)


class _Session:
    """Notes what it evaluates; reuses what it has, in steps of two tokens."""

    def __init__(self, context: int) -> None:
        self.context = context
        self.seen: list[list[int]] = []
        self._live: list[int] = []

    def invalidate(self) -> None:
        self._live = []

    def sync(self, tokens: Sequence[int], progress: Callable[[int, int], None], cancelled: Any) -> None:
        assert 0 < len(tokens) < self.context
        new = list(tokens)[len(self._live) if tokens[: len(self._live)] == self._live else 0 :]
        self.seen.append(new)
        for done in range(0, len(new) + 1, 2):
            progress(done, len(new))
        self._live = list(tokens)


def _read(
    context: int, prompts: list[bytes], max_tokens: int | None = None
) -> tuple[Reading, list[list[int]], list[tuple[int, int]]]:
    session, told = _Session(context), list[tuple[int, int]]()
    reading = read_all(
        cast("Session", session),
        cast("Tokenizer", _Bytes()),
        prompts,
        max_tokens=max_tokens,
        told=lambda *of: told.append(of),
        cancelled=lambda: False,
    )
    return reading, session.seen, told


def test_each_prompt_is_read_as_a_whole() -> None:
    reading, seen, told = _read(9, [b"ab", b"abcd", b"abcd"])
    assert reading == Reading(prompts=3, tokens=10, cut=0)
    assert [bytes(tokens) for tokens in seen] == [b"ab", b"abcd", b"abcd"]
    assert told == [(0, 0), (0, 2), (1, 2), (1, 4), (1, 6), (2, 6), (2, 8), (2, 10), (3, 10)]


def test_a_long_prompt_is_cut_to_the_context() -> None:
    reading, seen, _ = _read(4, [b"abcdef", b"abc"])
    assert reading == Reading(prompts=2, tokens=6, cut=1)
    assert [bytes(tokens) for tokens in seen] == [b"abc", b"abc"]


@pytest.mark.parametrize(
    ("limit", "expected", "read"),
    [
        (4, Reading(2, 4, 0), [b"abc", b"d"]),
        (5, Reading(3, 5, 1), [b"abc", b"d", b"e"]),
        (1, Reading(1, 1, 1), [b"a"]),
    ],
)
def test_a_limit_of_tokens_in_all(limit: int, expected: Reading, read: list[bytes]) -> None:
    reading, seen, told = _read(9, [b"abc", b"d", b"ef"], limit)
    assert reading == expected
    assert [bytes(tokens) for tokens in seen] == read
    assert told[-1] == (expected.prompts, expected.tokens)
