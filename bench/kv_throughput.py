"""How fast states of Flash's shape go to disk and come back, beside a plain copy of the same bytes.

A copy that a save is measured against is flushed to the disk like the save; one that a load is measured
against is not, and reads from memory what a load reads from memory. Each figure is the best of its rounds:
whatever else the machine does can only add to one.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from shared.kv.files.header import Reason
from shared.kv.store.policy import StoreSettings
from shared.kv.store.store import Key, KvStore
from shared.model.known_shapes import FLASH
from shared.model.shape import ModelShape
from shared.session import Session
from tests.support.stores import MODEL
from tests.support.synthetic_session import SyntheticSession, text_of

CONTEXT = 32768
AIM = 0.8


def measure(folder: Path, tokens: int, rounds: int, shape: ModelShape = FLASH) -> dict[str, Any]:
    """Ratios and MB/s of saves and loads of a state of `tokens`, with and without its checksum file."""
    session = SyntheticSession(CONTEXT, shape).become(bytes(i * 7 % 251 for i in range(tokens)))
    results: dict[str, Any] = {"tokens": tokens}
    for title, checksum in (("with checksum", True), ("without checksum", False)):
        settings = StoreSettings(budget_bytes=None, checksum=checksum)
        results[title] = _rounds(folder / f"{title} {tokens}", session, settings, rounds)
    return results


def _rounds(
    folder: Path, session: SyntheticSession, settings: StoreSettings, rounds: int
) -> dict[str, float]:
    folder.mkdir()
    store = KvStore(folder / "kv", MODEL, settings, say=lambda line: None, decode=text_of)
    timed = [_Round(store, session, folder / "copy") for _ in range(rounds)]
    store.close()
    megabytes = timed[0].size / 1e6
    save, load = min(one.save for one in timed), min(one.load for one in timed)
    return {
        "MB": round(megabytes, 1),
        "save MB/s": round(megabytes / save),
        "save ratio": round(min(one.flushed_copy for one in timed) / save, 2),
        "engine held ms": round(min(one.held for one in timed) * 1e3, 1),
        "load MB/s": round(megabytes / load),
        "load ratio": round(min(one.copy for one in timed) / load, 2),
    }


class _Round:
    """One save, one load and a copy beside each; seconds. The engine waits for the part `held` of the save,
    the writer does the rest."""

    def __init__(self, store: KvStore, session: SyntheticSession, copy: Path) -> None:
        for path in store.directory.glob("*.kv*"):
            path.unlink()
        text = text_of(session.tokens)
        started = time.perf_counter()
        saved = store.save(cast(Session, session), Key(text), Reason.COLD)
        self.held = time.perf_counter() - started
        store.flush()
        self.save = time.perf_counter() - started
        assert saved.stored, saved.why
        (file,) = store.find(text, session.context)
        self.size = file.size
        self.flushed_copy = _seconds(lambda: _copy(file.path, copy, flush=True))
        copy.unlink()
        target = cast(Session, SyntheticSession(session.context, session.shape))
        self.load = _seconds(lambda: store.load(file, text, target, lambda tokens, file: True))
        assert target.tokens == session.tokens
        self.copy = _seconds(lambda: _copy(file.path, copy, flush=False))
        copy.unlink()


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _copy(source: Path, target: Path, *, flush: bool) -> None:
    shutil.copyfile(source, target)
    if flush:
        for place in (target, target.parent):
            handle = os.open(place, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)


def lines(results: list[dict[str, Any]]) -> list[str]:
    """The results as text, with a verdict for each ratio."""
    written = ["throughput beside a plain copy of the same bytes"]
    for result in results:
        for title in ("with checksum", "without checksum"):
            figures = result[title]
            written.append(f"  {result['tokens']} tokens, {figures['MB']} MB, {title}")
            for kind in ("save", "load"):
                ratio = figures[f"{kind} ratio"]
                verdict = "met" if ratio >= AIM else "MISSED"
                written.append(
                    f"    {kind}: {figures[f'{kind} MB/s']} MB/s, {ratio} of a copy (aim: {AIM}): {verdict}"
                )
            written.append(f"    a save holds the engine for {figures['engine held ms']} ms")
    return written
