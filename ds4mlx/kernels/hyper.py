"""What the operations on the residual streams share: how streams are cut into slices, and array forms.

The streams X [n, S, E] are mixed by products with their flattened, normed row (model §4.4). The root mean
square is a factor of the whole row, so one may multiply first: `partial` [n, P, M + 1] holds, for each of P
slices of the streams, its part of the M raw dots, then its part of the sum of squares. Whoever reads a
partial adds the slices up, so P is the writer's choice.

Must not know: which layer or sublayer the streams are mixed for.
"""

from __future__ import annotations

import mlx.core as mx

from ds4mlx.kernels.kernel import Constant, Grid
from ds4mlx.product import multiply

STREAMS = 4  # the one count of streams that the kernels are written for
LANES = 32
SLICE = 2 * LANES  # channels of a slice
# From this many tokens a threadgroup takes a tile of them, so that weights are read once for the tile.
TILED_FROM = 16
TILE = 8
_MIX_SIMDGROUPS = 8
_COLLAPSE_SIMDGROUPS = 16


class SlicedMix:
    """How a mix of `mixes` outputs over streams of `width` channels is launched; its text's constants."""

    def __init__(self, width: int, streams: int, mixes: int) -> None:
        """Raises ValueError for dimensions that the kernels are not written for."""
        check_dimensions(width, streams, mixes)
        self.slices = width // SLICE
        simdgroups = min(_MIX_SIMDGROUPS, mixes + 1)
        self.group: Grid = (simdgroups * LANES, 1, 1)
        self._threads = self.group[0] * self.slices
        self.constants: dict[str, Constant] = {
            "WIDTH": width,
            "STREAMS": streams,
            "MIXES": mixes,
            "SLICE": SLICE,
            "SIMDGROUPS": simdgroups,
            "TURNS": -(-(mixes + 1) // simdgroups),
        }

    def threads(self, count: int) -> Grid:
        """In all, for `count` tokens."""
        return (self._threads, count if count < TILED_FROM else -(-count // TILE), 1)


class Collapse:
    """The same for the collapse of streams. A thread has 4 channels a step."""

    def __init__(self, width: int, streams: int, mixes: int, epsilon: float, rms_epsilon: float) -> None:
        """Raises ValueError for dimensions that the kernels are not written for."""
        check_dimensions(width, streams, mixes)
        simdgroups = min(_COLLAPSE_SIMDGROUPS, -(-width // (4 * LANES)))
        self.group: Grid = (simdgroups * LANES, 1, 1)
        self.constants: dict[str, Constant] = {
            "WIDTH": width,
            "STREAMS": streams,
            "MIXES": mixes,
            "SIMDGROUPS": simdgroups,
            "STEPS": -(-width // (4 * LANES * simdgroups)),
            "EPSILON": epsilon,
            "RMS_EPSILON": rms_epsilon,
        }


def check_dimensions(width: int, streams: int, mixes: int) -> None:
    if streams != STREAMS:
        raise ValueError(f"the kernels mix {STREAMS} streams, not {streams}")
    if width % SLICE or width <= 0:
        raise ValueError(f"the width must be a multiple of {SLICE}, not {width}")
    # A lane for each output and one for the sum of squares.
    if not 0 < mixes < LANES:
        raise ValueError(f"a mix has 1 to {LANES - 1} outputs, not {mixes}")


def dots_and_squares(streams: mx.array, mix: mx.array) -> mx.array:
    """The partial [n, 1, M + 1] of streams [n, S, E] and a mix [M, S * E], all in one slice."""
    rows = streams.reshape(streams.shape[0], -1)
    dots = multiply(rows, mix.T.astype(mx.float32), rows.shape[0])
    squares = mx.square(rows).sum(axis=1, keepdims=True)
    return mx.concatenate([dots, squares], axis=1)[:, None]


def mix_values(
    partial: mx.array, scale: mx.array, base: mx.array, numbers: int, rms_epsilon: float
) -> mx.array:
    """The mix's outputs [n, M] from a partial of streams of `numbers` numbers a token."""
    count, slices, columns = partial.shape
    sums = partial.reshape(count, columns) if slices == 1 else partial.sum(axis=1)
    inverse = mx.rsqrt(sums[:, -1:] * (1.0 / numbers) + rms_epsilon)
    return sums[:, :-1] * inverse * scale + base


def collapse_streams(streams: mx.array, pre: mx.array, norm: mx.array, rms_epsilon: float) -> mx.array:
    """Streams [n, S, E] added up with weights `pre` [n, S], normed: [n, E]."""
    return mx.fast.rms_norm((pre[:, None, :] @ streams)[:, 0], norm, rms_epsilon)
