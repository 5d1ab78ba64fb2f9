"""Attention against a float64 transcription, on both ways to use a selection, over several blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from shared.model.known_shapes import FLASH

mx = pytest.importorskip("mlx.core")

from ds4mlx import attention, step  # noqa: E402
from ds4mlx.attention import attend, index_scores, select  # noqa: E402
from ds4mlx.step import QueryBlock, Step  # noqa: E402

HEADS, WIDTH, TOP_K, WINDOW = 3, 16, 4, 8
SHAPE = replace(FLASH, head_count=HEADS, head_dim=128, index_heads=2, window=WINDOW)
RANDOM = np.random.default_rng(5)
Array = npt.NDArray[np.float32]


def numbers(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def expected_output(
    queries: Array,
    raw: Array,
    first_raw: int,
    compressed: Array,
    scores: Array | None,
    sinks: Array,
    start: int,
) -> npt.NDArray[np.float64]:
    outputs = []
    for number, heads in enumerate(queries.astype(np.float64)):
        p = start + number
        rows = raw[max(0, p - WINDOW + 1) - first_raw : p + 1 - first_raw]
        visible = (p + 1) // 4
        chosen = np.arange(min(visible, len(compressed)))
        if scores is not None and visible > TOP_K:
            chosen = np.argsort(-scores[number, :visible], kind="stable")[:TOP_K]
        rows = np.concatenate([rows, compressed[chosen]]).astype(np.float64)
        logits = heads @ rows.T
        largest = np.maximum(logits.max(axis=1), sinks)
        weights = np.exp(logits - largest[:, None])
        outputs.append(weights @ rows / (weights.sum(axis=1) + np.exp(sinks - largest))[:, None])
    return np.array(outputs)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("dense", [0, 1000])
@pytest.mark.parametrize(("start", "count"), [(0, 1), (0, 50), (3, 40), (61, 1), (45, 30), (160, 5)])
def test_queries_see_their_rows(
    start: int, count: int, dense: int, ties: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "_LARGEST_BLOCK", 16)
    monkeypatch.setattr(attention, "_DENSE_ROWS_PER_SELECTED", dense)
    whole = Step(SHAPE, start, count)
    first_raw = whole.first_raw
    raw, compressed = numbers(whole.end - first_raw, WIDTH), numbers(whole.end // 4, WIDTH)
    queries, sinks = numbers(count, HEADS, WIDTH), numbers(HEADS)
    index_queries, head_weights, index_rows = (
        numbers(count, 2, 8),
        numbers(count, 2),
        numbers(whole.end // 4, 8),
    )
    if ties:
        head_weights[:] = 0
    scores = np.einsum(
        "qhc,qh->qc", np.maximum(np.einsum("qhd,cd->qhc", index_queries, index_rows), 0), head_weights
    )
    outputs = []
    for block in whole.blocks(4):
        part = slice(block.first, block.end)
        selection = None
        if block.compressed > TOP_K:
            found = index_scores(
                mx.array(index_queries[part]),
                mx.array(head_weights[part]),
                mx.array(index_rows[: block.compressed]),
            )
            selection = select(found, block, TOP_K)
        local = block.first_key - first_raw
        outputs.append(
            attend(
                mx.array(queries[part]),
                mx.array(raw[local : local + block.key_count]),
                mx.array(compressed[: block.compressed]),
                mx.array(sinks),
                block,
                selection,
            )
        )
    ours = np.array(mx.concatenate(outputs))
    expected = expected_output(queries, raw, first_raw, compressed, scores, sinks, start)
    assert np.abs(ours - expected).max() <= 1e-5


def test_a_window_only_layer_has_no_compressed_rows() -> None:
    block: QueryBlock = Step(SHAPE, 20, 3).blocks(0)[0]
    raw, queries, sinks = numbers(10, WIDTH), numbers(3, HEADS, WIDTH), numbers(HEADS)
    ours = attend(mx.array(queries), mx.array(raw), None, mx.array(sinks), block, None)
    nothing = np.zeros((99, WIDTH), np.float32)
    expected = expected_output(queries, raw, 13, nothing[:0], None, sinks, 20)
    assert np.abs(np.array(ours) - expected).max() <= 1e-5
