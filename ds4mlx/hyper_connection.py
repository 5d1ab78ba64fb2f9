"""Mixing weights of the residual streams, Sinkhorn normalisation included. Spec: model §4.4.

Must not know: weights' storage, layers.
"""

from __future__ import annotations

from functools import cache

import mlx.core as mx
import numpy as np


def mixing_weights(
    values: mx.array, *, streams: int, rounds: int, epsilon: float
) -> tuple[mx.array, mx.array, mx.array]:
    """From mix outputs [n, streams * (2 + streams)], scale and base applied: pre [n, streams], half the post
    weights [n, streams] and the combine matrix M [n, streams, streams], which is applied as
    new[c] = sum over r of M[r][c] * old[r]."""
    gates = mx.sigmoid(values[:, : 2 * streams])
    pre, half_post = gates[:, :streams] + epsilon, gates[:, streams:]
    logits = values[:, 2 * streams :].reshape(-1, streams, streams)
    matrix = mx.softmax(logits, axis=-1).reshape(-1, streams * streams) + epsilon
    return pre, half_post, _sinkhorn(matrix, streams, rounds, epsilon).reshape(-1, streams, streams)


def _sinkhorn(matrix: mx.array, streams: int, rounds: int, epsilon: float) -> mx.array:
    """Columns first, then rows and columns in turn: `rounds` column passes in all. Matrices are flat rows
    [n, streams^2], so that one product with a constant gives every entry its row or column sum."""
    row_sums, column_sums, guard = _summing(streams, epsilon)
    matrix = matrix / mx.addmm(guard, matrix, column_sums)
    for _ in range(rounds - 1):
        matrix = matrix / mx.addmm(guard, matrix, row_sums)
        matrix = matrix / mx.addmm(guard, matrix, column_sums)
    return matrix


@cache
def _summing(streams: int, epsilon: float) -> tuple[mx.array, mx.array, mx.array]:
    same, every = np.eye(streams, dtype=np.float32), np.ones((streams, streams), np.float32)
    # With the shape of one token's matrix, so that nothing has to be spread when decoding.
    guard = np.full((1, streams**2), epsilon, np.float32)
    return mx.array(np.kron(same, every)), mx.array(np.kron(every, same)), mx.array(guard)
