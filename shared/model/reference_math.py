"""The primitive operations of the NumPy reference, float32 in and out. Spec: model §4.1 to §4.6.

Must not know: weights, layers, caches.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

NO_SCORE = np.float32(-1e30)
_ONE = np.float32(1.0)


def rms(values: Array, epsilon: float) -> Array:
    """Values [..., n] divided by their root mean square, the squares summed in float64."""
    wide = values.astype(np.float64)
    scale = 1.0 / np.sqrt(np.vecdot(wide, wide) / values.shape[-1] + epsilon)
    normed: Array = values * scale.astype(np.float32)[..., None]
    return normed


def sigmoid(values: Array) -> Array:
    # Below -80 the result is 0 to float32; the bound keeps exp from overflowing.
    result: Array = _ONE / (_ONE + np.exp(-np.maximum(values, np.float32(-80.0))))
    return result


def softplus(values: Array) -> Array:
    """log(1 + e^x), stable at both ends."""
    return np.where(values > 20.0, values, np.log1p(np.exp(np.minimum(values, np.float32(20.0)))))


def swiglu(gate: Array, up: Array, clamp: float) -> Array:
    """silu(gate) * up, the gate bounded above only and `up` on both sides. Spec: model §4.8."""
    if clamp > 1e-6:
        gate = np.minimum(gate, np.float32(clamp))
        up = np.maximum(np.minimum(up, np.float32(clamp)), np.float32(-clamp))
    product: Array = gate * sigmoid(gate) * up
    return product


def rotate(rows: Array, cosines: Array, sines: Array) -> Array:
    """Rows [n, ..., width] with their trailing channel pairs turned by the angles [n, pairs]; the inverse
    takes the negated sines."""
    pairs = cosines.shape[-1]
    between = (1,) * (rows.ndim - 2)
    cosines = cosines.reshape(-1, *between, pairs)
    sines = sines.reshape(-1, *between, pairs)
    even, odd = rows[..., -2 * pairs :: 2], rows[..., -2 * pairs + 1 :: 2]
    turned = rows.copy()
    turned[..., -2 * pairs :: 2] = even * cosines - odd * sines
    turned[..., -2 * pairs + 1 :: 2] = even * sines + odd * cosines
    return turned


def hyper_connection_weights(
    mix: Array, scale: Array, base: Array, *, streams: int, rounds: int, epsilon: float
) -> tuple[Array, Array, Array]:
    """Mix values [n, 2S + S^2] to pre weights [n, S], post weights [n, S] and combine matrices [n, S, S].

    The combine matrix goes through `rounds` Sinkhorn rounds that end on columns. Spec: model §4.4.
    """
    eps = np.float32(epsilon)
    pre = sigmoid(mix[:, :streams] * scale[0] + base[:streams]) + eps
    post = 2.0 * sigmoid(mix[:, streams : 2 * streams] * scale[1] + base[streams : 2 * streams])
    raw = mix[:, 2 * streams :] * scale[2] + base[2 * streams :]
    rows = raw.reshape(-1, streams, streams)
    rows = np.exp(rows - np.maximum.reduce(rows, axis=2, keepdims=True))
    rows = rows / np.add.reduce(rows, axis=2, keepdims=True) + eps
    in_row, in_column = _guarded_sums(streams, epsilon)
    with_one = np.ones((len(rows), streams**2 + 1), np.float32)
    combine = with_one[:, :-1]
    combine[:] = rows.reshape(-1, streams**2)
    combine /= with_one @ in_column
    for _ in range(rounds - 1):
        combine /= with_one @ in_row
        combine /= with_one @ in_column
    return pre, post, combine.reshape(-1, streams, streams)


@cache
def _guarded_sums(size: int, epsilon: float) -> tuple[Array, Array]:
    """Factors that take square matrices, as flat rows [n, size^2] followed by a 1, to the sum of each entry's
    row, and of its column, plus epsilon: one small product costs half of a sum and an addition."""
    same, every = np.eye(size, dtype=np.float32), np.ones((size, size), np.float32)
    guard = np.full((1, size**2), epsilon, np.float32)
    in_row, in_column = np.kron(same, every), np.kron(every, same)
    return np.concatenate((in_row, guard)), np.concatenate((in_column, guard))


def pool(values: Array, scores: Array) -> Array:
    """Candidates [windows, candidates, width] averaged per channel by the softmax of their scores; a channel
    without any scored candidate is 0. Spec: model §4.6."""
    largest = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - largest)
    pooled: Array = (weights * values).sum(axis=1) / weights.sum(axis=1)
    return np.where(largest[:, 0] <= NO_SCORE / 2, np.float32(0.0), pooled)


def largest_first(scores: Array, count: int) -> npt.NDArray[np.intp]:
    """Indexes [n, count] of the largest scores of each row, descending, the lower index first on ties."""
    return np.argsort(-scores, axis=-1, kind="stable")[:, :count]


def attention(queries: Array, rows: Array, visible: Mask, sinks: Array) -> Array:
    """Queries [n, heads, width] over `rows` [m, width], which are keys and values of every head.

    `visible` [n, m] says which rows a query sees; the sink [heads] adds to the denominator only, unscaled.
    Spec: model §4.5.
    """
    count, heads, width = queries.shape
    scores = (queries.reshape(count * heads, width) @ rows.T).reshape(count, heads, -1)
    scores = scores * np.float32(1.0 / np.sqrt(width))
    scores = np.where(visible[:, None], scores, np.float32(-np.inf))
    largest = np.maximum(scores.max(axis=-1), sinks)[..., None]
    weights = np.exp(scores - largest)
    total = weights.sum(axis=-1, keepdims=True) + np.exp(sinks[:, None] - largest)
    mixed = weights.reshape(count * heads, -1) @ rows
    result: Array = mixed.reshape(count, heads, width) / total
    return result
