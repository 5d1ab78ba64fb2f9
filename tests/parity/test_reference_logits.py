"""The NumPy reference against the golden logits: every model and prompt, whole and token by token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from shared.model.open import open_model
from shared.model.reference import Activation, Reference
from shared.model.reference_state import ReferenceState
from shared.model.reference_weights import ReferenceWeights
from tests.support.golden import golden_logits, model_path
from tests.support.limits import (
    assert_golden,
    assert_same_best,
)

Array = npt.NDArray[np.float32]

CASES = [
    ("tiny-q2", "short"),
    ("tiny-q2", "medium"),
    ("tiny-q2", "long"),
    ("tiny-q2", "random"),
    ("tiny-q4", "medium"),
    ("tiny-q4", "long"),
    ("tiny-pro-q2", "long"),
]
# A token takes about 8 ms: these run always, the others with the long tests.
QUICK_DECODE = {
    ("tiny-q2", "short", "kv"),
    ("tiny-q2", "medium", "kv"),
    ("tiny-q2", "short", "float"),
}
DECODE_CASES = [
    pytest.param(
        *case, mode, marks=[] if (*case, mode) in QUICK_DECODE else [pytest.mark.long], id=f"{case}-{mode}"
    )
    for case in CASES
    for mode in ("float", "kv")
]


@cache
def weights_of(model: str) -> ReferenceWeights:
    file = open_model(model_path(model))
    return ReferenceWeights(file.gguf, file.shape)


@pytest.fixture(scope="module", autouse=True)
def forget_weights() -> Iterator[None]:
    yield
    weights_of.cache_clear()


class Run:
    """A growing timeline; `feed` returns the logits at every fed position."""

    def __init__(self, model: str, mode: Activation) -> None:
        file = open_model(model_path(model))
        self._reference = Reference(weights_of(model), file.shape, mode)
        self._state = ReferenceState(file.shape, 2048)
        file.close()

    def feed(self, tokens: Sequence[int]) -> Array:
        streams, steps = self._reference.forward(tokens, self._state)
        self._state.commit(steps, len(tokens))
        return self._reference.output_head(streams)

    def feed_in(self, tokens: Sequence[int], chunk: int) -> Array:
        return np.concatenate([self.feed(tokens[at : at + chunk]) for at in range(0, len(tokens), chunk)])


def check(model: str, prompt: str, mode: Activation, chunk: int) -> None:
    """The prompt in chunks, then the stored greedy ids, each against the stored logits."""
    golden, run = golden_logits(model, prompt), Run(model, mode)
    logits = run.feed_in(golden["tokens"].tolist(), chunk)
    greedy_ids = golden[f"greedy_ids_{mode}"]
    greedy = np.concatenate((logits[-1:], run.feed_in(greedy_ids[:-1].tolist(), chunk)))
    assert_golden(golden, logits, greedy, mode=mode, prompt=prompt)


@pytest.mark.parametrize("mode", ["float", "kv"])
@pytest.mark.parametrize(("model", "prompt"), CASES)
def test_in_one_batch(model: str, prompt: str, mode: Activation) -> None:
    check(model, prompt, mode, chunk=4096)


@pytest.mark.parametrize(("model", "prompt", "mode"), DECODE_CASES)
def test_token_by_token(model: str, prompt: str, mode: Activation) -> None:
    check(model, prompt, mode, chunk=1)


@pytest.mark.parametrize(
    ("prompt", "chunk"),
    [
        ("medium", 7),
        ("long", 101),
        pytest.param("medium", 64, marks=pytest.mark.long),
        pytest.param("long", 128, marks=pytest.mark.long),
    ],
)
def test_in_chunks(prompt: str, chunk: int) -> None:
    check("tiny-q2", prompt, "float", chunk)
    check("tiny-q2", prompt, "kv", chunk)


@pytest.mark.parametrize(("model", "prompt"), [("tiny-q2", "long"), ("tiny-q4", "medium")])
def test_eight_bit_activations_choose_the_same_ids_mostly(model: str, prompt: str) -> None:
    golden = golden_logits(model, prompt)
    logits = Run(model, "actq").feed(golden["tokens"].tolist())
    assert_same_best(logits.argmax(axis=1), golden["argmax_actq"], 0.93)
