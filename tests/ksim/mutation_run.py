"""Runs a check on each mutant in processes of their own, and keeps what came out.

A mutant may crash, loop or corrupt memory: a worker that does not answer in time is ended and replaced. One
that passes is compiled without the simulator's checks and compared with the original: the same machine code
is the same kernel, and is not counted.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tests.ksim import build
from tests.ksim.errors import KernelError
from tests.ksim.mutants import Mutant
from tests.ksim.mutation_code import machine_code

Check = Callable[[str], None]
Key = tuple[str, str, int]
KILLED, SURVIVED, INVALID, SAME = "killed", "survived", "invalid", "same code"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant: "killed", "survived", "invalid" (does not compile) or "same code"."""

    mutant: Mutant
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True)
class MutationResult:
    """All outcomes for one kernel, with the proofs that its survivors are equivalent."""

    kernel: str
    source: str  # sha256 of the unbroken text
    outcomes: tuple[Outcome, ...]
    equivalents: Mapping[Key, str] = field(default_factory=dict)

    def counts(self) -> dict[str, dict[str, int]]:
        """Outcomes by rule and verdict."""
        table: dict[str, Counter[str]] = {}
        for outcome in self.outcomes:
            table.setdefault(outcome.mutant.rule, Counter())[outcome.verdict] += 1
        return {rule: dict(sorted(counter.items())) for rule, counter in sorted(table.items())}

    def survivors(self) -> list[Mutant]:
        """Mutants that passed the check though their code differs."""
        return [outcome.mutant for outcome in self.outcomes if outcome.verdict == SURVIVED]

    def unproved(self) -> list[Mutant]:
        """Survivors without a proof of equivalence."""
        return [mutant for mutant in self.survivors() if not self.equivalents.get(mutant.key)]

    def as_json(self) -> dict[str, Any]:
        """The file's contents."""
        survivors = [
            {
                **dict(zip(("rule", "text", "occurrence"), mutant.key, strict=True)),
                "line": mutant.line,
                "before": mutant.before,
                "after": mutant.after,
                "equivalent": self.equivalents.get(mutant.key, ""),
            }
            for mutant in self.survivors()
        ]
        return {"kernel": self.kernel, "source": self.source, "counts": self.counts(), "survivors": survivors}

    def write(self, path: Path) -> None:
        """Writes the result; proofs that the file held before are lost unless they were read first."""
        path.write_text(json.dumps(self.as_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_equivalents(path: Path) -> dict[Key, str]:
    """The proofs in a result file, none if there is no file."""
    if not path.exists():
        return {}
    survivors = json.loads(path.read_text(encoding="utf-8"))["survivors"]
    return {(s["rule"], s["text"], s["occurrence"]): s["equivalent"] for s in survivors if s["equivalent"]}


def text_digest(text: str) -> str:
    """How a result names the text that it is about."""
    return hashlib.sha256(text.encode()).hexdigest()


def _judge(check: Check, text: str) -> tuple[str, str]:
    try:
        check(text)
    except KernelError as error:
        compiles = "does not compile" not in str(error)
        return (KILLED if compiles else INVALID), str(error).splitlines()[0]
    except Exception as error:  # whatever the check finds, or trips over, is found
        return KILLED, f"{type(error).__name__}: {str(error).splitlines()[:1]}"
    return SURVIVED, ""


def _work(connection: Connection, check: Check, original: str, deadline: float, folder: str) -> None:
    """A worker: texts come in, verdicts go out."""
    from tests.ksim.executor import limits

    limits.deadline = deadline
    build.requests.clear()
    connection.send(_judge(check, original))
    unbroken = list(build.requests)
    build.kernel_folder = Path(folder)  # what is broken is not kept
    while True:
        text = connection.recv()
        build.requests.clear()
        verdict, reason = _judge(check, text)
        if verdict == SURVIVED and machine_code(build.requests) == machine_code(unbroken):
            verdict = SAME
        connection.send((verdict, reason))


class _Worker:
    """A process that judges texts, started anew after one that it did not survive."""

    def __init__(self, check: Check, original: str, deadline: float, patience: float, folder: str) -> None:
        self._arguments = (check, original, deadline, folder)
        self._patience = patience
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Any = None

    def start(self) -> None:
        """Starts a process and has it judge the unbroken text, which must pass."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, *self._arguments), daemon=True)
        self._process.start()
        theirs.close()
        verdict, reason = self._connection.recv()
        if verdict != SURVIVED:
            self.stop()
            raise RuntimeError(f"the check does not pass the unbroken text: {reason}")

    def judge(self, text: str) -> tuple[str, str]:
        if self._process is None:
            self.start()
        self._connection.send(text)
        try:
            if self._connection.poll(self._patience):
                verdict, reason = self._connection.recv()
                return str(verdict), str(reason)
            answer = KILLED, "no answer in time"
        except (EOFError, OSError):
            answer = KILLED, "crashed"
        self.stop()
        return answer

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._process = None


def run_mutants(
    kernel: str,
    original: str,
    of: Sequence[Mutant],
    check: Check,
    *,
    workers: int = 1,
    deadline: float = 20.0,
    patience: float = 900.0,
    equivalents: Mapping[Key, str] | None = None,
) -> MutationResult:
    """Judges each mutant.

    Args:
        kernel: its name, for the result.
        original: the unbroken text.
        of: mutants of it, all or a sample.
        check: takes a text and raises if the kernel is wrong; a function that another process can import.
        workers: processes at a time.
        deadline: seconds of processor time that a launch may take.
        patience: seconds that a worker may be silent, on a machine that does other things too.
        equivalents: proofs by Mutant.key.

    Raises:
        RuntimeError: `check` does not pass the unbroken text.
    """
    with tempfile.TemporaryDirectory() as folder:
        crew = [_Worker(check, original, deadline, patience, folder) for _ in range(max(1, workers))]
        outcomes = _all_judged(of, crew)
    return MutationResult(kernel, text_digest(original), outcomes, dict(equivalents or {}))


def _all_judged(of: Sequence[Mutant], crew: Sequence[_Worker]) -> tuple[Outcome, ...]:
    idle: SimpleQueue[_Worker] = SimpleQueue()
    for worker in crew:
        idle.put(worker)

    def judged(mutant: Mutant) -> Outcome:
        worker = idle.get()
        try:
            return Outcome(mutant, *worker.judge(mutant.text))
        finally:
            idle.put(worker)

    try:
        with ThreadPoolExecutor(len(crew)) as threads:
            return tuple(threads.map(judged, of))
    finally:
        for worker in crew:
            worker.stop()
