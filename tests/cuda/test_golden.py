"""The tiny models on the CUDA backend against the golden logits: prefill in steps, decode, both roundings."""

from __future__ import annotations

import numpy as np
import pytest

from ds4cuda.model import STAGES
from shared.model import reference
from shared.model.reference import Activation
from tests.cuda.models import Run, engine, needs_simulator
from tests.support.golden import golden_logits
from tests.support.limits import FLOAT_LIMIT, LONG_LIMITS, differences, kv_limits

pytestmark = needs_simulator
# Where the steps of a prompt end, for the long tests: windows of both ratios end inside steps, at their ends
# and in single tokens, rings wrap, and the indexer chooses.
LONG_STEPS = {
    "short": [*range(1, 28)],
    "medium": [50, 113, 124, *range(125, 133), 179],
}


def check(name: str, prompt: str, mode: Activation, ends: list[int], decoded: int) -> None:
    """The logits at the ends of steps that are stored, then of `decoded` greedy tokens one by one."""
    golden, run = golden_logits(name, prompt), Run(engine(name, mode)._model)
    logits = run.feed_in(golden["tokens"].tolist(), ends)
    stored = {position: row for row, position in enumerate(golden["positions"].tolist())}
    places = [place for place, end in enumerate(ends) if end - 1 in stored]
    found = differences(
        logits[places], golden[f"logits_{mode}"][[stored[ends[place] - 1] for place in places]]
    )
    greedy = golden[f"greedy_ids_{mode}"][:decoded].tolist()
    assert logits[-1].argmax() == greedy[0]
    steps = np.stack([logits[-1], *(run.feed([token]) for token in greedy[:-1])])
    after = differences(steps, golden[f"greedy_logits_{mode}"][:decoded])
    if mode == "float":
        assert found.max() <= FLOAT_LIMIT
        assert after.max() <= FLOAT_LIMIT
    else:
        limits = kv_limits(prompt)
        assert np.median(found) <= limits.median
        assert found.max() <= limits.largest
        assert after.max() <= LONG_LIMITS.largest
        assert np.median(after) <= LONG_LIMITS.median


@pytest.mark.parametrize("mode", ["kv", "float"])
def test_a_short_prompt_in_one_step_and_single_tokens(mode: Activation) -> None:
    check("tiny-q2", "short", mode, [19, 20, 21, 22, 27], 3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "prompt", "mode", "decoded"),
    [
        ("tiny-q2", "short", "kv", 32),
        ("tiny-q2", "medium", "kv", 8),
        ("tiny-q4", "medium", "kv", 8),
    ],
)
def test_prompts_with_every_ratio(name: str, prompt: str, mode: Activation, decoded: int) -> None:
    last = len(golden_logits(name, prompt)["tokens"])
    check(name, prompt, mode, [end for end in LONG_STEPS[prompt] if end < last] + [last], decoded)


def test_the_stages_are_those_of_the_reference() -> None:
    assert tuple(STAGES) == reference.STAGES
