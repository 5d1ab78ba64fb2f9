"""Breaks kernels by rule and tells whether their tests notice: python -m tests.kernels.mutation [KERNEL ...].

A name ("attend" or "attend.prefill") stands for all texts that begin with it. Each result is written to
tests/kernels/mutants; a survivor needs a proof of equivalence there, by hand, or a sharper case.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from tests.kernels.mutation_check import Check, used_cases
from tests.kernels.mutation_results import WORDS, Result, from_outcomes, read, replaced, write
from tests.kernels.mutation_targets import Target, targets
from tests.ksim.mutants import Mutant
from tests.ksim.mutation_run import Outcome, run_mutants

# The longest launch of an unbroken kernel takes less than half a second of processor time.
_LAUNCH_SECONDS = 5.0


def judge(target: Target, of: Sequence[Mutant], cases: Sequence[str], jobs: int) -> tuple[Outcome, ...]:
    """Runs the named cases, in that order at first, on mutants of a target, `jobs` at a time."""
    check = Check(target.name, cases)
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


def _selected(names: Sequence[str]) -> list[Target]:
    """Raises SystemExit for a name that nothing begins with."""
    chosen = []
    for name in names or [""]:
        found = [target for key, target in targets().items() if f"{key}.".startswith(f"{name}.") or not name]
        if not found:
            raise SystemExit(f"no kernel text begins with {name}; there are {', '.join(targets())}")
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


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every survivor has a proof."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernels.mutation", description=__doc__)
    parser.add_argument("kernel", nargs="*", help="names of texts or of their folders; default: all")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default 2)")
    parser.add_argument("--json", action="store_true", help="print results as JSON")
    parser.add_argument("--kept", action="store_true", help="show kept results; run nothing")
    parser.add_argument("--unproved", action="store_true", help="run kept survivors without a proof only")
    options = parser.parse_args(arguments)
    proved = True
    for target in _selected(options.kernel):
        print(f"{target.name} ...", file=sys.stderr, flush=True)
        judged = run_unproved if options.unproved else run
        result = read(target) if options.kept else judged(target, options.jobs)
        if not options.kept:
            write(target, result)
        report = json.dumps(result.as_json(), ensure_ascii=False) if options.json else _report(result)
        print(report, flush=True)
        proved = proved and all(survivor.proof for survivor in result.survivors)
    return 0 if proved else 1


if __name__ == "__main__":
    raise SystemExit(main())
