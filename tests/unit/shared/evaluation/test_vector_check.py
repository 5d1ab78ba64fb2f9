"""Vectors on an engine whose logits are no numbers."""

from types import SimpleNamespace

import numpy as np
import pytest

from shared.errors import EngineFault
from shared.evaluation.local_vectors import LocalCandidate, LocalCase
from shared.evaluation.official_vectors import OfficialCase, OfficialStep
from shared.evaluation.vector_check import (
    Recording,
    check_local,
    check_official,
    record_local,
    record_official,
)
from shared.scripted.vocabulary import TOKENS, tokenizer


def _silent(_done, _total):
    return None


def _never():
    return False


@pytest.fixture
def broken():
    """An engine that computes NaN."""
    logits = np.full(len(TOKENS), np.nan, np.float32)
    session = SimpleNamespace(
        sync=lambda *_, **__: None, logits=lambda: logits, close=lambda: None, position=5, context=10
    )
    return SimpleNamespace(
        tokenizer=tokenizer(), effort_profile="preview", open_session=lambda context: session
    )


def test_a_check_fails_and_a_recording_is_refused(broken):
    official = OfficialCase("a", 100, "p", (OfficialStep(b"x", ()),))
    verdict = check_official(broken, official, b"hi", _silent, _never)
    assert verdict.problems == ["step 0: no logit is a finite number"]
    local = LocalCase("a", "text", 100, 1, "p", (LocalCandidate(5, 1.0),))
    verdict = check_local(broken, local, b"hi", _silent, _never)
    assert verdict.problems == [
        "the best token is [], recorded 5",
        "a logit is nan away, at most 8 may be",
    ]
    wanted = Recording("a", "p", b"hi", 100)
    with pytest.raises(EngineFault, match="nothing can be recorded"):
        record_official(broken, wanted, 2, 5, _silent, _never)
    with pytest.raises(EngineFault, match="nothing can be recorded"):
        record_local(broken, wanted, "text", None, 64, _silent, _never)
