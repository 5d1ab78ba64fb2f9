"""Compression of finished token windows into single rows. Spec: model §4.6 and §5.3.

Pure functions on arrays. Must not know: weights' names, caches' buffers, sessions.
"""

from __future__ import annotations

import mlx.core as mx

from shared.kv.payload import NO_SCORE


def windows(rows: mx.array, ratio: int) -> tuple[mx.array | None, mx.array]:
    """Frontier rows of consecutive tokens as complete windows [windows, ratio, width].

    At ratio 4 the rows begin with the window before the first complete one: then also the previous window
    of each, else None. Rows of an unfinished last window are left out.
    """
    whole = rows.shape[0] // ratio
    grouped = rows[: whole * ratio].reshape(whole, ratio, -1)
    return (grouped[:-1], grouped[1:]) if ratio == 4 else (None, grouped)


def pool(previous: mx.array | None, current: mx.array, kv: slice, score: slice) -> mx.array:
    """One row per window: the softmax of scores over its tokens, for each channel alone, weighs their kv.

    `kv` and `score` are the columns of this compressor. Where windows overlap, a token's first half serves
    the following window and its second half its own: [windows, tokens, 2 h] -> [windows, h]. A channel
    without any scored token is 0.
    """
    values, scores = current[..., kv], current[..., score]
    if previous is not None:
        half = values.shape[-1] // 2
        values = mx.concatenate([previous[..., kv][..., :half], values[..., half:]], axis=1)
        scores = mx.concatenate([previous[..., score][..., :half], scores[..., half:]], axis=1)
    # Beside a real score the weight of an empty one is 0 anyhow; among themselves they would share it.
    scored = mx.where(scores > float(NO_SCORE) / 2, values, 0.0)
    return (mx.softmax(scores, axis=1) * scored).sum(axis=1)
