"""Ids against stored data: the golden vocabularies and the published V4 tokenizer."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.text import marks, tokenizer
from tests.support.golden import GOLDEN, golden_json
from tests.support.vocabularies import (
    gguf_vocabulary,
    published_tokenizer,
    split_tokenizer,
    tiny_tokenizer,
    v4_tokenizer,
    v4_vocabulary,
)

# Places where pre-tokenisers disagree: punctuation before newlines, numerals, marks, spaces, scripts.
_PIECES = st.sampled_from(
    [
        *(
            "a",
            "Z",
            "don't",
            ".foo",
            "_x",
            "==",
            "$",
            "<",
            ">",
            "/",
            "&",
            "&lt;",
            "1",
            "23",
            "4567",
            "\x00",
            "\x7f",
        ),
        *(
            " ",
            "\t",
            "\n",
            "\n\n",
            "\r\n",
            "\u00a0",
            "\u3000",
            "\u200d",
            "\ufeff",
            "½",
            "٣",
            "Ⅷ",
            "中",
            "ひ",
            "カ",
        ),
        *("。", "）\n", "…\n\n", "“", "—", "é", "e\u0301", "ß", "П", "한", "🦊", "€", "┌", "<｜", "｜>"),
        *marks.ALL,
    ]
)
_TEXTS = st.text(max_size=40) | st.lists(_PIECES, max_size=20).map("".join)


@pytest.mark.parametrize("kind", ["text", "rendered"])
def test_golden_ids(kind: str) -> None:
    encode = {"text": tiny_tokenizer().encode_text, "rendered": tiny_tokenizer().encode_rendered}[kind]
    entries = [entry for entry in golden_json("tokenizer.json") if entry["kind"] == kind]
    assert entries
    for entry in entries:
        assert encode(entry["text"]) == entry["ids"], entry["text"]


def test_token_dump_of_the_command_line() -> None:
    first, *lines = (GOLDEN / "cli-dump-tokens.txt").read_text(encoding="utf-8").splitlines()
    known = tiny_tokenizer()
    ids = known.encode_rendered(golden_json("prompts.json")["short"]["text"])
    assert str(ids) == first
    assert [f"{token:6d}  {known.piece(token)}" for token in ids] == [line for line in lines if line]


def test_where_the_c_engine_differs_we_follow_the_published_rules() -> None:
    official = published_tokenizer(*gguf_vocabulary(GOLDEN / "tokenizer-only.gguf"), rendered=True)
    same: list[str] = []
    simpler_rules: list[str] = []
    for entry in golden_json("tokenizer-split.json"):
        text = entry["text"]
        ours = split_tokenizer().encode_rendered(text)
        assert ours == official.encode(text, add_special_tokens=False).ids, text
        (same if ours == entry["ids"] else simpler_rules).append(text)
    assert (len(same), len(simpler_rules)) == (130, 73)
    assert not any(text.isascii() for text in simpler_rules)


@cache
def _official(rendered: bool) -> Any:
    return published_tokenizer(*v4_vocabulary(), rendered=rendered)


V4_CASES = [
    ("Hello, world!\n", [19923, 14, 2058, 8567]),
    ("  foo(bar);\n\n\tx = 12345;", [223, 52735, 10, 6515, 3039, 51669, 438, 223, 6895, 1883, 29]),
    ("don't <think>", [20385, 1664, 818, 37947, 32]),
    ("你好，世界2026年", [30594, 303, 3427, 939, 24, 695]),
    ("。\n", [876]),
    ("   abc", [262, 71490]),
    ("\tabc", [200, 32372]),
    ("a\n  b", [67, 201, 223, 291]),
    ("        if", [528, 855]),
]
V4_RENDERED_CASES = [
    (
        f"{marks.BOS}sys{marks.USER}hello{marks.ASSISTANT}{marks.THINK}",
        [0, 44489, 128803, 33310, 128804, 128821],
    ),
    ("</｜DSML｜parameter>\n", [1718, 128825, 41523, 1018]),
]


@pytest.mark.parametrize(("text", "ids"), V4_CASES)
def test_v4_text(text: str, ids: list[int]) -> None:
    assert v4_tokenizer().encode_text(text) == ids
    assert v4_tokenizer().decode(ids) == text.encode()


@pytest.mark.parametrize(("text", "ids"), V4_RENDERED_CASES)
def test_v4_rendered(text: str, ids: list[int]) -> None:
    assert v4_tokenizer().encode_rendered(text) == ids
    assert v4_tokenizer().decode(ids) == text.encode()


def test_v4_pieces() -> None:
    known = v4_tokenizer()
    assert [known.piece(token) for token in (19923, 14, 2058, 8567)] == ["Hello", ",", "Ġworld", "!Ċ"]
    assert [known.token_bytes(token) for token in (6895, 1883)] == [b"123", b"45"]
    assert known.specials.reminder == 128828
    assert known.vocabulary_size == 129280


@given(text=_TEXTS)
def test_v4_equals_the_published_tokenizer(text: str) -> None:
    for rendered, ours in (
        (False, v4_tokenizer().encode_text(text)),
        (True, v4_tokenizer().encode_rendered(text)),
    ):
        assert ours == _official(rendered).encode(text, add_special_tokens=False).ids


@given(text=_TEXTS, block=st.integers(1, 9))
def test_long_input_in_blocks_equals_one_piece(text: str, block: int) -> None:
    whole = v4_tokenizer().encode_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer, "_BLOCK", block)
        assert v4_tokenizer().encode_text(text) == whole


def test_prose_and_code_are_cut_into_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "_BLOCK", 8)
    for text in (
        '{"a":1,"bc":[2,3],"defg":"hi"}',
        "The quick brown fox",
        "二つの時計。市場の時計は早い。",
        "один\nдва\nтри",
    ):
        assert len(list(tokenizer._blocks(text))) > 1
