"""What became of every mutant of a text, as it is kept in a file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.ksim.mutants import Mutant
from tests.ksim.mutation_run import INVALID, KILLED, SAME, Key, Outcome
from tests.support.mutation.target import Target

# Of the mutants of a text, in which a single one may be more, and of all.
LARGEST_SHARE = 0.03
# How a mutant ends, one letter each in a result's `verdicts`.
COMPILER, QUICK, FULL, ENDED, SAME_CODE, SURVIVED = "c", "q", "f", "e", "s", "!"
WORDS = {
    COMPILER: "does not compile",
    QUICK: "killed by quick checks",
    FULL: "killed by full checks",
    ENDED: "killed by ending or silencing its process",
    SAME_CODE: "is the same machine code",
    SURVIVED: "survived",
}


def letter(outcome: Outcome) -> str:
    """The letter of an outcome."""
    if outcome.verdict == KILLED:
        return {"quick": QUICK, "full": FULL}.get(outcome.reason.partition(";")[0], ENDED)
    return {INVALID: COMPILER, SAME: SAME_CODE}.get(outcome.verdict, SURVIVED)


@dataclass(frozen=True, slots=True)
class Survivor:
    """A mutant that no case notices, and why none can."""

    mutant: Mutant
    proof: str

    def as_json(self) -> dict[str, Any]:
        rule, source, occurrence = self.mutant.key
        change = f"{self.mutant.before} -> {self.mutant.after}"
        return {
            "rule": rule,
            "line": source,
            "occurrence": occurrence,
            "change": change,
            "proof": self.proof,
        }


@dataclass(slots=True)
class Result:
    """All verdicts on one text.

    Attributes:
        name: of the target.
        digest: Target.digest when the verdicts were found.
        cases: how many mutants each case that uses the text killed.
        verdicts: a letter for each mutant, in the order of Target.mutants.
        survivors: those of the letter SURVIVED, in the same order.
    """

    name: str
    digest: str
    cases: dict[str, int]
    verdicts: str
    rules: Sequence[str]
    survivors: list[Survivor] = field(default_factory=list)

    def counted(self) -> int:
        """How many mutants are kernels, and other ones."""
        return len(self.verdicts) - self.verdicts.count(COMPILER) - self.verdicts.count(SAME_CODE)

    def share(self) -> float:
        """Survivors among those that count."""
        return self.verdicts.count(SURVIVED) / max(self.counted(), 1)

    def too_many(self) -> bool:
        """Whether more survive than a text may have without being an exception."""
        return len(self.survivors) > max(1.0, LARGEST_SHARE * self.counted())

    def killers(self, target: Target) -> list[str]:
        """Cases that killed mutants, most first; those that were renamed since are left out."""
        known = target.cases()
        return [case for case, kills in self.cases.items() if kills and case in known]

    def table(self) -> dict[str, dict[str, int]]:
        """How many mutants of each rule ended how."""
        table: dict[str, Counter[str]] = {}
        for rule, verdict in zip(self.rules, self.verdicts, strict=True):
            table.setdefault(rule, Counter())[verdict] += 1
        return {
            rule: {"made": counts.total()} | {WORDS[key]: counts[key] for key in WORDS if counts[key]}
            for rule, counts in sorted(table.items())
        }

    def as_json(self) -> dict[str, Any]:
        return {
            "kernel": self.name,
            "digest": self.digest,
            "rules": self.table(),
            "cases": dict(sorted(self.cases.items(), key=lambda item: -item[1])),
            "verdicts": self.verdicts,
            "survivors": [survivor.as_json() for survivor in self.survivors],
        }


def _kills(outcomes: Sequence[Outcome]) -> Counter[str]:
    """How many of the mutants each case killed."""
    return Counter(outcome.reason.split("; ")[1] for outcome in outcomes if letter(outcome) in (QUICK, FULL))


def from_outcomes(target: Target, cases: Sequence[str], outcomes: Sequence[Outcome]) -> Result:
    """The result of a whole run, with the proofs that the file held before."""
    kills, known = _kills(outcomes), proofs(target)
    return Result(
        target.name,
        target.digest(),
        {case: kills[case] for case in cases},
        "".join(map(letter, outcomes)),
        [outcome.mutant.rule for outcome in outcomes],
        [
            Survivor(outcome.mutant, known.get(outcome.mutant.key, ""))
            for outcome in outcomes
            if letter(outcome) == SURVIVED
        ],
    )


def replaced(target: Target, kept: Result, outcomes: Sequence[Outcome]) -> Result:
    """A kept result in which some mutants ended as in `outcomes`."""
    anew = {outcome.mutant.key: letter(outcome) for outcome in outcomes}
    kills = Counter(kept.cases) + _kills(outcomes)
    verdicts = (
        anew.get(mutant.key, old) for mutant, old in zip(target.mutants(), kept.verdicts, strict=True)
    )
    survivors = [one for one in kept.survivors if anew.get(one.mutant.key, SURVIVED) == SURVIVED]
    cases = {case: kills[case] for case in [*kept.cases, *(new for new in kills if new not in kept.cases)]}
    return Result(kept.name, kept.digest, cases, "".join(verdicts), kept.rules, survivors)


def write(target: Target, result: Result) -> None:
    text = json.dumps(result.as_json(), indent=1, ensure_ascii=False)
    target.result.write_text(text + "\n", encoding="utf-8")


def _kept(target: Target) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(target.result.read_text(encoding="utf-8"))
    return loaded


def proofs(target: Target) -> dict[Key, str]:
    """The proofs of a target's result, by mutant; none if there is no result yet."""
    if not target.result.exists():
        return {}
    return {(s["rule"], s["line"], s["occurrence"]): s["proof"] for s in _kept(target)["survivors"]}


def read(target: Target) -> Result:
    """The kept result of a target, whose text must be what it was then.

    Raises:
        FileNotFoundError: there is none.
        ValueError: the text has changed since.
    """
    kept = _kept(target)
    if kept["digest"] != target.digest():
        raise ValueError(f"{target.name} has changed: run `python -m {target.program} {target.name}`")
    made, known = target.mutants(), proofs(target)
    survivors = [
        Survivor(mutant, known.get(mutant.key, ""))
        for mutant, verdict in zip(made, kept["verdicts"], strict=True)
        if verdict == SURVIVED
    ]
    rules = [mutant.rule for mutant in made]
    return Result(target.name, kept["digest"], kept["cases"], kept["verdicts"], rules, survivors)
