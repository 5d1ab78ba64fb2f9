"""The operations on residual streams in float64, written after the specification (model §4.4, §4.9)."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
STREAMS = 4
SLICE = 64


def normal(seed: int, *shape: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def wide(array: mx.array) -> Array:
    return np.array(array.astype(mx.float32)).astype(np.float64)


def slices(streams: Array, mix: Array) -> tuple[Array, Array]:
    """The partial [n, E / 64, M + 1] of streams [n, S, E] and a mix [M, S * E], and the sums of the
    magnitudes behind each of its numbers."""
    count, width = len(streams), streams.shape[2]
    cut = streams.reshape(count, STREAMS, width // SLICE, SLICE)
    rows = mix.reshape(len(mix), STREAMS, width // SLICE, SLICE)

    def dots(x: Array, weights: Array) -> Array:
        products = np.einsum("nspc,mspc->npm", x, weights)
        return np.concatenate([products, np.square(x).sum(axis=(1, 3))[..., None]], axis=2)

    return dots(cut, rows), dots(np.abs(cut), np.abs(rows))


def sigmoid(values: Array) -> Array:
    return 1.0 / (1.0 + np.exp(np.minimum(-values, 700.0)))


def mix_values(partial: Array, scale: Array, base: Array, numbers: int, rms_epsilon: float) -> Array:
    sums = partial.sum(axis=1)
    return sums[:, :-1] / np.sqrt(sums[:, -1:] / numbers + rms_epsilon) * scale + base


def doubly_normalised(logits: Array, rounds: int, epsilon: float) -> Array:
    """Matrices [n, S, S], the first index r, the second c."""
    matrix = np.exp(logits - logits.max(axis=2, keepdims=True))
    matrix = matrix / matrix.sum(axis=2, keepdims=True) + epsilon
    for turn in range(rounds):
        if turn:
            matrix = matrix / (matrix.sum(axis=2, keepdims=True) + epsilon)
        matrix = matrix / (matrix.sum(axis=1, keepdims=True) + epsilon)
    return matrix


def collapsed(streams: Array, pre: Array, norm: Array, rms_epsilon: float) -> Array:
    mixed = np.einsum("ns,nse->ne", pre, streams)
    return mixed / np.sqrt(np.square(mixed).mean(axis=1, keepdims=True) + rms_epsilon) * norm
