"""Asks an engine the cases of an ability suite, one after the other, with progress and trace."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from apps.eval.case_progress import case_progress
from apps.trace import Trace
from shared.abilities.case import AbilityCase
from shared.abilities.run import CaseResult, case_tokens, run_case
from shared.session import CancelCheck, Engine, Session
from shared.text.tokenizer import Tokenizer

ANSWER_TOKENS = 256
_ROOM_FOR_A_RESULT = 256
_PROFILES = ("preview", "official")


def context_for(cases: Sequence[AbilityCase], tokens: int, tokenizer: Tokenizer) -> int:
    """Enough for the longest case with two turns of the model, of `tokens` each, and a tool's result."""
    longest = 0
    with case_progress("measured", len(cases)) as advance:
        for case in cases:
            lengths = (len(case_tokens(tokenizer, case, profile)) for profile in _PROFILES)
            longest = max(longest, *lengths)
            advance(case_name(case))
    return longest + 2 * tokens + _ROOM_FOR_A_RESULT


def ask_cases(
    engine: Engine,
    session: Session,
    cases: Sequence[AbilityCase],
    tokens: int,
    *,
    verb: str,
    trace: Trace,
    cancelled: CancelCheck,
) -> list[CaseResult]:
    """The results of all cases in `session`, which is closed then. Raises Cancelled."""
    results = []
    with closing(session), case_progress(verb, len(cases)) as advance:
        for case in cases:
            result = run_case(engine, session, case, tokens, cancelled)
            results.append(result)
            trace.write("case", asked=verb, **result_fields(result), generated_tokens=result.generated)
            advance(f"{case_name(case)} {'ok' if result.passed else 'FAILED'}")
    return results


def case_name(case: AbilityCase) -> str:
    return f"{case.ability}/{case.id}"


def result_fields(result: CaseResult) -> dict[str, object]:
    """A result as a trace and a JSON report hold it."""
    return {
        "ability": result.case.ability,
        "id": result.case.id,
        "passed": result.passed,
        "wanted": result.wanted,
        "got": result.got,
    }
