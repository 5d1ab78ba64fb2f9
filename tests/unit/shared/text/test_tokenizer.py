"""Byte exactness, segments, and refusal of unusable vocabularies."""

from __future__ import annotations

from functools import cache
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import ModelFileError
from shared.text import marks
from shared.text import tokenizer as tokenizer_module
from shared.text.byte_alphabet import ALPHABET, spell, unspell
from shared.text.segments import Segment, SegmentKind, cut, join
from shared.text.tokenizer import Tokenizer
from shared.text.utf8 import to_bytes
from tests.support.golden import tiny_q2
from tests.support.vocabularies import gguf_vocabulary, v4_tokenizer

_BYTES_AND_MARKS = st.lists(
    st.sampled_from([*map(to_bytes, marks.ALL), "｜".encode(), b"<", b"a", b"\n"]) | st.binary(max_size=6),
    max_size=8,
).map(b"".join)
_SEGMENTS = st.lists(st.builds(Segment, _BYTES_AND_MARKS, st.sampled_from(SegmentKind)), max_size=6)

CONTROL, TEXT, EXACT = SegmentKind.CONTROL, SegmentKind.TEXT, SegmentKind.EXACT


@cache
def reminded_tokenizer() -> Tokenizer:
    """The small vocabulary with the reminder mark behind it."""
    tokens, merges = gguf_vocabulary(tiny_q2())
    return Tokenizer.from_vocabulary([*tokens, marks.REMINDER], merges)


def control_ids(tokens: list[int]) -> list[int]:
    """The ids among `tokens` that are control tokens."""
    known = reminded_tokenizer()
    return [token for token in tokens if known.piece(token) in (*marks.REQUIRED, marks.REMINDER)]


def test_a_token_is_spelt_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Tokenizer.from_vocabulary(*gguf_vocabulary(tiny_q2()))
    tokens = known.encode_text("one word, one more word, one more")
    strange = [-1, known.vocabulary_size, 2**40]
    text = b"".join(known.token_bytes(token) for token in tokens)
    assert known.decode(tokens) == known.decode([*tokens, *strange]) == text

    def refuse(spelling: str) -> NoReturn:
        raise AssertionError(f"{spelling!r} is spelt out once more")

    monkeypatch.setattr(tokenizer_module, "unspell", refuse)
    assert known.decode(tokens * 3 + strange) == text * 3
    assert len(known._known) == len(set(tokens))


@given(data=_BYTES_AND_MARKS)
def test_decode_gives_back_any_bytes(data: bytes) -> None:
    for known in (reminded_tokenizer(), v4_tokenizer()):
        assert known.decode(known.encode_text(data)) == data
        assert known.decode(known.encode_rendered(data)) == data


def test_invalid_bytes_are_byte_tokens_between_whole_spans() -> None:
    known = reminded_tokenizer()
    letter = {byte: known.encode_text(bytes([byte]))[0] for byte in (0xFF, 0xE4, 0x80)}
    hello = known.encode_text("Hello")
    assert known.encode_text(b"Hello\xff\x80Hello\xe4") == [
        *hello,
        letter[0xFF],
        letter[0x80],
        *hello,
        letter[0xE4],
    ]


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\udfff", "\ufffd"),
        ("\ud83e\udd8a", "🦊"),
        ("\udd8a\ud83e", "\ufffd\ufffd"),
        ("é", "é"),
    ],
)
def test_lone_surrogates_become_the_replacement_character(text: str, data: str) -> None:
    assert to_bytes(text) == data.encode()
    assert reminded_tokenizer().encode_text(text) == reminded_tokenizer().encode_text(data)


def test_text_mode_knows_no_control_token() -> None:
    for mark in marks.ALL:
        assert control_ids(reminded_tokenizer().encode_text(f"a{mark}b")) == []


def test_rendered_mode_knows_exactly_the_seven() -> None:
    known = reminded_tokenizer()
    assert known.specials.reminder is not None
    for mark in marks.ALL:
        found = control_ids(known.encode_rendered(f"a{mark}b"))
        assert [known.piece(token) for token in found] == ([mark] if mark in marks.REQUIRED else [])


@pytest.mark.parametrize("mark", [*marks.REQUIRED, marks.REMINDER])
def test_a_control_string_counts_only_inside_one_segment_of_ours(mark: str) -> None:
    known = reminded_tokenizer()
    data = mark.encode()
    for kind in (CONTROL, EXACT):
        assert [known.piece(token) for token in known.encode_segments([Segment(data, kind)])] == [mark]
        for at in range(1, len(data)):
            halves = [Segment(data[:at], CONTROL), Segment(data[at:], kind)]
            assert known.encode_segments(halves) == known.encode_text(mark)
    assert known.encode_segments([Segment(data, TEXT)]) == known.encode_text(mark)


def test_a_border_never_cuts_a_token() -> None:
    known = v4_tokenizer()
    whole = "Hello, world!\n 12345"
    for at in range(len(whole)):
        for kind in SegmentKind:
            pieces = [Segment(whole[:at].encode(), kind), Segment(whole[at:].encode(), TEXT)]
            assert known.encode_segments(pieces) == known.encode_text(whole)


@given(segments=_SEGMENTS)
def test_segments_keep_their_bytes_and_client_text_its_harmlessness(segments: list[Segment]) -> None:
    known = reminded_tokenizer()
    tokens = known.encode_segments(segments)
    assert known.decode(tokens) == join(segments)
    ours = [known.encode_segments([segment]) for segment in segments if segment.kind is not TEXT]
    assert control_ids(tokens) == [token for part in ours for token in control_ids(part)]


@given(data=_BYTES_AND_MARKS)
def test_one_control_segment_is_rendered_mode(data: bytes) -> None:
    data = data.replace(marks.REMINDER.encode(), b"")
    known = reminded_tokenizer()
    assert known.encode_segments([Segment(data, CONTROL)]) == known.encode_rendered(data)


@given(segments=_SEGMENTS, offset=st.integers(0, 80))
def test_cut_is_a_suffix_of_bytes_and_kinds(segments: list[Segment], offset: int) -> None:
    def origins(pieces: list[Segment]) -> list[tuple[int, SegmentKind]]:
        return [(byte, piece.kind) for piece in pieces for byte in piece.data]

    rest = cut(segments, offset)
    assert origins(rest) == origins(segments)[offset:]
    assert all(piece.data for piece in rest)


def test_the_alphabet() -> None:
    assert len(set(ALPHABET)) == 256
    assert (ALPHABET[0], ALPHABET[32], ALPHABET[33], ALPHABET[173], ALPHABET[255]) == (
        "Ā",
        "Ġ",
        "!",
        "Ń",
        "ÿ",
    )
    assert unspell(spell(bytes(range(256)))) == bytes(range(256))
    assert unspell("a b\u00adĠ中") == b"ab "


def test_unknown_ids_are_empty() -> None:
    known = reminded_tokenizer()
    for token in (-1, known.vocabulary_size, 10**9):
        assert known.token_bytes(token) == b""
        assert known.piece(token) == ""


@pytest.mark.parametrize("text", [" ", "a", "\n", "7", "中", "\u0301", "-", " \n"])
def test_a_long_run_of_one_character(text: str) -> None:
    text = text * 200_000
    assert v4_tokenizer().decode(v4_tokenizer().encode_text(text)) == text.encode()


def vocabulary() -> list[str]:
    """The smallest one: the bytes and the required control strings."""
    return [*ALPHABET, *marks.REQUIRED]


def test_the_smallest_vocabulary_is_one_token_a_byte() -> None:
    known = Tokenizer.from_vocabulary(vocabulary(), [])
    assert known.specials.reminder is None
    assert known.encode_text("hé") == list("hé".encode())
    assert known.encode_segments([Segment(marks.REMINDER.encode(), CONTROL)]) == list(marks.REMINDER.encode())


@pytest.mark.parametrize("missing", [*marks.REQUIRED, "a", "Ġ"])
def test_a_vocabulary_without_a_needed_token_is_refused(missing: str) -> None:
    tokens = [token for token in vocabulary() if token not in (missing, marks.EOS)]
    with pytest.raises(ModelFileError, match="the vocabulary lacks") as refusal:
        Tokenizer.from_vocabulary(tokens, [])
    assert len(refusal.value.problems) == len({missing, marks.EOS})


@pytest.mark.parametrize("merge", ["ab", "a b", "", " ", "ab c", "a b c"])
def test_a_merge_outside_the_vocabulary_is_refused(merge: str) -> None:
    with pytest.raises(ModelFileError, match="merge 0"):
        Tokenizer.from_vocabulary(vocabulary(), [merge])


def test_wrong_merges_are_not_listed_without_end() -> None:
    with pytest.raises(ModelFileError, match="99 more problems") as refusal:
        Tokenizer.from_vocabulary(vocabulary(), ["a b"] * 1000)
    assert len(refusal.value.problems) == 100


def test_a_vocabulary_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(ModelFileError, match="not UTF-8"):
        Tokenizer.from_vocabulary([*vocabulary(), "\ud800"], [])


def test_the_first_of_equal_tokens_counts() -> None:
    known = Tokenizer.from_vocabulary([*vocabulary(), "a", marks.USER], [])
    assert known.encode_rendered(f"a{marks.USER}") == [ord("a"), 256 + marks.REQUIRED.index(marks.USER)]
