from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kv.store.payload_buffer import PayloadBuffer


@given(pieces=st.lists(st.binary(max_size=50), max_size=6), spare=st.integers(0, 9))
def test_keeps_what_is_written(pieces: list[bytes], spare: int) -> None:
    whole = b"".join(pieces)
    buffer = PayloadBuffer(len(whole) + spare)
    assert [buffer.write(piece) for piece in pieces] == [len(piece) for piece in pieces]
    assert buffer.content == whole
    assert buffer.writable()


def test_keeps_a_copy() -> None:
    numbers = np.arange(4, dtype="<f4")
    before = numbers.tobytes()
    buffer = PayloadBuffer(16)
    assert buffer.write(numbers.data) == 16
    numbers[:] = 0
    assert buffer.content == before


def test_no_more_than_was_announced() -> None:
    buffer = PayloadBuffer(5)
    buffer.write(b"abc")
    with pytest.raises(ValueError, match="more than the 5 bytes"):
        buffer.write(b"def")
    assert buffer.content == b"abc"
