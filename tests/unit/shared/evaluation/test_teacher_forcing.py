"""Scoring on a session whose logits the test chooses."""

import math

import numpy as np
import pytest

from shared.errors import Cancelled
from shared.evaluation.teacher_forcing import EncodedCase, score_case
from shared.power import PowerGovernor

CASE = EncodedCase("a", (7, 8), (1, 2, 3, 4))


class Session:
    """Predicts `best[n]` with a logit of 1 above 9 others after n targets."""

    def __init__(self, *best):
        self.best, self.tokens = best, []

    def sync(self, tokens, *, cancelled):
        self.tokens = list(tokens)

    def logits(self):
        logits = np.zeros(10, np.float32)
        logits[self.best[len(self.tokens) - len(CASE.prompt)]] = 1.0
        return logits

    def submit(self, token):
        self.tokens.append(token)


def _score(session, cancelled=lambda: False):
    return score_case(session, CASE, PowerGovernor(), cancelled)


@pytest.mark.parametrize(
    ("best", "matched", "hits"),
    [((1, 2, 3, 4), 4, 4), ((1, 9, 3, 4), 1, 3), ((9, 2, 3, 4), 0, 3), ((1, 2, 3, 9), 3, 3)],
)
def test_the_first_other_token_ends_the_common_prefix(best, matched, hits):
    session = Session(*best)
    score = _score(session)
    total = math.log(math.e + 9)
    assert (score.greedy_lcp, score.first_match) == (matched, matched > 0)
    assert score.nll == pytest.approx(hits * (total - 1) + (4 - hits) * total)
    assert score.avg_nll == pytest.approx(score.nll / 4)
    # The true tokens were given, the last one not: nobody asks what follows it.
    assert session.tokens == [7, 8, 1, 2, 3]


def test_it_can_be_cancelled_between_tokens():
    session = Session(1, 2, 3, 4)
    with pytest.raises(Cancelled):
        _score(session, lambda: len(session.tokens) == 4)
    assert session.tokens == [7, 8, 1, 2]


def test_a_continuation_that_cannot_come_is_infinitely_unlikely():
    session = Session(1, 2, 3, 4)
    session.logits = lambda: np.array([0, np.nan, 1, 2, 3], np.float32)
    assert _score(session).nll == math.inf
