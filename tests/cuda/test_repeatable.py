"""The same prompt gives the same bytes each time, whatever the order in which threads run."""

from __future__ import annotations

import pytest

from shared.sampling import GREEDY
from tests.cuda.models import needs_simulator, open_engine
from tests.support.golden import golden_logits

pytestmark = needs_simulator
RUNS = 5
PROMPT = golden_logits("tiny-q2", "short")["tokens"].tolist()[:12]


@pytest.mark.long
def test_five_runs_are_equal_to_the_last_bit() -> None:
    """Logits after the prompt and after a greedy token, and at last the whole state. Twelve tokens are enough
    for the kernels of prompts, which group tokens by expert."""
    runs = []
    for seed in range(RUNS):
        session = open_engine(activation="actq", seed=seed)[0].open_session(64)
        session.sync(PROMPT)
        logits = [session.logits().tobytes()]
        session.submit(session.pick(GREEDY))
        logits.append(session.logits().tobytes())
        runs.append((logits, session.tokens, session.snapshot()))
        session.close()
    assert all(run == runs[0] for run in runs)
