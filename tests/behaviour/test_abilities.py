"""What the embedded model is able to do, on cases that are held out, as `ds4 eval --suite embedded` judges
them: a sample every day, more in the long run."""

from __future__ import annotations

from contextlib import closing

import pytest

from apps.eval.ability_suite import LEAST_SHARE
from shared.abilities.case import AbilityCase
from shared.abilities.run import CaseResult, run_case
from tests.support.embedded_model import (
    ANSWER_TOKENS,
    CONTEXT,
    cases_of,
    engine,
    expectations,
    least_right,
)

# Cases of an ability, of near recall at one distance, and of far recall, whose texts take seconds to read.
_DAILY, _DAILY_NEAR = 3, 2
_LONG, _LONG_NEAR, _LONG_FAR = 24, 12, 5


def _asked(cases: list[AbilityCase]) -> list[CaseResult]:
    with closing(engine().open_session(CONTEXT)) as session:
        return [run_case(engine(), session, case, ANSWER_TOKENS, None) for case in cases]


def _check(name: str, cases: list[AbilityCase]) -> None:
    results = _asked(cases)
    wrong = [(result.wanted, result.got) for result in results if not result.passed]
    assert len(results) - len(wrong) >= least_right(name, len(results)), wrong


def _daily() -> list[str]:
    """The abilities, and near recall at the largest distance."""
    near = [name for name in expectations() if name.startswith("near recall@")]
    return [*(name for name in expectations() if "@" not in name), *near[-1:]]


@pytest.mark.parametrize("name", _daily())
def test_a_sample_of_each_ability(name: str) -> None:
    _check(name, cases_of(name)[: _DAILY_NEAR if "@" in name else _DAILY])


@pytest.mark.long
@pytest.mark.parametrize("name", expectations())
def test_each_ability(name: str) -> None:
    ability, _, distance = name.partition("@")
    count = _LONG if not distance else _LONG_FAR if ability == "recall" else _LONG_NEAR
    _check(name, cases_of(name)[-count:])


@pytest.mark.long
def test_two_runs_say_the_same() -> None:
    cases = [cases_of(name)[0] for name in expectations() if not name.startswith("recall@")]
    assert _asked(cases) == _asked(cases)


def test_nothing_is_expected_that_is_not_asked() -> None:
    assert all(cases_of(name) for name in expectations())
    assert all(0 < least <= 1 for least in expectations().values())
    assert LEAST_SHARE <= 1
