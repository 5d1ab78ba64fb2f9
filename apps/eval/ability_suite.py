"""`--suite embedded`: the abilities of the embedded model, with the share of right cases for each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from apps.eval.baselines import baseline_lines, read_baselines
from apps.eval.case_run import ANSWER_TOKENS, ask_cases, case_name, context_for, result_fields
from apps.trace import Trace
from shared.abilities.case import AbilityCase, first_of_each, read_cases
from shared.abilities.run import CaseResult
from shared.session import CancelCheck, Engine
from shared.text.tokenizer import Tokenizer

FILE = Path(__file__).parent / "embedded.jsonl.gz"
# Of each ability so much must be right.
LEAST_SHARE = 0.95


@dataclass(frozen=True, slots=True)
class AbilitySuite:
    """Cases, and the tokens that each of the model's turns may take."""

    cases: Sequence[AbilityCase]
    tokens: int

    @classmethod
    def read(cls, count: int | None, tokens: int | None) -> AbilitySuite:
        """`count` cases of each ability, or all."""
        return cls(first_of_each(read_cases(FILE), count), tokens or ANSWER_TOKENS)

    def context_needed(self, tokenizer: Tokenizer) -> int:
        """Enough for the longest case."""
        return context_for(self.cases, self.tokens, tokenizer)

    def run(
        self, engine: Engine, context: int, *, as_json: bool, trace: Trace, cancelled: CancelCheck
    ) -> int:
        """Run all cases and print the shares; returns the exit code: 1 if an ability falls short. Raises
        Cancelled."""
        session = engine.open_session(context)
        results = ask_cases(
            engine, session, self.cases, self.tokens, verb="asked", trace=trace, cancelled=cancelled
        )
        shares = shares_of(results)
        if as_json:
            print(json.dumps(_record(engine, results, shares), indent=2))
        else:
            for result in results:
                if not result.passed:
                    print(f"FAILED {case_name(result.case)}", flush=True)
                    print(f"  wanted {result.wanted!r}\n  got    {result.got[:200]!r}")
            for name, share in shares.items():
                print(f"{share_line(name, *share)}  {'passed' if _enough(*share) else 'FAILED'}")
            for line in baseline_lines(read_baselines()):
                print(line)
        abilities = {case.ability for case in self.cases}
        return 0 if all(_enough(*shares[name]) for name in abilities) else 1


def shares_of(results: Sequence[CaseResult]) -> dict[str, tuple[int, int]]:
    """Right cases and all of them, by ability; recall also by distance."""
    shares: dict[str, tuple[int, int]] = {}
    for result in results:
        names = [result.case.ability]
        distance, separator, _ = result.case.id.partition("-")
        if separator:
            names.append(f"{result.case.ability}@{distance}")
        for name in names:
            right, asked = shares.get(name, (0, 0))
            shares[name] = right + result.passed, asked + 1
    return shares


def share_line(name: str, right: int, asked: int) -> str:
    """A share as it is printed."""
    return f"{name:<16} {right}/{asked} {100 * right / asked:.1f} %"


def _enough(right: int, asked: int) -> bool:
    return right >= LEAST_SHARE * asked


def _record(
    engine: Engine, results: Sequence[CaseResult], shares: Mapping[str, tuple[int, int]]
) -> dict[str, object]:
    return {
        "model": engine.name,
        "backend": engine.backend,
        "abilities": {
            name: {"right": right, "asked": asked, "passed": _enough(right, asked)}
            for name, (right, asked) in shares.items()
        },
        "baselines": read_baselines(),
        "failed": [result_fields(result) for result in results if not result.passed],
    }
