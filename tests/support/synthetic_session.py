"""Sessions whose whole state follows from their tokens by one rule, for tests and benches of stores.

Whoever holds such a session can say, number by number, whether it is what its tokens call for. There is no
model behind it: it can be set, saved and loaded, not continued. One token is one byte of text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from shared.errors import SessionInvalid
from shared.kv.payload import (
    LayerState,
    PayloadLayout,
    SessionState,
    payload_size,
    read_payload,
    write_payload,
)
from shared.model.shape import ModelShape
from tests.support.payload_states import layers_of
from tests.support.shapes import toy_shape

SMALL = toy_shape(vocabulary_size=256, head_dim=64, index_dim=16, compress_ratios=(0, 4, 128))


def text_of(tokens: Sequence[int]) -> bytes:
    """The bytes that tokens render to."""
    return bytes(tokens)


def state_of(tokens: Sequence[int], shape: ModelShape, context: int) -> SessionState:
    """The state that belongs to `tokens`: any other token anywhere gives other numbers everywhere."""
    digest = hashlib.sha256(repr(list(tokens)).encode()).digest()
    source = np.random.Generator(np.random.SFC64(int.from_bytes(digest, "little")))

    def rows(height: int, columns: int) -> npt.NDArray[np.float32]:
        return source.random((height, columns), np.float32)

    logits = rows(1, shape.vocabulary_size)[0]
    layers = layers_of(shape, len(tokens), min(shape.window, context), rows)
    return SessionState(list(tokens), logits, layers)


class SyntheticSession:
    """The part of `shared.session.Session` that a store uses."""

    def __init__(self, context: int = 512, shape: ModelShape = SMALL) -> None:
        self.context = context
        self.shape = shape
        self._layout = PayloadLayout(shape, context, min(context, shape.window), context)
        self._state: SessionState | None = None

    @property
    def state(self) -> SessionState:
        if self._state is None:
            raise SessionInvalid("the session holds nothing")
        return self._state

    @property
    def tokens(self) -> list[int]:
        return [] if self._state is None else list(self._state.tokens)

    @property
    def position(self) -> int:
        return 0 if self._state is None else len(self._state.tokens)

    def become(self, tokens: Sequence[int]) -> SyntheticSession:
        """Take the state that belongs to `tokens`."""
        self._state = state_of(tokens, self.shape, self.context)
        return self

    def is_genuine(self) -> bool:
        """Whether every number is what the tokens call for."""
        expected = state_of(self.tokens, self.shape, self.context)
        return _arrays_equal(self.state, expected)

    def logits(self) -> npt.NDArray[np.float32]:
        return self.state.logits.copy()

    def payload_bytes(self) -> int:
        return payload_size(self.shape, self.position, self.context)

    def save(self, file: BinaryIO) -> int:
        return write_payload(file, self.state, self._layout)

    def load(self, file: BinaryIO, payload_bytes: int) -> None:
        self._state = None
        self._state = read_payload(file, payload_bytes, self._layout)

    def invalidate(self) -> None:
        self._state = None


def _arrays_equal(a: SessionState, b: SessionState) -> bool:
    fields = LayerState.__slots__
    return np.array_equal(a.logits, b.logits) and all(
        np.array_equal(getattr(x, field), getattr(y, field))
        for x, y in zip(a.layers, b.layers, strict=True)
        for field in fields
        if getattr(x, field) is not None or getattr(y, field) is not None
    )
