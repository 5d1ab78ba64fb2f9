"""Times of a session: prompts, decoded tokens, the same prompt again and again, and each kernel by itself.

Must not know: what the weights are, where results go.
"""

from __future__ import annotations

import hashlib
import time
from typing import Any

import numpy as np

from bench.device.counting import CountedCupy
from bench.device.lengths import Lengths
from ds4cuda.model import Model
from ds4cuda.session import CudaSession
from shared.errors import Cancelled
from shared.sampling import GREEDY

_REPEATS = 5
_WARM = 4  # decoded before the clock starts, so that graphs are captured


def prompt(count: int, vocabulary: int) -> list[int]:
    """Tokens that are the same each time."""
    return [int(token) for token in np.random.default_rng(count).integers(0, vocabulary, count)]


def prefill(model: Model, session: CudaSession, count: int, seconds: float) -> dict[str, Any]:
    """A prompt of so many tokens from the beginning, for at most so many seconds: what was evaluated then."""
    session.invalidate()
    steps: list[tuple[int, float]] = []
    started = time.perf_counter()

    def progress(done: int, total: int) -> None:
        model.device.synchronize()
        steps.append((done, time.perf_counter() - started))

    def late() -> bool:
        return time.perf_counter() - started > seconds

    cut_off = False
    try:
        session.sync(prompt(count, model.shape.vocabulary_size), progress, cancelled=late)
    except Cancelled:
        cut_off = True
    done, took = steps[-1]
    found: dict[str, Any] = {"tokens": done, "seconds": round(took, 4), "cut off": cut_off}
    if done:
        found["tokens/s"] = round(done / took, 1)
        before = steps[-2]
        found["tokens/s of the last step"] = round((done - before[0]) / (took - before[1]), 1)
    return found


def stand_at(session: CudaSession, position: int, vocabulary: int) -> None:
    """As after a prompt of so many tokens, which is not evaluated: caches hold zeros, which take as long to
    read as any other rows."""
    session.invalidate()
    session._restart([1] * position, np.zeros(vocabulary, np.float32))
    session._open().state.position = position


def decode(
    model: Model, session: CudaSession, cupy: CountedCupy, position: int, count: int, nbytes: int
) -> dict[str, Any]:
    """Greedy tokens from `position` on, each built before the one before it is known; `nbytes` are those that
    a step must read."""
    stand_at(session, position, model.shape.vocabulary_size)
    for _ in range(min(_WARM, count)):
        session.submit(session.pick(GREEDY))
    model.device.synchronize()
    cupy.counts.clear()
    started = time.perf_counter()
    for _ in range(count):
        session.submit(session.pick(GREEDY))
    counts = {name: number / count for name, number in cupy.counts.items()}
    built = time.perf_counter() - started
    model.device.synchronize()
    seconds = (time.perf_counter() - started) / count
    return {
        "tokens/s": round(1 / seconds, 2),
        "ms per token": round(1e3 * seconds, 3),
        "host ms per token": round(1e3 * built / count, 3),
        "bytes per token": nbytes,
        "GB/s": round(nbytes / seconds / 1e9, 1),
        "launches per token": counts.get("launches", 0) + counts.get("launches in graphs", 0),
        "of them by themselves": counts.get("launches", 0),
        "graphs per token": counts.get("graphs", 0),
        "copies per token": counts.get("copies", 0),
        "synchronisations per token": counts.get("waits", 0),
    }


def repeated(session: CudaSession, lengths: Lengths, vocabulary: int) -> dict[str, Any]:
    """The same prompt several times, continued greedily: the logits after each token are the same bytes."""
    digests, tokens = [], []
    for _ in range(_REPEATS):
        session.invalidate()
        session.sync(prompt(lengths.repeated_prompt, vocabulary))
        digest = hashlib.sha256(session.logits().tobytes())
        for _ in range(lengths.repeated):
            session.submit(session.pick(GREEDY))
            digest.update(session.logits().tobytes())
        digests.append(digest.hexdigest())
        tokens.append(session.tokens[lengths.repeated_prompt :])
    finite = bool(np.isfinite(session.logits()).all())
    return {"runs": _REPEATS, "equal": len(set(digests)) == 1, "finite": finite, "tokens": tokens[0]}


def kernels(model: Model, cupy: CountedCupy, position: int, count: int, rounds: int) -> dict[str, Any]:
    """Of a step of `count` tokens that ends at `position`, launched one by one: launches and
    microseconds of each kernel, the slowest first. Least of `rounds`, after one that is not told."""
    state = model.open_state(position + 1)
    start = position - count
    if count > 1:
        model.device.write(model.scratch("tokens", count), np.ones(count, np.int32))
    found: list[dict[str, list[float]]] = []
    for _ in range(rounds + 1):
        with cupy.timed_launches() as times:
            model.begin(start, count, 1 if count == 1 else -1)
            model.forward(state, model.step(start, count))
        found.append(times)
    told = {
        name: {
            "launches": len(launches),
            "us": round(1e6 * min(sum(times[name]) for times in found[1:]), 2),
        }
        for name, launches in found[-1].items()
    }
    return dict(sorted(told.items(), key=lambda item: -item[1]["us"]))
