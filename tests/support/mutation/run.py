"""Runs mutants of kernel texts, keeps what became of them and shows it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence

from tests.ksim.mutants import Mutant, sample
from tests.ksim.mutation_run import Outcome, run_mutants
from tests.support.mutation.check import Check, used_cases
from tests.support.mutation.result import (
    QUICK,
    SAME_CODE,
    SURVIVED,
    WORDS,
    Result,
    from_outcomes,
    letter,
    read,
    replaced,
    write,
)
from tests.support.mutation.target import Target

# The longest launch of an unbroken kernel takes less than half a second of processor time.
_LAUNCH_SECONDS = 5.0
_ALIVE = (SAME_CODE, SURVIVED)


def judge(target: Target, of: Sequence[Mutant], cases: Sequence[str], jobs: int) -> tuple[Outcome, ...]:
    """Runs the named cases, in that order at first, on mutants of a target, `jobs` at a time."""
    check = Check(target, cases)
    return run_mutants(
        target.name, target.text, of, check, workers=min(jobs, len(of)), deadline=_LAUNCH_SECONDS
    ).outcomes


def run(target: Target, jobs: int) -> Result:
    """The result of all mutants of a target."""
    cases = used_cases(target)
    if target.result.exists():
        kept = json.loads(target.result.read_text(encoding="utf-8"))["cases"]
        cases.sort(key=lambda case: -kept.get(case, 0))
    return from_outcomes(target, cases, judge(target, target.mutants(), cases, jobs))


def run_unproved(target: Target, jobs: int) -> Result:
    """The kept result, with survivors that have no proof judged anew by cases that are sharper now."""
    kept = read(target)
    unproved = [survivor.mutant for survivor in kept.survivors if not survivor.proof]
    if not unproved:
        return kept
    outcomes = judge(target, unproved, used_cases(target), jobs)
    return replaced(target, kept, outcomes)


def assert_still_killed(target: Target) -> None:
    """One mutant that quick checks killed is killed by them today."""
    kept = read(target)
    noticed = [m for m, verdict in zip(target.mutants(), kept.verdicts, strict=True) if verdict == QUICK]
    (outcome,) = judge(target, sample(noticed, 1, seed=1), kept.killers(target), jobs=1)
    assert letter(outcome) == QUICK


def assert_ends_as_before(target: Target) -> None:
    """One mutant, whatever became of it, lives or dies as it did."""
    kept = read(target)
    before = dict(zip((mutant.text for mutant in target.mutants()), kept.verdicts, strict=True))
    chosen = sample(target.mutants(), 1, seed=2)
    expected = before[chosen[0].text]
    # One that was killed need only meet the cases that killed any.
    cases = used_cases(target) if expected in _ALIVE else kept.killers(target)
    (outcome,) = judge(target, chosen, cases, jobs=1)
    assert (letter(outcome) in _ALIVE) == (expected in _ALIVE), outcome.reason


def _selected(targets: Mapping[str, Target], names: Sequence[str]) -> list[Target]:
    """Raises SystemExit for a name that nothing begins with."""
    chosen = []
    for name in names or [""]:
        found = [target for key, target in targets.items() if f"{key}.".startswith(f"{name}.") or not name]
        if not found:
            raise SystemExit(f"no kernel text begins with {name}; there are {', '.join(targets)}")
        chosen += found
    return list(dict.fromkeys(chosen))


def _report(result: Result) -> str:
    """A line for each rule and survivor."""
    lines = [f"{result.name}: {len(result.verdicts)} mutants, {result.share():.1%} survive"]
    for rule, counts in result.table().items():
        lines.append(f"  {rule}: " + ", ".join(f"{count} {word}" for word, count in counts.items()))
    for survivor in result.survivors:
        mutant = survivor.mutant
        state = survivor.proof or "NO PROOF"
        lines.append(f"  {WORDS['!']}: line {mutant.line}: {mutant.source}")
        lines.append(f"    {mutant.rule}: {mutant.before} -> {mutant.after}: {state}")
    return "\n".join(lines)


def main(
    targets: Mapping[str, Target], program: str, about: str | None, arguments: Sequence[str] | None
) -> int:
    """The command line of the texts `targets`. Returns 0 if every survivor has a proof."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=about)
    parser.add_argument("kernel", nargs="*", help="names of texts or of their folders; default: all")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default 2)")
    parser.add_argument("--json", action="store_true", help="print results as JSON")
    parser.add_argument("--kept", action="store_true", help="show kept results; run nothing")
    parser.add_argument("--unproved", action="store_true", help="run kept survivors without a proof only")
    options = parser.parse_args(arguments)
    proved = True
    for target in _selected(targets, options.kernel):
        print(f"{target.name} ...", file=sys.stderr, flush=True)
        judged = run_unproved if options.unproved else run
        result = read(target) if options.kept else judged(target, options.jobs)
        if not options.kept:
            write(target, result)
        report = json.dumps(result.as_json(), ensure_ascii=False) if options.json else _report(result)
        print(report, flush=True)
        proved = proved and all(survivor.proof for survivor in result.survivors)
    return 0 if proved else 1
