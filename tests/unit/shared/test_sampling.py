"""The reference choice against a slow transcription of its rules, and the random stream's known answers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from shared.sampling import (
    GREEDY,
    RandomStream,
    Sampling,
    choose,
    effective_sampling,
    token_logprob,
    top_logprobs,
)

NAN, INF = math.nan, math.inf


def row(*values: float) -> npt.NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


# -- the random stream -------------------------------------------------------------------------------------


def stream_by_matrices(seed: int, draws: int) -> list[int]:
    """xorshift64* as linear algebra over GF(2): each shift is a 64x64 bit matrix, nothing is shifted."""
    identity = np.eye(64, dtype=np.uint8)
    step = identity
    for offset in (-12, 25, -27):
        # Row i of the matrix says which old bits make new bit i.
        step = (identity ^ np.eye(64, k=-offset, dtype=np.uint8)) @ step % 2
    state = np.array([seed >> bit & 1 for bit in range(64)], dtype=np.uint8)
    outputs = []
    for _ in range(draws):
        state = step @ state % 2
        number = sum(1 << bit for bit in range(64) if state[bit])
        outputs.append(number * 2685821657736338717 % 2**64 // 2**40)
    return outputs


@pytest.mark.parametrize("seed", [1, 42, 2**63, 2**64 - 1, 0x123456789ABCDEF])
def test_stream_equals_its_bit_matrices(seed: int) -> None:
    stream = RandomStream(seed)
    assert [stream.uniform() * 2**24 for _ in range(200)] == stream_by_matrices(seed, 200)


def test_stream_known_answers() -> None:
    """From state 1 the first new state is 2^25 + 1: only the left shift moves a bit that stays."""
    stream = RandomStream(1)
    expected = [(2**25 + 1) * 0x2545F4914F6CDD1D % 2**64, 12380297144915551517, 13389498078930870103]
    assert [stream.uniform() for _ in expected] == [(number >> 40) / 2**24 for number in expected]


def test_seed_zero_stands_for_a_fixed_state() -> None:
    assert RandomStream(0).uniform() == RandomStream(0x9E3779B97F4A7C15).uniform()
    assert RandomStream(2**64).uniform() == RandomStream(0).uniform()


def test_draws_lie_in_the_unit_interval() -> None:
    stream = RandomStream(7)
    draws = [stream.uniform() for _ in range(2000)]
    assert 0 <= min(draws) < 0.01
    assert 0.99 < max(draws) < 1
    assert sum(draws) / len(draws) == pytest.approx(0.5, abs=0.03)


# -- the choice --------------------------------------------------------------------------------------------


def chosen_slowly(
    logits: list[float], sampling: Sampling, uniform: float, allowed: list[bool] | None
) -> tuple[int, float]:
    """The rules one by one, in exact sums; also the distance of the draw to the nearest boundary."""
    ids = [i for i in range(len(logits)) if allowed is None or allowed[i]]
    first = ids[0]
    ids = [i for i in ids if math.isfinite(logits[i])]
    best, highest = first, -1e30
    for i in ids:
        if logits[i] > highest:
            best, highest = i, logits[i]
    if not ids or not sampling.temperature > 0:
        return best, 1.0
    top = max(logits[i] for i in ids)
    best = next(i for i in ids if logits[i] == top)
    p = {i: Fraction(math.exp((logits[i] - top) / sampling.temperature)) for i in ids}
    top_p = sampling.top_p if 0 < sampling.top_p <= 1 else 1.0
    min_p = max(0.0, sampling.min_p)
    distance = min((abs(float(p[i]) - min_p) for i in ids), default=1.0)
    if sampling.top_k <= 0 and top_p == 1:
        kept = [i for i in ids if p[i] >= min_p]
        fallback = best
    else:
        order = sorted(ids, key=lambda i: (-logits[i], i))
        if sampling.top_k > 0:
            order = order[: min(sampling.top_k, 1024)]
        total = sum((p[i] for i in order), Fraction(0))
        kept = []
        share = Fraction(0)
        for i in order:
            if kept and p[i] / total < Fraction(min_p) * p[order[0]] / total:
                break
            kept.append(i)
            share += p[i] / total
            distance = min(distance, abs(float(share) - top_p))
            if share >= top_p:
                break
        fallback = kept[-1]
    remaining = Fraction(uniform) * sum((p[i] for i in kept), Fraction(0))
    scale = float(sum((p[i] for i in kept), Fraction(0))) or 1.0
    for i in kept:
        remaining -= p[i]
        distance = min(distance, abs(float(remaining)) / scale)
        if remaining <= 0:
            return i, distance
    return fallback, distance


logit = st.one_of(
    st.integers(-4, 4).map(float),
    st.floats(-30, 30, width=32),
    st.sampled_from([NAN, INF, -INF, 3e38, -3e38, -1e30]),
)
settings_of_all_kinds = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, -1.0, 0.1, 0.7, 1.0, 2.0, 100.0, 1e-300, NAN]),
    top_p=st.sampled_from([1.0, 0.9, 0.5, 0.05, 0.0, -1.0, 2.0, 1e-9, NAN]),
    min_p=st.sampled_from([0.05, 0.0, -1.0, 0.4, 1.0, 1.5]),
    top_k=st.sampled_from([0, -3, 1, 2, 3, 7, 5000]),
)


@given(st.lists(logit, min_size=1, max_size=24), settings_of_all_kinds, st.integers(0, 2**24 - 1), st.data())
@example([1.0, 2.0, 2.0, 0.0], Sampling(min_p=0.0, top_k=2), 2**23 - 1, None)
def test_choice_equals_the_rules(
    logits: list[float], sampling: Sampling, draw: int, data: st.DataObject | None
) -> None:
    masks = st.none() | st.lists(st.booleans(), min_size=len(logits), max_size=len(logits)).filter(any)
    allowed = None if data is None else data.draw(masks)
    values = row(*logits)
    expected, distance = chosen_slowly([float(v) for v in values], sampling, draw / 2**24, allowed)
    assume(distance > 1e-9)
    mask = None if allowed is None else np.array(allowed)
    assert choose(values, sampling, draw / 2**24, mask) == expected


@settings(max_examples=12)
@given(st.integers(1, 12), st.integers(0, 2**24 - 1), st.sampled_from([0, 5, 600, 5000]))
def test_large_flat_rows_equal_the_rules(seed: int, draw: int, top_k: int) -> None:
    """More candidates than one block of the sorted walk, with many ties."""
    values = np.round(np.random.default_rng(seed).standard_normal(2500) * 4).astype(np.float32)
    for top_p in (0.999, 0.6):
        sampling = Sampling(temperature=3.0, top_p=top_p, min_p=0.0, top_k=top_k)
        expected, distance = chosen_slowly([float(v) for v in values], sampling, draw / 2**24, None)
        if distance > 1e-9:
            assert choose(values, sampling, draw / 2**24) == expected


def test_greedy_takes_the_first_maximum() -> None:
    assert choose(row(1, 5, 5, 2), GREEDY) == 1
    assert choose(row(1, NAN, INF, 2), GREEDY) == 3
    assert choose(row(-3e30, -2e30), GREEDY) == 0
    assert choose(row(NAN, -INF), GREEDY) == 0
    assert choose(row(NAN, NAN), Sampling(), 0.5, np.array([False, True])) == 1
    assert choose(row(-3e30, -2e30), GREEDY, 0.0, np.array([False, True])) == 1


def test_unlimited_draw_is_in_vocabulary_order() -> None:
    """A draw in descending order would give the large one first."""
    logits = row(math.log(0.25), 0.0)
    assert choose(logits, Sampling(min_p=0.0), 0.1) == 0
    assert choose(logits, Sampling(min_p=0.0), 0.3) == 1
    assert choose(logits, Sampling(min_p=0.0, top_p=0.999), 0.1) == 1


def test_temperature_precedes_the_filters() -> None:
    """At temperature 2 a token of relative weight 0.04 has 0.2 and passes min_p; at 1 it does not."""
    logits = row(math.log(0.04), 0.0)
    assert choose(logits, Sampling(temperature=2.0), 0.0) == 0
    assert choose(logits, Sampling(temperature=1.0), 0.0) == 1


def test_top_p_includes_the_token_that_reaches_it() -> None:
    logits = row(math.log(0.5), math.log(0.3), math.log(0.2))
    assert choose(logits, Sampling(min_p=0.0, top_p=0.6), 0.99) == 1
    assert choose(logits, Sampling(min_p=0.0, top_p=0.45), 0.99) == 0
    assert choose(row(1, 1), Sampling(min_p=0.0, top_p=0.5), 0.99) == 0


@pytest.mark.parametrize("top_p", [0.0, -1.0, 1.5, NAN])
def test_top_p_outside_its_range_is_off(top_p: float) -> None:
    assert choose(row(0, 1), Sampling(top_p=top_p), 0.1) == 0


def test_top_k_is_clamped_and_keeps_lower_ids() -> None:
    flat = np.zeros(3000, dtype=np.float32)
    last = (2**24 - 1) / 2**24
    assert choose(flat, Sampling(min_p=0.0, top_k=2000), last) == 1023
    assert choose(flat, Sampling(min_p=0.0, top_k=3), last) == 2
    assert choose(flat, Sampling(min_p=0.0, top_k=0), last) == 2999


def test_min_p_keeps_what_reaches_it() -> None:
    assert choose(row(3, 0, 3), Sampling(min_p=1.0), 0.9) == 2
    assert choose(row(3, 0, 3), Sampling(min_p=1.0, top_k=3), 0.9) == 2


def test_min_p_above_one_leaves_the_best() -> None:
    assert choose(row(0, 3, 1), Sampling(min_p=2.0), 0.9) == 1
    assert choose(row(0, 3, 1), Sampling(min_p=2.0, top_k=2), 0.9) == 1


@pytest.mark.parametrize(
    ("logits", "allowed", "message"),
    [
        (row(), None, "empty"),
        (row(1, 2), np.array([True]), "1 entries for 2"),
        (row(1, 2), np.array([False, False]), "allows no token"),
    ],
)
def test_refuses_what_cannot_be_chosen_from(
    logits: npt.NDArray[np.float32], allowed: npt.NDArray[np.bool_] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        choose(logits, GREEDY, 0.0, allowed)


def test_defaults_are_the_published_ones() -> None:
    assert Sampling() == Sampling(temperature=1.0, top_p=1.0, min_p=0.05, top_k=0)


def test_thinking_overrides_all_but_an_explicit_zero() -> None:
    wild = Sampling(temperature=0.3, top_p=0.5, min_p=0.2, top_k=7)
    assert effective_sampling(wild, thinking=True) == Sampling()
    assert effective_sampling(wild, thinking=False) == wild
    assert effective_sampling(GREEDY, thinking=True).greedy


# -- log-probabilities -------------------------------------------------------------------------------------


@given(st.lists(logit.filter(lambda v: not abs(v) > 1e30), min_size=1, max_size=12), st.integers(0, 15))
def test_logprobs_by_sorting(logits: list[float], count: int) -> None:
    values = row(*logits)
    finite = [(float(v), i) for i, v in enumerate(values) if math.isfinite(v)]
    if finite:
        largest = max(v for v, _ in finite)
        total = largest + math.log(math.fsum(math.exp(v - largest) for v, _ in finite))
        for token, value in enumerate(values):
            expected = float(value) - total if math.isfinite(value) else -INF
            assert token_logprob(values, token) == pytest.approx(expected, abs=1e-12)
    top = top_logprobs(values, count)
    assert [t.token for t in top] == [i for _, i in sorted(finite, key=lambda p: (-p[0], p[1]))][:count]
    assert all(t.logit == float(values[t.token]) for t in top)
    assert all(t.logprob == token_logprob(values, t.token) for t in top)


def test_logprob_of_a_token_outside_the_vocabulary() -> None:
    for token in (-1, 2):
        with pytest.raises(ValueError, match="outside the vocabulary"):
            token_logprob(row(1, 2), token)
