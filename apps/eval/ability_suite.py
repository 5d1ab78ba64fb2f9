"""`--suite embedded`: the abilities of the embedded model, with the share of right cases for each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from apps.eval.case_progress import case_progress
from apps.trace import Trace
from shared.abilities.case import AbilityCase, first_of_each, read_cases
from shared.abilities.run import CaseResult, case_tokens, run_case
from shared.session import CancelCheck, Engine
from shared.text.tokenizer import Tokenizer

FILE = Path(__file__).parent / "embedded.jsonl.gz"
ANSWER_TOKENS = 256
# Of each ability so much must be right.
LEAST_SHARE = 0.95
_ROOM_FOR_A_RESULT = 256
_PROFILES = ("preview", "official")


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
        """Enough for the longest case with two turns of the model and a tool's result."""
        longest = 0
        with case_progress("measured", len(self.cases)) as advance:
            for case in self.cases:
                lengths = (len(case_tokens(tokenizer, case, profile)) for profile in _PROFILES)
                longest = max(longest, *lengths)
                advance(_name(case))
        return longest + 2 * self.tokens + _ROOM_FOR_A_RESULT

    def run(
        self, engine: Engine, context: int, *, as_json: bool, trace: Trace, cancelled: CancelCheck
    ) -> int:
        """Run all cases and print the shares; returns the exit code: 1 if an ability falls short. Raises
        Cancelled."""
        results = []
        with (
            closing(engine.open_session(context)) as session,
            case_progress("asked", len(self.cases)) as advance,
        ):
            for case in self.cases:
                result = run_case(engine, session, case, self.tokens, cancelled)
                results.append(result)
                trace.write("case", **_fields(result), generated_tokens=result.generated)
                advance(f"{_name(case)} {'ok' if result.passed else 'FAILED'}")
        shares = shares_of(results)
        if as_json:
            print(json.dumps(_record(engine, results, shares), indent=2))
        else:
            for result in results:
                if not result.passed:
                    print(f"FAILED {_name(result.case)}", flush=True)
                    print(f"  wanted {result.wanted!r}\n  got    {result.got[:200]!r}")
            for ability, (right, asked) in shares.items():
                print(f"{ability:<12} {right}/{asked} {100 * right / asked:.1f} %")
        abilities = {case.ability for case in self.cases}
        good = all(shares[name][0] >= LEAST_SHARE * shares[name][1] for name in abilities)
        return 0 if good else 1


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


def _name(case: AbilityCase) -> str:
    return f"{case.ability}/{case.id}"


def _fields(result: CaseResult) -> dict[str, object]:
    return {
        "ability": result.case.ability,
        "id": result.case.id,
        "passed": result.passed,
        "wanted": result.wanted,
        "got": result.got,
    }


def _record(
    engine: Engine, results: Sequence[CaseResult], shares: Mapping[str, tuple[int, int]]
) -> dict[str, object]:
    return {
        "model": engine.name,
        "backend": engine.backend,
        "abilities": {name: {"right": right, "asked": asked} for name, (right, asked) in shares.items()},
        "failed": [_fields(result) for result in results if not result.passed],
    }
