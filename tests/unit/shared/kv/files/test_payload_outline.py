"""What can be told of a payload without its model, and what is noticed to be wrong with it."""

from __future__ import annotations

import contextlib
import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import PayloadDamaged, PayloadError
from shared.kv.files.payload_outline import PayloadOutline, read_outline
from shared.kv.payload import payload_size
from shared.model.known_shapes import FLASH, PRO
from shared.model.shape import ModelShape
from tests.support.cache_builder import zero_payload
from tests.support.cache_files import cache_file

RATIOS = st.lists(st.sampled_from((0, 4, 128)), min_size=1, max_size=6)


def outline(content: bytes) -> PayloadOutline:
    return read_outline(io.BytesIO(content), len(content))


def with_word(content: bytes, index: int, value: int) -> bytes:
    return content[: 4 * index] + struct.pack("<I", value) + content[4 * index + 4 :]


class Announced(io.BytesIO):
    """Bytes before the tensors only, as they are read of a file of any size."""


def announced(shape: ModelShape, tokens: int) -> tuple[Announced, int]:
    words = [0x34565344, 2, 32768, 4096, 4352, 128, 8194, tokens, shape.layer_count, shape.head_dim]
    words += [
        shape.index_dim,
        shape.vocabulary_size,
        min(tokens, 128),
        *[0] * (tokens + shape.vocabulary_size),
    ]
    words += [tokens // ratio if ratio else 0 for ratio in shape.compress_ratios]
    words += [tokens // 4 if ratio == 4 else 0 for ratio in shape.compress_ratios]
    return Announced(struct.pack(f"<{len(words)}I", *words)), payload_size(shape, tokens, 32768)


@pytest.mark.parametrize(("reason", "tokens"), [("cold", 672), ("shutdown", 746)])
def test_files_of_the_c_engine(reason: str, tokens: int) -> None:
    golden = cache_file(reason)
    found = outline(golden.payload)
    assert [getattr(found.words, name) for name in found.words.__slots__] == golden.header_words
    assert found.words.tokens == len(found.tokens) == tokens
    assert [layer.ratio for layer in found.layers] == [0, 0, 4, 128, 4, 128]
    assert [layer.compressed_rows for layer in found.layers] == [0, 0, tokens // 4, 5, tokens // 4, 5]
    assert found.untold_layers == 0


@pytest.mark.parametrize("shape", [FLASH, PRO])
@pytest.mark.parametrize("tokens", [1, 3, 4, 127, 128, 1000])
def test_ratios_of_the_published_models(shape: ModelShape, tokens: int) -> None:
    found = read_outline(*announced(shape, tokens))
    told = [layer.ratio for layer in found.layers]
    assert all(ratio in (None, real) for ratio, real in zip(told, shape.compress_ratios, strict=True))
    if tokens >= 128:
        assert tuple(told) == shape.compress_ratios


@given(tokens=st.integers(1, 600), ratios=RATIOS)
def test_any_whole_payload_is_accepted(tokens: int, ratios: list[int]) -> None:
    found = outline(zero_payload(tokens, ratios))
    assert all(layer.ratio in (None, ratio) for layer, ratio in zip(found.layers, ratios, strict=True))
    if tokens >= 128:
        assert found.untold_layers == 0
    elif tokens >= 4:
        assert all(layer.ratio == 4 for layer, ratio in zip(found.layers, ratios, strict=True) if ratio == 4)


@given(tokens=st.integers(1, 600), ratios=RATIOS, data=st.data())
def test_any_cut_is_noticed(tokens: int, ratios: list[int], data: st.DataObject) -> None:
    content = zero_payload(tokens, ratios)
    # Below four tokens a compressor's size is a multiple of another one's: whole layers can go unnoticed.
    most = len(content) - 1 if tokens >= 128 else min(len(content) - 1, 255)
    lost = data.draw(st.integers(1, most))
    with pytest.raises(PayloadDamaged):
        outline(content[: len(content) - lost])


@given(position=st.integers(0, 51), value=st.integers(0, 255))
def test_no_header_byte_makes_it_fail_otherwise(position: int, value: int) -> None:
    content = bytearray(zero_payload(200))
    content[position] = value
    with contextlib.suppress(PayloadError):
        outline(bytes(content))


@pytest.mark.parametrize(
    ("word", "value", "message"),
    [
        (2, 199, "200 tokens do not fit its context of 199"),
        (4, 127, "128 window rows in a ring of 127"),
        (6, 49, "layer 1 has 50 compressed and 50 indexer rows, which no ratio gives at 200 tokens"),
        (7, 0, "the word tokens is 0"),
        (7, 1 << 31, "tokens do not fit"),
        (8, 4096, "its words call for"),
        (8, 4097, "no model has 4097 layers"),
        (9, 9, "its row counts call for another size: 2892 bytes missing"),
        (11, 15, "token 15 lies outside the vocabulary of 15"),
        (12, 127, "127 window rows, but 200 tokens and a window of 128"),
    ],
)
def test_words_that_cannot_be_right(word: int, value: int, message: str) -> None:
    with pytest.raises(PayloadDamaged, match=message):
        outline(with_word(zero_payload(200), word, value))


@pytest.mark.parametrize(("count", "value"), [(0, 1), (1, 49), (2, 0), (3, 1), (4, 0), (5, 1)])
def test_row_counts_that_cannot_be_right(count: int, value: int) -> None:
    content = with_word(zero_payload(200), 13 + 200 + 16 + count, value)
    with pytest.raises(PayloadDamaged):
        outline(content)


def test_bytes_too_many_are_counted() -> None:
    with pytest.raises(PayloadDamaged, match="7 bytes too many"):
        outline(zero_payload(200) + bytes(7))
    with pytest.raises(PayloadDamaged, match="fit no choice of ratios"):
        outline(zero_payload(10) + bytes(4))


@pytest.mark.parametrize(("word", "value"), [(0, 0x4C565344), (1, 1), (1, 3)])
def test_other_versions_are_foreign_and_not_damaged(word: int, value: int) -> None:
    with pytest.raises(PayloadError) as caught:
        outline(with_word(zero_payload(200), word, value))
    assert not isinstance(caught.value, PayloadDamaged)


def test_no_declared_size_is_allocated() -> None:
    content = with_word(with_word(zero_payload(200), 11, 0xFFFFFFFF), 2, 0xFFFFFFFF)
    for word in (7, 8, 11):
        with pytest.raises(PayloadDamaged):
            read_outline(io.BytesIO(with_word(content, word, 0xFFFFFFF0)), 1 << 50)


def test_layers_of_one_kind_are_told_by_the_size() -> None:
    """Ten tokens give no row of ratio 128, but the frontiers still take their place."""
    assert [layer.ratio for layer in outline(zero_payload(10, (4, 128, 128))).layers] == [4, 128, 128]
    assert [layer.ratio for layer in outline(zero_payload(10, (0, 4, 0))).layers] == [0, 4, 0]
    mixed = outline(zero_payload(10, (0, 4, 128)))
    assert [layer.ratio for layer in mixed.layers] == [None, 4, None]
    assert mixed.untold_layers == 2
