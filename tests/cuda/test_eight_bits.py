"""The model with 8-bit activations: half a layer at a time on equal input, its best ids, its session.

A whole run cannot be compared number by number: a last bit that differs moves a code, and that a logit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from shared.model.open import open_model
from shared.model.reference import Activation, Reference
from shared.model.reference_state import ReferenceState
from shared.model.reference_weights import ReferenceWeights
from shared.sampling import GREEDY
from shared.session import Session
from tests.cuda.arrays import Array, numbers
from tests.cuda.models import engine, needs_simulator, open_engine
from tests.support.golden import golden_logits, model_path

pytestmark = needs_simulator
PROMPT = golden_logits("tiny-q2", "short")["tokens"].tolist()
CONTEXT = 64


class Outputs(Reference):
    """The reference whose halves of a layer end with the block's output."""

    def hyper_connection_post(self, streams: Array, output: Array, post: Array, combine: Array) -> Array:
        return output


@cache
def outputs(name: str, activation: Activation) -> Outputs:
    file = open_model(model_path(name))
    return Outputs(ReferenceWeights(file.gguf, file.shape), file.shape, activation)


def found_and_expected(
    name: str, layer: int, half: str, count: int, activation: Activation = "actq"
) -> tuple[Array, Array]:
    """Outputs [count, width] of half a layer for the same random streams, here and by the reference."""
    model, reference = engine(name, "actq")._model, outputs(name, activation)
    shape, weights = model.shape, model.weights.layers[layer]
    random = np.random.default_rng(layer)
    streams = numbers(random, count, shape.streams, shape.embedding_width)
    tokens = random.integers(0, shape.vocabulary_size, count)
    step, state = model.step(0, count), model.open_state(CONTEXT)
    model.device.write(model.scratch("tokens", count), tokens.astype(np.int32))
    model.begin(0, count)
    model.device.write(model.scratch("streams", *streams.shape), streams)
    if half == "attention":
        model.hyper_connection_pre(weights.attention_mix, weights.attention_norm, step, joins=False)
        model.attention(layer, weights, state, step)
        expected = reference.attention_half(layer, streams, ReferenceState(shape, CONTEXT))[0]
    else:
        model.hyper_connection_pre(weights.feed_forward_mix, weights.feed_forward_norm, step, joins=False)
        model.feed_forward(weights, step)
        expected = reference.feed_forward_half(layer, streams, tokens)
    return model.device.download(model.scratch("output", *expected.shape)), expected


def errors(found: Array, expected: Array) -> npt.NDArray[np.floating]:
    """Each token's largest difference, relative to its largest number."""
    relative: npt.NDArray[np.floating] = np.abs(found - expected).max(axis=1) / np.abs(expected).max(axis=1)
    return relative


def check(name: str, half: str, count: int) -> None:
    """Nearly all tokens agree to the last bits; of the others some rounded number is the next one. That is
    so of each first token: it attends to its own row only, and half of a block's largest number, which is
    common among E4M3 numbers, lies just between two codes."""
    layers = range(engine(name, "actq").shape.layer_count)
    found = np.stack([errors(*found_and_expected(name, layer, half, count)) for layer in layers])
    assert np.median(found[:, 1:]) <= 1e-6
    assert np.mean(found[:, 1:] <= 2e-6) >= 0.75
    assert found.max() <= 0.02


@pytest.mark.parametrize("half", ["attention", "feed_forward"])
def test_half_a_layer_is_that_of_the_reference(half: str) -> None:
    check("tiny-q2", half, 5)


@pytest.mark.parametrize("half", ["attention", "feed_forward"])
def test_it_is_not_that_of_float_activations(half: str) -> None:
    assert errors(*found_and_expected("tiny-q2", 2, half, 5, "kv")).min() > 1e-4


@pytest.mark.long
@pytest.mark.parametrize("half", ["attention", "feed_forward"])
@pytest.mark.parametrize(("name", "count"), [("tiny-q4", 9), ("tiny-pro-q2", 4)])
def test_half_a_layer_of_other_models(name: str, half: str, count: int) -> None:
    check(name, half, count)


def check_best_ids(name: str, prompt: str, ends: Sequence[int], decoded: int) -> None:
    """The best id after every token of a prompt in steps that end before these numbers of tokens, then after
    the stored greedy ones, one by one."""
    model, golden = engine(name, "actq")._model, golden_logits(name, prompt)
    tokens, state, best = golden["tokens"].tolist(), model.open_state(1024), []
    greedy = golden["greedy_ids_actq"][:decoded].tolist()
    starts = [0, *ends, *range(len(tokens) + 1, len(tokens) + decoded)]
    for start, end in pairwise(starts):
        part = [*tokens, *greedy][start:end]
        step = model.step(start, len(part))
        model.device.write(model.scratch("tokens", len(part)), np.array(part, np.int32))
        model.begin(start, len(part))
        last = model.device.download(model.forward(state, step)).argmax()
        before = [model.device.download(model.logits_of(step, at)).argmax() for at in range(len(part) - 1)]
        best += [*before, last]
    wanted = [*golden["argmax_actq"], *greedy[1:]]
    assert len(best) == len(wanted)
    assert np.mean(np.equal(best, wanted)) >= 0.93


def test_best_ids_of_a_short_prompt() -> None:
    check_best_ids("tiny-q2", "short", [20, 27], 3)


@pytest.mark.long
def test_best_ids_with_every_ratio() -> None:
    """Windows of both ratios end, rings wrap, and the indexer chooses."""
    check_best_ids("tiny-q2", "medium", [50, 114, 128, 129, 179], 6)


def opened() -> Session:
    return engine("tiny-q2", "actq").open_session(CONTEXT)


def test_a_session_goes_back_and_is_saved_bit_by_bit() -> None:
    session = opened()
    session.sync(PROMPT[:6])
    before, logits = session.snapshot(), session.logits()
    for token in (5, 700):
        session.submit(token)
        session.undo()
        assert session.snapshot() == before
        assert np.array_equal(session.logits(), logits)
    mark = session.mark()
    chosen = session.pick(GREEDY)
    session.submit(chosen)
    session.submit(9)
    after = session.snapshot()
    session.rewind(mark)
    other = opened()
    other.restore(before)
    for again in (session, other):
        for token in (chosen.value(), 9):
            again.submit(token)
        assert again.snapshot() == after


@pytest.mark.long
def test_the_order_of_threads_does_not_matter() -> None:
    snapshots = []
    for check_level, seed in (("full", 1), ("full", 2), ("fast", 0)):
        session = open_engine("tiny-q2", "actq", check=check_level, seed=seed)[0].open_session(CONTEXT)
        session.sync(PROMPT[:5])
        session.submit(3)
        snapshots.append(session.snapshot())
    assert snapshots[0] == snapshots[1] == snapshots[2]
