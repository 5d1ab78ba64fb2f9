from __future__ import annotations

import contextlib
import io
import struct
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import PayloadDamaged, PayloadError
from shared.kv.payload import PayloadLayout, SessionState, payload_size, read_payload, write_payload
from shared.model.known_shapes import FLASH, PRO
from tests.support.payload_states import TOY, layout_of, payload_of, random_state


def read(content: bytes, layout: PayloadLayout, payload_bytes: int | None = None) -> SessionState:
    return read_payload(io.BytesIO(content), len(content) if payload_bytes is None else payload_bytes, layout)


@pytest.mark.parametrize(
    ("tokens", "flash", "pro"),
    [
        (1, 12_811_664, 19_353_120),
        (512, 31_042_956, 45_305_372),
        (2048, 52_184_460, 75_564_572),
        (10240, 164_939_148, 236_946_972),
        (30720, 446_825_868, 640_402_972),
    ],
)
def test_size_of_the_real_models(tokens: int, flash: int, pro: int) -> None:
    assert payload_size(FLASH, tokens, 32768) == flash
    assert payload_size(PRO, tokens, 32768) == pro


def test_size_of_the_toy_shape() -> None:
    assert payload_size(TOY, 10, 2048) == 10964
    assert payload_size(TOY, 300, 2048) == 27020


def test_header_words_of_flash() -> None:
    file = io.BytesIO()
    layout = PayloadLayout(FLASH, 32768, 4352, 4096)
    with pytest.raises(ValueError, match="logits"):
        write_payload(file, SessionState([0] * 512, np.zeros(0, np.float32), []), layout)
    assert file.getvalue()[:52] == bytes.fromhex(
        "44535634 02000000 00800000 00100000 00110000 80000000 02200000"
        "00020000 2b000000 00020000 80000000 00f90100 80000000"
    )


@given(tokens=st.integers(1, 700), context=st.integers(701, 2048))
def test_round_trip(tokens: int, context: int) -> None:
    layout = layout_of(context=context)
    state = random_state(TOY, tokens)
    content = payload_of(state, layout)
    assert len(content) == payload_size(TOY, tokens, context)
    again = read(content, layout)
    assert again.tokens == state.tokens
    assert payload_of(again, layout) == content


def test_a_small_context_has_a_small_window() -> None:
    layout = layout_of(context=100, raw_capacity=100)
    state = random_state(TOY, 99, window=100)
    assert read(payload_of(state, layout), layout).layers[0].raw.shape == (99, 8)


def test_body_order() -> None:
    state = random_state(TOY, 6)
    content = payload_of(state, layout_of())
    head = struct.pack("<6I", *state.tokens) + state.logits.tobytes()
    head += struct.pack("<6I", 0, 1, 0, 0, 1, 0)
    assert content[52 : 52 + len(head)] == head
    window_only, ratio4, ratio128 = state.layers
    arrays = [window_only.raw]
    for layer in (ratio4, ratio128):
        arrays += [layer.raw, layer.compressed, layer.frontier_kv, layer.frontier_score]  # type: ignore[list-item]
        if layer is ratio4:
            arrays += [layer.index_rows, layer.index_frontier_kv, layer.index_frontier_score]  # type: ignore[list-item]
    assert content[52 + len(head) :] == b"".join(array.tobytes() for array in arrays)


def test_a_larger_context_may_load_and_a_larger_ring_does_not_matter() -> None:
    state = random_state(TOY, 300)
    content = payload_of(state, layout_of(context=512, raw_capacity=4352))
    assert read(content, layout_of(context=513, raw_capacity=128)).tokens == state.tokens


def test_scores_of_minus_infinity_become_the_written_value() -> None:
    state = random_state(TOY, 2)
    scores = state.layers[1].frontier_score
    assert scores is not None
    scores[:4] = -np.inf
    loaded = read(payload_of(state, layout_of()), layout_of()).layers[1].frontier_score
    assert loaded is not None
    assert (loaded[:4] == np.float32(-1e30)).all()
    content = bytearray(payload_of(state, layout_of()))
    at = content.index(np.full(4, -1e30, np.float32).tobytes())
    content[at : at + 4] = np.float32(-np.inf).tobytes()
    reread = read(bytes(content), layout_of()).layers[1].frontier_score
    assert reread is not None
    assert np.isfinite(reread).all()


HEADER_FAULTS = [
    (0, 0x34565345, PayloadDamaged, "does not begin like one"),
    (1, 1, PayloadError, "unsupported payload version"),
    (1, 3, PayloadError, "unsupported payload version"),
    (2, 2049, PayloadError, "does not fit the current context"),
    (2, 299, PayloadDamaged, "more than its own context"),
    (4, 0, PayloadDamaged, "no tokens"),
    (4, 127, PayloadDamaged, "window rows"),
    (5, 127, PayloadDamaged, "window rows"),
    (5, 129, PayloadDamaged, "window rows"),
    (6, 515, PayloadError, "larger compressed cache"),
    (6, 74, PayloadDamaged, "more compressed rows"),
    (7, 2048, PayloadError, "does not fit the current context"),
    (7, 2049, PayloadDamaged, "more than its own context"),
    (7, 2**32 - 1, PayloadDamaged, "more than its own context"),
    (7, 0, PayloadDamaged, "no tokens"),
    (7, 299, PayloadDamaged, "bytes too many"),
    (7, 301, PayloadDamaged, "cut off"),
    (8, 4, PayloadError, "another model layout"),
    (9, 16, PayloadError, "another model layout"),
    (10, 8, PayloadError, "another model layout"),
    (11, 2**31, PayloadError, "another model layout"),
    (12, 127, PayloadDamaged, "window rows"),
    (12, 129, PayloadDamaged, "window rows"),
]


@pytest.mark.parametrize(("word", "value", "kind", "message"), HEADER_FAULTS)
def test_refuses_a_wrong_header_word(word: int, value: int, kind: type[PayloadError], message: str) -> None:
    content = bytearray(payload_of(random_state(TOY, 300), layout_of()))
    struct.pack_into("<I", content, 4 * word, value)
    with pytest.raises(PayloadError, match=message) as caught:
        read(bytes(content), layout_of())
    assert type(caught.value) is kind


def test_a_session_that_only_does_not_fit_here_is_not_called_damaged() -> None:
    content = payload_of(random_state(TOY, 300), layout_of())
    wider = replace(TOY, head_dim=16)
    smaller_window = replace(TOY, window=64)
    for layout in (layout_of(context=300), layout_of(wider), layout_of(smaller_window)):
        with pytest.raises(PayloadError) as caught:
            read(content, layout)
        assert type(caught.value) is PayloadError


def test_refuses_a_session_without_tokens() -> None:
    content = bytearray(payload_of(random_state(TOY, 300), layout_of()))
    for word in (7, 12):
        struct.pack_into("<I", content, 4 * word, 0)
    with pytest.raises(PayloadDamaged, match="holds no tokens"):
        read(bytes(content), layout_of())


def test_a_ring_smaller_than_the_saved_window_is_refused() -> None:
    content = payload_of(random_state(TOY, 300), layout_of())
    with pytest.raises(PayloadError, match="128 window rows, this one 127") as caught:
        read(content, layout_of(raw_capacity=127))
    assert type(caught.value) is PayloadError


@pytest.mark.parametrize("entry", range(6))
def test_refuses_row_counts_that_do_not_follow_from_the_tokens(entry: int) -> None:
    content = bytearray(payload_of(random_state(TOY, 300), layout_of()))
    at = 52 + 4 * 300 + 4 * 16 + 4 * entry
    (count,) = struct.unpack_from("<I", content, at)
    for wrong in (count + 1, 2**32 - 1):
        struct.pack_into("<I", content, at, wrong)
        with pytest.raises(PayloadDamaged, match=r"bad (compressed|indexer) row count"):
            read(bytes(content), layout_of())


def test_refuses_a_token_outside_the_vocabulary() -> None:
    state = random_state(TOY, 20)
    state.tokens[7] = 16
    with pytest.raises(PayloadDamaged, match="outside the vocabulary"):
        read(payload_of(state, layout_of()), layout_of())


def test_refuses_trailing_bytes_and_leaves_trailers_unread() -> None:
    content = payload_of(random_state(TOY, 20), layout_of())
    with pytest.raises(PayloadDamaged, match="3 bytes too many"):
        read(content + b"abc", layout_of())
    file = io.BytesIO(content + b"abc")
    read_payload(file, len(content), layout_of())
    assert file.read() == b"abc"


@given(cut=st.integers(0, 27019))
def test_refuses_a_payload_cut_anywhere(cut: int) -> None:
    content = payload_of(random_state(TOY, 300), layout_of())
    with pytest.raises(PayloadDamaged, match="cut off"):
        read(content[:cut], layout_of())
    with pytest.raises(PayloadDamaged, match="cut off"):
        read(content[:cut], layout_of(), payload_bytes=len(content))


@given(noise=st.binary(max_size=400), at=st.integers(0, 1300))
def test_damage_never_raises_anything_else(noise: bytes, at: int) -> None:
    content = bytearray(payload_of(random_state(TOY, 300), layout_of()))
    content[at : at + len(noise)] = noise
    with contextlib.suppress(PayloadError):
        read(bytes(content), layout_of(), payload_bytes=27020)


class Counted(io.BytesIO):
    """Notes the largest piece that was asked for."""

    largest = 0

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        self.largest = max(self.largest, len(buffer))
        return super().readinto(buffer)


class ReadOnly:
    """A stream that only has `read`, and hands out little at a time."""

    def __init__(self, content: bytes) -> None:
        self._file = io.BytesIO(content)

    def read(self, size: int = -1) -> bytes:
        return self._file.read(min(size, 1000))


class Sized(Counted):
    """Claims to have `remaining` bytes more."""

    remaining = 0


def test_reads_in_bounded_pieces() -> None:
    shape = replace(TOY, vocabulary_size=3 << 20)
    layout = layout_of(shape)
    content = payload_of(random_state(shape, 5), layout)
    file = Counted(content)
    read_payload(file, len(content), layout)
    assert file.largest == 8 << 20


def test_reads_from_a_stream_that_hands_out_little_at_a_time() -> None:
    content = payload_of(random_state(TOY, 300), layout_of())
    state = read_payload(ReadOnly(content), len(content), layout_of())  # type: ignore[arg-type]
    assert payload_of(state, layout_of()) == content


def test_announced_sizes_are_not_allocated_before_the_bytes_are_there() -> None:
    """A file of 52 bytes that announces, in agreement with itself, a session of two million tokens."""
    shape = replace(TOY, head_dim=512)
    context = 1 << 21
    layout = layout_of(shape, context)
    words = [0x34565344, 2, context, 4096, 128, 128, context // 4 + 2, context - 1, 3, 512, 4, 16, 128]
    file = Sized(struct.pack("<13I", *words))
    file.remaining = 52
    announced = payload_size(shape, context - 1, context)
    assert announced > 1 << 30
    tracemalloc.start()
    try:
        with pytest.raises(PayloadDamaged, match="cut off"):
            read_payload(file, announced, layout)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_writes_views_and_not_copies() -> None:
    class Views:
        """Keeps what it is given."""

        def __init__(self) -> None:
            self.given: list[memoryview] = []

        def write(self, content: memoryview) -> None:
            self.given.append(content)

    state, file = random_state(TOY, 300), Views()
    write_payload(file, state, layout_of())  # type: ignore[arg-type]
    compressed = state.layers[1].compressed
    assert compressed is not None
    assert any(np.shares_memory(np.asarray(view), compressed) for view in file.given)


def test_writing_a_state_of_the_wrong_shape_is_refused() -> None:
    state = random_state(TOY, 20)
    state.layers[1].compressed = None
    with pytest.raises(ValueError, match="layer 1: compressed is not 5 x 8"):
        payload_of(state, layout_of())
