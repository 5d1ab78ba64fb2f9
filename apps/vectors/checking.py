"""Running all cases of a vector file and telling what came of them."""

from __future__ import annotations

import json
import sys

from apps.finite_json import finite
from apps.vectors.cases import Cases
from shared.evaluation.local_vectors import LocalCase
from shared.evaluation.vector_check import Verdict, check_local, check_official
from shared.session import CancelCheck, Engine, Progress


def check_all(engine: Engine, cases: Cases, *, as_json: bool, cancelled: CancelCheck) -> int:
    """Run `cases` and print a line for each, or one JSON object; returns the exit code. Raises Cancelled."""
    verdicts = []
    for case, prompt in cases.wanted:
        progress = prefill_progress(case.id)
        if isinstance(case, LocalCase):
            verdict = check_local(engine, case, prompt, progress, cancelled)
        else:
            verdict = check_official(engine, case, prompt, progress, cancelled)
        verdicts.append(verdict)
        if not as_json:
            print(_text(verdict), flush=True)
    failed = sum(not verdict.passed for verdict in verdicts)
    if as_json:
        print(json.dumps(finite(_record(engine, cases, verdicts)), indent=2))
    else:
        for name in cases.skipped:
            print(f"SKIPPED {name}")
        print(f"{len(verdicts) - failed} passed, {failed} failed, {len(cases.skipped)} skipped")
    return 1 if failed else 0


def prefill_progress(name: str) -> Progress:
    """Tells on stderr how far a long prompt is; of one that takes a single step nothing."""

    def show(done: int, total: int) -> None:
        if 0 < done < total:
            print(f"{name}: prefill {done}/{total}", file=sys.stderr, flush=True)

    return show


def _text(verdict: Verdict) -> str:
    figures = "".join(f" {name}={value:.6g}" for name, value in verdict.figures.items())
    lines = [f"{'PASSED' if verdict.passed else 'FAILED'} {verdict.id}{figures}"]
    return "\n  ".join(lines + verdict.problems)


def _record(engine: Engine, cases: Cases, verdicts: list[Verdict]) -> dict[str, object]:
    return {
        "model": engine.name,
        "backend": engine.backend,
        "format": cases.format,
        "cases": [
            {"id": verdict.id, "passed": verdict.passed, "problems": verdict.problems} | verdict.figures
            for verdict in verdicts
        ],
        "skipped": list(cases.skipped),
    }
