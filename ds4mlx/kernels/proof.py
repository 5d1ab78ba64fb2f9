"""Kernels prove themselves on the device that is to run them: once each, on small inputs, against their
fallbacks. One that fails is left out, so a compiler's surprise costs speed and never an answer.

Verdicts are kept per device, system, MLX version and files of this package. Must not know: models, sessions.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import mlx.core as mx

from ds4mlx.arrays import arrays
from ds4mlx.kernels.difference import Incomparable, difference_of
from ds4mlx.kernels.kernel import Example, Maker
from ds4mlx.kernels.registry import OPERATIONS, operation


@dataclass(frozen=True, slots=True)
class Verdict:
    """On one operation: `failure` says in one line why its kernels may not run here, None that they may."""

    operation: str
    failure: str | None
    milliseconds: float


def verdicts(
    maker: Maker,
    cache: Path | None,
    *,
    operations: Sequence[str] = OPERATIONS,
    examples: Callable[[str], Iterable[Example]] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Verdict]:
    """On each of `operations`, from the file `cache` where it holds all of them, else by trying.

    Kept there if none failed in a trial: that may have a passing cause, and the next process tries again. One
    that ended the process is not tried again. A cache that cannot be read or written costs time only.
    """
    known = None if cache is None else _read(cache, operations)
    if known is not None:
        return known
    drawn = examples or (lambda name: operation(name).examples())
    died = set() if cache is None else _died(cache)
    found = []
    for name in operations:
        if name in died:
            found.append(Verdict(name, "the process ended while its kernels were tried", 0.0))
            continue
        with _noted(cache, name):
            found.append(_tried(name, drawn, maker, clock))
    if cache is not None and all(verdict.failure is None or verdict.operation in died for verdict in found):
        _write(cache, found)
        for note in _notes_of_the_dead(cache):
            with suppress(OSError):
                note.unlink()
    return found


@contextmanager
def _noted(cache: Path | None, operation: str) -> Iterator[None]:
    """While `operation` is tried a note beside the cache names it: if the process dies of it, the next one
    must not."""
    note = None if cache is None else cache.with_suffix(f".trying-{os.getpid()}")
    try:
        if note is not None:
            with suppress(OSError):
                note.parent.mkdir(parents=True, exist_ok=True)
                note.write_text(operation, encoding="utf-8")
        yield
    finally:
        if note is not None:
            with suppress(OSError):
                note.unlink(missing_ok=True)


def _died(cache: Path) -> set[str]:
    """Operations that a process was trying when it ended."""
    found = set()
    for note in _notes_of_the_dead(cache):
        with suppress(OSError, UnicodeDecodeError):
            found.add(note.read_text(encoding="utf-8"))
    return found


def _notes_of_the_dead(cache: Path) -> list[Path]:
    notes = cache.parent.glob(f"{cache.stem}.trying-*")
    numbered = ((note, note.suffix.removeprefix(".trying-")) for note in notes)
    return [note for note, process in numbered if process.isdigit() and not _lives(int(process))]


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _tried(
    name: str, examples: Callable[[str], Iterable[Example]], maker: Maker, clock: Callable[[], float]
) -> Verdict:
    started = clock()
    failure = None
    try:
        failure = next((found for example in examples(name) if (found := _differs(example, maker))), None)
    except Exception as reason:  # whatever a compiler or a driver throws: the fallback is there
        failure = f"{type(reason).__name__}: {' '.join(str(reason).split())[:300]}"
    return Verdict(name, failure, round((clock() - started) * 1e3, 3))


def _differs(example: Example, maker: Maker) -> str | None:
    """What is wrong with a kernel's results, None if nothing is."""
    found = list(arrays(example.build(maker)(*example.arguments)))
    expected = list(arrays(example.fallback(*example.arguments)))
    if len(found) != len(expected):
        return f"{example.label}: {len(found)} results, not {len(expected)}"
    for one, other in zip(found, expected, strict=True):
        problem = _array_differs(one, other, example.tolerance)
        if problem:
            return f"{example.label}: {problem}"
    return None


def _array_differs(found: mx.array, expected: mx.array, tolerance: float) -> str | None:
    try:
        difference = difference_of(found, expected)
    except Incomparable as reason:
        return str(reason)
    apart, allowed = difference.apart, difference.allowed(tolerance)
    return f"off by {apart:.3g}, {allowed:.3g} allowed" if apart > allowed else None


def _read(cache: Path, operations: Sequence[str]) -> list[Verdict] | None:
    try:
        held = [Verdict(**entry) for entry in json.loads(cache.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        return None
    return held if [verdict.operation for verdict in held] == list(operations) else None


def _write(cache: Path, found: list[Verdict]) -> None:
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        unfinished = cache.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps([asdict(verdict) for verdict in found], indent=1), encoding="utf-8")
        unfinished.replace(cache)
    except OSError:
        return
