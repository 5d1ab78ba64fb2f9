"""Rounds of work, sudden death and inspection of a store's directory."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import NamedTuple, cast

from shared.kv.files.header import Reason
from shared.kv.store.directory import MARKER
from shared.kv.store.store import Key
from shared.session import Session
from tests.support.crash_writer import (
    BUDGET,
    CONTEXTS,
    CONVERSATIONS,
    LONGEST,
    Place,
    Task,
    Zygote,
    open_store,
)
from tests.support.kv_checker import check_cache_bytes
from tests.support.stores import load_best
from tests.support.synthetic_session import SMALL, SyntheticSession

_NO_PROCESS = 2**31 - 1
_LONGEST_LIFE = 0.15  # seconds; a child stores a file in a few milliseconds, or some tens on a busy machine


def die_at(place: Place, visits: int, zygote: Zygote, directory: Path, source: random.Random) -> bool:
    """A process works in `directory` and ends just before the line at `place` runs, one of the first `visits`
    times. False: it did not come by so often."""
    zygote.start(Task(str(directory), source.randrange(1 << 30), place, source.randint(1, min(3, visits))))
    return zygote.signal_of_the_end() == signal.SIGKILL


def die_from_outside(zygote: Zygote, directory: Path, source: random.Random) -> None:
    """A process works in `directory` and is killed in the middle of whatever it does, writes included."""
    pid = zygote.start(Task(str(directory), source.randrange(1 << 30)))
    time.sleep(source.uniform(0, _LONGEST_LIFE))
    os.kill(pid, signal.SIGKILL)
    assert zygote.signal_of_the_end() == signal.SIGKILL


def plant_leftovers(directory: Path) -> None:
    """What deaths at other times might have left: a temporary of a dead process, a checksum of no file, and
    nothing yet that names the model."""
    (directory / MARKER).unlink(missing_ok=True)
    (directory / f"{'a' * 40}.kv.tmp.{_NO_PROCESS}").write_bytes(bytes(BUDGET))
    (directory / f"{'b' * 40}.kv.sum").write_bytes(b"old")


class Found(NamedTuple):
    """What a death left: visible files, and temporaries of writes in work."""

    files: int
    leftovers: int


def inspect(directory: Path, source: random.Random) -> Found:
    """Whatever was left is whole, and the next start cleans up and works."""
    visible = sorted(directory.glob("*.kv"))
    leftovers = list(directory.glob("*.tmp.*"))
    for path in visible:
        problems = check_cache_bytes(path.read_bytes(), path.name, ratios=SMALL.compress_ratios)
        assert not problems, (path.name, problems)
    size_before = _size_of(directory)
    said: list[str] = []
    store = open_store(directory, said)
    assert not store.read_only
    remaining = sorted(directory.glob("*.kv"))
    if size_before <= BUDGET:
        assert remaining == visible, "a leftover counted against the budget"
    assert _size_of(directory) <= BUDGET
    sums = {path.name for path in directory.glob("*.sum")}
    assert not list(directory.glob("*.tmp.*"))
    assert sums <= {f"{path.name}.sum" for path in remaining}
    for conversation in CONVERSATIONS:
        best = [file.text_bytes for file in store.find(conversation, max(CONTEXTS))][:1]
        session = load_best(store, conversation, max(CONTEXTS))
        assert [len(session.tokens)] == best if session else not best
        assert session is None or session.is_genuine()
    fresh = source.randbytes(LONGEST)
    saved = store.save(cast(Session, SyntheticSession().become(fresh)), Key(fresh), Reason.SHUTDOWN)
    assert saved.stored, saved.why
    store.close()
    assert _size_of(directory) <= BUDGET
    assert not list(directory.glob("bad/*"))
    assert not [line for line in said if "failed" in line or "damaged" in line]
    _make_room(directory, source)
    return Found(len(visible), len(leftovers))


def _make_room(directory: Path, source: random.Random) -> None:
    """Throw away some files: in a full directory most states are not worth writing."""
    for path in directory.glob("*.kv"):
        if source.random() < 0.3:
            path.unlink()


def _size_of(directory: Path) -> int:
    """Bytes of the files that the budget is about."""
    return sum(path.stat().st_size for path in directory.glob("*.kv"))
