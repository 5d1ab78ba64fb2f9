"""What a payload says about itself, read without a model: its words, token ids and row counts.

A payload holds no list of ratios: they follow from the row counts once there are enough tokens, and from the
total size before that, as far as it allows. Reads up to the first tensor and never more than what the checked
lengths call for. Spec: kv §2.
Must not know: models, cache files, sessions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import starmap
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from shared.errors import PayloadDamaged, PayloadError
from shared.kv.payload import HEADER_WORDS, MAGIC, VERSION, compressed_rows, index_rows, layer_floats

RATIOS = (0, 4, 128)
_MOST_LAYERS = 4096
_CHUNK = 1 << 20


class Readable(Protocol):
    """What a payload is read from."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class PayloadWords:
    """The payload's first words, in file order; sizes are counts of tokens, rows or floats. Spec: kv §2.1."""

    magic: int
    version: int
    context: int
    prefill_chunk: int
    raw_capacity: int
    window: int
    compressed_capacity: int
    tokens: int
    layers: int
    head_dim: int
    index_dim: int
    vocabulary: int
    raw_rows: int


class LayerRows(NamedTuple):
    """One layer: its rows, and the compression ratio where that can be told (None where it cannot)."""

    ratio: int | None
    compressed_rows: int
    index_rows: int


@dataclass(frozen=True, slots=True)
class PayloadOutline:
    """All that stands before the tensors; `tensor_bytes` follow."""

    words: PayloadWords
    tokens: npt.NDArray[np.uint32]
    layers: tuple[LayerRows, ...]
    tensor_bytes: int

    @property
    def untold_layers(self) -> int:
        """Layers whose ratio the file does not tell: its token count is too small."""
        return sum(layer.ratio is None for layer in self.layers)


def read_outline(file: Readable, payload_bytes: int) -> PayloadOutline:
    """Read the outline of a payload of `payload_bytes`; `file` then stands at the first tensor.

    Raises PayloadDamaged when the bytes contradict each other, and plain PayloadError when they are no
    payload of a version that is known.
    """
    words = _read_words(file, payload_bytes)
    tokens = _integers(file, words.tokens)
    if tokens.size and int(tokens.max()) >= words.vocabulary:
        raise PayloadDamaged(f"token {int(tokens.max())} lies outside the vocabulary of {words.vocabulary}")
    _skip(file, 4 * words.vocabulary)
    compressed = _integers(file, words.layers).tolist()
    index = _integers(file, words.layers).tolist()
    tensor_bytes = payload_bytes - _bytes_before_tensors(words)
    ratios = [
        _told_ratio(layer, words, rows, indexed)
        for layer, (rows, indexed) in enumerate(zip(compressed, index, strict=True))
    ]
    told = _complete_by_size(ratios, words, tensor_bytes)
    layers = tuple(starmap(LayerRows, zip(told, compressed, index, strict=True)))
    return PayloadOutline(words, tokens, layers, tensor_bytes)


def _read_words(file: Readable, payload_bytes: int) -> PayloadWords:
    if payload_bytes < 4 * HEADER_WORDS:
        raise PayloadDamaged(f"it takes at least {4 * HEADER_WORDS} bytes, not {payload_bytes}")
    words = PayloadWords(*_integers(file, HEADER_WORDS).tolist())
    if words.magic != MAGIC:
        raise PayloadError("it does not start with the letters DSV4")
    if words.version != VERSION:
        raise PayloadError(f"it has version {words.version}: only version {VERSION} is known")
    if problem := next(_problems(words), None):
        raise PayloadDamaged(problem)
    needed = _bytes_before_tensors(words)
    if needed > payload_bytes:
        raise PayloadDamaged(f"its words call for {needed} bytes before the tensors, it has {payload_bytes}")
    return words


def _problems(words: PayloadWords) -> Iterator[str]:
    """What cannot be right in any session."""
    for name in ("context", "window", "tokens", "layers", "head_dim", "vocabulary"):
        if getattr(words, name) == 0:
            yield f"the word {name} is 0"
    if words.layers > _MOST_LAYERS:
        yield f"no model has {words.layers} layers"
    if words.tokens > words.context:
        yield f"{words.tokens} tokens do not fit its context of {words.context}"
    if words.raw_rows != min(words.tokens, words.window):
        yield f"{words.raw_rows} window rows, but {words.tokens} tokens and a window of {words.window}"
    if words.raw_rows > words.raw_capacity:
        yield f"{words.raw_rows} window rows in a ring of {words.raw_capacity}"


def _bytes_before_tensors(words: PayloadWords) -> int:
    return 4 * (HEADER_WORDS + words.tokens + words.vocabulary + 2 * words.layers)


def _told_ratio(layer: int, words: PayloadWords, compressed: int, index: int) -> int | None:
    """The ratio that these counts of a layer can only come from, or None where several fit."""
    tokens = words.tokens
    fitting = [
        ratio
        for ratio in RATIOS
        if (compressed, index) == (compressed_rows(ratio, tokens), index_rows(ratio, tokens))
    ]
    if not fitting or compressed > words.compressed_capacity:
        raise PayloadDamaged(
            f"layer {layer} has {compressed} compressed and {index} indexer rows, which no ratio gives "
            f"at {tokens} tokens"
        )
    return fitting[0] if len(fitting) == 1 else None


def _complete_by_size(ratios: list[int | None], words: PayloadWords, tensor_bytes: int) -> list[int | None]:
    """`ratios`, all filled in where the size leaves one way only. Raises PayloadDamaged if it leaves none."""
    least = sum(_layer_bytes(ratio or 0, words) for ratio in ratios)
    spare, untold = tensor_bytes - least, ratios.count(None)
    if not untold:
        if spare:
            many = "too many" if spare > 0 else "missing"
            raise PayloadDamaged(f"its row counts call for another size: {abs(spare)} bytes {many}")
        return ratios
    ways = list(_ways(spare, untold, words))
    if not ways:
        raise PayloadDamaged(f"its {tensor_bytes} bytes of tensors fit no choice of ratios")
    only = [ratio for ratio in RATIOS if len(ways) == 1 and ways[0][ratio] == untold]
    return [only[0] if ratio is None and only else ratio for ratio in ratios]


def _ways(spare: int, untold: int, words: PayloadWords) -> Iterator[dict[int, int]]:
    """How many of the `untold` layers have which ratio so that they take exactly `spare` bytes."""
    bare, four, wide = (_layer_bytes(ratio, words) for ratio in RATIOS)
    four, wide = four - bare, wide - bare
    # From four tokens on a layer of ratio 4 has rows, and is told by them.
    most = untold if words.tokens < 4 else 0
    for fours in range(most + 1):
        wides, rest = divmod(spare - fours * four, wide)
        if rest == 0 and 0 <= wides <= untold - fours:
            yield {0: untold - fours - wides, 4: fours, 128: wides}


def _layer_bytes(ratio: int, words: PayloadWords) -> int:
    return 4 * layer_floats(words, ratio, words.tokens, words.window)


def _integers(file: Readable, count: int) -> npt.NDArray[np.uint32]:
    content = b"".join(_pieces(file, 4 * count))
    return np.frombuffer(content, "<u4").astype(np.uint32, copy=False)


def _skip(file: Readable, count: int) -> None:
    for _ in _pieces(file, count):
        pass


def _pieces(file: Readable, count: int) -> Iterator[bytes]:
    while count:
        piece = file.read(min(_CHUNK, count))
        if not piece:
            raise PayloadDamaged(f"it ends {count} bytes too early")
        count -= len(piece)
        yield piece
