"""How a text is scored."""

import math

import pytest

from apps.chat.perplexity import PREFILLED_TOKENS, Perplexity, perplexity
from shared.errors import Cancelled, UsageError
from tests.support.scripts import scripted, turn

EVEN = {"logits": {"a": 1.0, "b": 1.0}}


def _score(tokens, *, limit=100, context=200, cancelled=lambda: False, pieces=60):
    engine = scripted(turn(*[EVEN] * pieces))
    seen = []
    result = perplexity(
        engine.open_session(context),
        tokens,
        limit=limit,
        progress=lambda done, total: seen.append((done, total)),
        cancelled=cancelled,
    )
    return result, seen


TEXT = [97] * PREFILLED_TOKENS


def test_two_equally_likely_tokens_cost_the_logarithm_of_two_each():
    result, seen = _score([*TEXT, 97, 98, 97])
    assert (result.tokens, result.scored) == (35, 3)
    assert result.nll == pytest.approx(3 * math.log(2))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert result.line() == "tokens=35 scored=3 nll=2.079441542 avg_nll=0.693147181 ppl=2.000000000"


@pytest.mark.parametrize(("limit", "context", "scored"), [(2, 200, 2), (100, 35, 3), (1, 33, 1)])
def test_the_limit_and_the_context_cap_it(limit, context, scored):
    assert _score([*TEXT, *[97] * 9], limit=limit, context=context)[0].scored == scored


def test_too_short_a_text_or_context_is_refused():
    for tokens, context in ((TEXT, 200), ([*TEXT, 97], 32), ([], 200)):
        with pytest.raises(UsageError, match="perplexity needs more than 32 of both"):
            _score(tokens, context=context)


def test_it_can_be_cancelled():
    wishes = iter([False] * 4)
    with pytest.raises(Cancelled):
        _score([*TEXT, *[97] * 9], cancelled=lambda: next(wishes, True))


def test_an_impossible_token_prints_infinity():
    assert Perplexity(40, 1, math.inf).line().endswith("nll=inf avg_nll=inf ppl=inf")
    assert Perplexity(40, 1, 1e6).line().endswith("ppl=inf")
