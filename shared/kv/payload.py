"""The payload codec: a session's state as the bytes that cache files and snapshots hold.

Byte-compatible with the C engine's DSV4 version 2 payload, in both directions. Everything is little endian;
every count is checked before anything is allocated from it. Spec: kv §2. What no session could load is
PayloadDamaged, what only this one cannot is a plain PayloadError.
Must not know: file headers, stores, policies, backends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from shared.errors import PayloadDamaged, PayloadError
from shared.kv.payload_reader import PayloadReader, bytes_of
from shared.model.shape import ModelShape

Array = npt.NDArray[np.float32]

MAGIC = 0x34565344
VERSION = 2
HEADER_WORDS = 13
# The score of "no such row" in a frontier; files of other writers may hold minus infinity instead.
NO_SCORE = np.float32(-1e30)


@dataclass(slots=True)
class LayerState:
    """What one layer remembers, all float32. Tensors that the layer's ratio does not have are None.

    D is the head dim, I the indexer dim, r the compression ratio, k = 2 for r = 4, else 1.
    """

    raw: Array  # [R, D], the last rows of the window, oldest first
    compressed: Array | None = None  # [C, D]
    frontier_kv: Array | None = None  # [k*r, k*D]
    frontier_score: Array | None = None  # [k*r, k*D]
    index_rows: Array | None = None  # [C, I], ratio 4 only
    index_frontier_kv: Array | None = None  # [8, 2*I], ratio 4 only
    index_frontier_score: Array | None = None  # [8, 2*I], ratio 4 only


@dataclass(slots=True)
class SessionState:
    """A whole timeline: its tokens, the logits float32 [V] after the last one, and every layer's state."""

    tokens: list[int]
    logits: Array
    layers: list[LayerState]


@dataclass(frozen=True, slots=True)
class PayloadLayout:
    """The session that writes or reads: sizes in tokens and rows."""

    shape: ModelShape
    context: int
    raw_capacity: int
    prefill_chunk: int

    @property
    def window(self) -> int:
        return _window(self.shape, self.context)

    @property
    def compressed_capacity(self) -> int:
        return self.context // 4 + 2


class Widths(Protocol):
    """How wide a layer's tensors are, as a `ModelShape` or a payload tells it."""

    @property
    def head_dim(self) -> int: ...

    @property
    def index_dim(self) -> int: ...


class _Section(NamedTuple):
    field: str
    rows: int
    columns: int


def payload_size(shape: ModelShape, tokens: int, context: int) -> int:
    """Bytes of the payload of `tokens` evaluated tokens in a session of `context`. Spec: kv §2.3."""
    window = _window(shape, context)
    floats = sum(layer_floats(shape, ratio, tokens, window) for ratio in shape.compress_ratios)
    counts = 2 * shape.layer_count
    return 4 * (HEADER_WORDS + tokens + shape.vocabulary_size + counts + floats)


def layer_floats(widths: Widths, ratio: int, tokens: int, window: int) -> int:
    """Numbers in all tensors of a layer after `tokens` tokens."""
    return sum(section.rows * section.columns for section in _sections(widths, ratio, tokens, window))


def compressed_rows(ratio: int, tokens: int) -> int:
    """Compressed rows of a layer after `tokens` tokens."""
    return tokens // ratio if ratio else 0


def index_rows(ratio: int, tokens: int) -> int:
    """Indexer rows of a layer after `tokens` tokens."""
    return tokens // 4 if ratio == 4 else 0


def mark_size(shape: ModelShape, context: int) -> int:
    """Bytes of a `shared.session.Mark` in a session of `context` tokens whose window is full: of a payload
    all that later tokens overwrite, which is the logits, the windows and the frontiers."""
    window = _window(shape, context)
    floats = sum(
        section.rows * section.columns
        for ratio in shape.compress_ratios
        for section in _sections(shape, ratio, window, window)
        if section.field not in ("compressed", "index_rows")
    )
    return 4 * (shape.vocabulary_size + floats)


def write_payload(file: BinaryIO, state: SessionState, layout: PayloadLayout) -> int:
    """Write `state` and return the bytes written (always `payload_size`).

    `file.write` is given views of the state's own arrays, which are only good during the call. Raises
    ValueError when an array of `state` does not have the shape that its tokens call for.
    """
    shape, tokens = layout.shape, len(state.tokens)
    written = 0

    def put(values: npt.ArrayLike, kind: str) -> None:
        nonlocal written
        content = np.ascontiguousarray(values, dtype=kind)
        file.write(bytes_of(content))
        written += content.nbytes

    put(_header(layout, tokens), "<u4")
    put(state.tokens, "<u4")
    if state.logits.shape != (shape.vocabulary_size,):
        raise ValueError(f"logits have the shape {state.logits.shape}, not ({shape.vocabulary_size},)")
    put(state.logits, "<f4")
    put([compressed_rows(ratio, tokens) for ratio in shape.compress_ratios], "<u4")
    put([index_rows(ratio, tokens) for ratio in shape.compress_ratios], "<u4")
    for index, (ratio, layer) in enumerate(zip(shape.compress_ratios, state.layers, strict=True)):
        for section in _sections(shape, ratio, tokens, layout.window):
            rows = getattr(layer, section.field)
            if rows is None or rows.shape != (section.rows, section.columns):
                raise ValueError(f"layer {index}: {section.field} is not {section.rows} x {section.columns}")
            put(_with_finite_scores(section.field, rows), "<f4")
    return written


def read_payload(file: BinaryIO, payload_bytes: int, layout: PayloadLayout) -> SessionState:
    """Read a payload of exactly `payload_bytes` for a session of `layout`.

    Raises PayloadDamaged for what fits no session and PayloadError for what does not fit this one; the file
    position is then undefined. Every count is checked before it is allocated from, and nothing is allocated
    beyond the announced size, nor beyond what a `SizedStream` still has. Spec: kv §2.4.
    """
    shape, reader = layout.shape, PayloadReader(file, payload_bytes)
    tokens = _check_header([int(word) for word in reader.words(HEADER_WORDS)], layout)
    expected = payload_size(shape, tokens, layout.context)
    if payload_bytes > expected:
        raise PayloadDamaged(
            f"the saved session has {payload_bytes - expected} bytes too many: the file is damaged"
        )
    reader.require(expected - 4 * HEADER_WORDS)
    ids = reader.words(tokens)
    if ids.size and int(ids.max()) >= shape.vocabulary_size:
        raise PayloadDamaged("the saved session is damaged: it holds a token outside the vocabulary")
    logits = reader.floats(shape.vocabulary_size)
    _check_counts("compressed", reader.words(shape.layer_count), compressed_rows, tokens, layout)
    _check_counts("indexer", reader.words(shape.layer_count), index_rows, tokens, layout)
    return SessionState(ids.tolist(), logits, _read_layers(reader, layout, tokens))


def _read_layers(reader: PayloadReader, layout: PayloadLayout, tokens: int) -> list[LayerState]:
    # One array for all, of which the tensors are parts: new memory costs much less in one large piece.
    values, start = reader.floats(reader.remaining // 4), 0
    layers = []
    for ratio in layout.shape.compress_ratios:
        parts = {}
        for section in _sections(layout.shape, ratio, tokens, layout.window):
            end = start + section.rows * section.columns
            rows = values[start:end].reshape(section.rows, section.columns)
            parts[section.field] = _with_finite_scores(section.field, rows)
            start = end
        layers.append(LayerState(**parts))
    return layers


def _window(shape: ModelShape, context: int) -> int:
    return max(1, min(shape.window, context))


def _sections(widths: Widths, ratio: int, tokens: int, window: int) -> Iterator[_Section]:
    """The tensors of a layer in file order."""
    width, index_width = widths.head_dim, widths.index_dim
    yield _Section("raw", min(tokens, window), width)
    if not ratio:
        return
    halves = 2 if ratio == 4 else 1
    yield _Section("compressed", compressed_rows(ratio, tokens), width)
    yield _Section("frontier_kv", halves * ratio, halves * width)
    yield _Section("frontier_score", halves * ratio, halves * width)
    if ratio == 4:
        yield _Section("index_rows", index_rows(ratio, tokens), index_width)
        yield _Section("index_frontier_kv", 8, 2 * index_width)
        yield _Section("index_frontier_score", 8, 2 * index_width)


def _with_finite_scores(field: str, rows: Array) -> Array:
    if not field.endswith("_score"):
        return rows
    lost = rows == -np.inf
    return np.where(lost, NO_SCORE, rows) if lost.any() else rows


def _header(layout: PayloadLayout, tokens: int) -> list[int]:
    shape = layout.shape
    return [
        MAGIC,
        VERSION,
        layout.context,
        layout.prefill_chunk,
        layout.raw_capacity,
        layout.window,
        layout.compressed_capacity,
        tokens,
        shape.layer_count,
        shape.head_dim,
        shape.index_dim,
        shape.vocabulary_size,
        min(tokens, layout.window),
    ]


def _check_header(words: list[int], layout: PayloadLayout) -> int:
    """The token count, after every header word was found to fit this session."""
    magic, version, context, _, raw_capacity, window, compressed_capacity, tokens, *sizes, raw_rows = words
    shape = layout.shape
    if magic != MAGIC:
        raise PayloadDamaged("the saved session is damaged: it does not begin like one")
    if version != VERSION:
        raise PayloadError(f"unsupported payload version {version}: only version {VERSION} can be resumed")
    if sizes != [shape.layer_count, shape.head_dim, shape.index_dim, shape.vocabulary_size]:
        raise PayloadError("the saved session was written for another model layout")
    if tokens == 0 or tokens > context or raw_capacity == 0:
        raise PayloadDamaged("the saved session is damaged: it holds no tokens, or more than its own context")
    if raw_rows != min(tokens, window) or raw_rows > raw_capacity:
        raise PayloadDamaged("the saved session is damaged: its window rows do not fit its token count")
    rows = max(compressed_rows(ratio, tokens) for ratio in shape.compress_ratios)
    if rows > compressed_capacity:
        raise PayloadDamaged("the saved session is damaged: it holds more compressed rows than its own cache")
    if context > layout.context or tokens >= layout.context:
        raise PayloadError(
            f"the saved session ({tokens} tokens, context {context}) does not fit the current context of "
            f"{layout.context}: raise --ctx"
        )
    if window != layout.window:
        raise PayloadError(f"the saved session has a window of {window} rows, this one {layout.window}")
    if raw_rows > layout.raw_capacity:
        raise PayloadError(f"the saved session has {raw_rows} window rows, this one {layout.raw_capacity}")
    if compressed_capacity > layout.compressed_capacity:
        raise PayloadError("the saved session has a larger compressed cache than this context: raise --ctx")
    return tokens


def _check_counts(
    kind: str,
    counts: npt.NDArray[np.uint32],
    rows: Callable[[int, int], int],
    tokens: int,
    layout: PayloadLayout,
) -> None:
    expected = [rows(ratio, tokens) for ratio in layout.shape.compress_ratios]
    if counts.tolist() != expected:
        raise PayloadDamaged(f"the saved session is damaged: bad {kind} row count")
