"""The MLX backend against the golden logits: every model and prompt, whole and token by token."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.golden import golden_logits
from tests.support.limits import (
    assert_golden,
)

mlx_models = pytest.importorskip("tests.support.mlx_models")

CASES = [
    ("tiny-q2", "short"),
    ("tiny-q2", "medium"),
    ("tiny-q2", "long"),
    ("tiny-q2", "random"),
    ("tiny-q4", "medium"),
    ("tiny-q4", "long"),
    ("tiny-pro-q2", "long"),
]
# A token takes about 20 ms: these run always, the others with the long tests.
QUICK_DECODE = {("tiny-q2", "short", "kv"), ("tiny-q2", "medium", "kv"), ("tiny-q2", "short", "float")}
DECODE_CASES = [
    pytest.param(
        *case, mode, marks=[] if (*case, mode) in QUICK_DECODE else [pytest.mark.long], id=f"{case}-{mode}"
    )
    for case in CASES
    for mode in ("float", "kv")
]


def check(model: str, prompt: str, mode: str, chunk: int) -> None:
    """The prompt in chunks, then the stored greedy ids, each against the stored logits."""
    golden, run = golden_logits(model, prompt), mlx_models.Run(mlx_models.model(model, mode))
    logits = run.feed_in(golden["tokens"].tolist(), chunk)
    greedy_ids = golden[f"greedy_ids_{mode}"]
    greedy = np.concatenate((logits[-1:], run.feed_in(greedy_ids[:-1].tolist(), chunk)))
    assert_golden(golden, logits, greedy, mode=mode, prompt=prompt)


@pytest.mark.parametrize("mode", ["float", "kv"])
@pytest.mark.parametrize(
    ("model", "prompt"),
    [pytest.param(*case, marks=pytest.mark.long) if case == ("tiny-q4", "long") else case for case in CASES],
)
def test_in_one_batch(model: str, prompt: str, mode: str) -> None:
    check(model, prompt, mode, chunk=4096)


@pytest.mark.parametrize(("model", "prompt", "mode"), DECODE_CASES)
def test_token_by_token(model: str, prompt: str, mode: str) -> None:
    check(model, prompt, mode, chunk=1)


@pytest.mark.parametrize("mode", ["float", "kv"])
@pytest.mark.parametrize(
    ("prompt", "chunk"),
    [
        ("medium", 7),
        ("long", 101),
        pytest.param("medium", 64, marks=pytest.mark.long),
        pytest.param("long", 128, marks=pytest.mark.long),
    ],
)
def test_in_chunks(prompt: str, chunk: int, mode: str) -> None:
    check("tiny-q2", prompt, mode, chunk)
