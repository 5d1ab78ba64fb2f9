"""A process that uses a store without end, to be killed at any moment.

Run as a program it loads everything once and then forks: each line of its input is one JSON `Task`, answered
by the pid of the child at work and, when that is dead, by the signal that ended it. The child may kill itself
at a given line of the store's code, so that every moment between two lines can be met on purpose.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, cast

import shared.kv
from shared.kv.files.header import Reason
from shared.kv.store.policy import StoreSettings
from shared.kv.store.store import Key, KvStore
from shared.session import Session
from tests.support.stores import MODEL, load_best
from tests.support.synthetic_session import SyntheticSession, text_of

BUDGET = 800_000  # bytes: room for about four of the files
SETTINGS = StoreSettings(min_tokens=16, cold_max_tokens=1000, budget_bytes=BUDGET)
LONGEST = 400
CONVERSATIONS = [random.Random(seed).randbytes(LONGEST) for seed in range(4)]
CONTEXTS = (512, 1024)
BLOCK = b"\n\n<tool_calls>one</tool_calls>"
# Where the directory is changed: between two lines there a death can leave something behind.
_CHANGING = {
    str(Path(shared.kv.__path__[0], name)): name
    for name in (
        *("files/cache_writer.py", "files/replacement.py", "files/checksum.py"),
        *("store/directory.py", "store/leftovers.py", "store/shelf.py"),
    )
}
_SURVEYED = 150  # pieces of work


class Place(NamedTuple):
    """A line of the store's code; `file` is its name within `shared/kv`."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Task:
    """Work in `directory` until the `visit`-th time at `place`, if that comes; without one, until killed."""

    directory: str
    seed: int
    place: Place | None = None
    visit: int = 1


def open_store(directory: Path, said: list[str]) -> KvStore:
    return KvStore(directory, MODEL, SETTINGS, say=said.append, decode=text_of)


def work(store: KvStore, source: random.Random) -> None:
    """One thing that a program does with its store."""
    conversation = source.choice(CONVERSATIONS)
    if source.random() < 0.3:
        load_best(store, conversation, max(CONTEXTS))
        return
    tokens = conversation[: source.randrange(20, LONGEST)]
    session = SyntheticSession(source.choice(CONTEXTS)).become(tokens)
    calls = {f"call_{source.randrange(9)}": BLOCK} if source.random() < 0.5 else {}
    reason = source.choice([Reason.COLD, Reason.CONTINUED, Reason.EVICT])
    store.save(cast(Session, session), Key(tokens), reason, tool_map=calls)
    if source.random() < 0.2:
        store.flush()


def watch_lines(seen: Callable[[Place], None]) -> None:
    """Tell `seen` of every line that is about to run where the directory is changed, in whatever thread."""

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        return line if frame.f_code.co_filename in _CHANGING else None

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            seen(Place(_CHANGING[frame.f_code.co_filename], frame.f_lineno))
        return line

    threading.settrace(enter)
    sys.settrace(enter)


def survey(directory: Path) -> dict[Place, int]:
    """The places that work in `directory` comes by, and how often."""
    visits: Counter[Place] = Counter()
    before, source = sys.gettrace(), random.Random(1)
    watch_lines(lambda place: visits.update([place]))
    try:
        store = open_store(directory, [])
        for _ in range(_SURVEYED):
            work(store, source)
        store.flush()
    finally:
        threading.settrace(before)  # type: ignore[arg-type]
        sys.settrace(before)
    store.close()
    return dict(sorted(visits.items()))


def die_at(place: Place, visit: int) -> None:
    """Kill this process when it comes by `place` for the `visit`-th time."""
    visits = itertools.count(1)

    def seen(other: Place) -> None:
        if other == place and next(visits) == visit:
            os.kill(os.getpid(), signal.SIGKILL)

    watch_lines(seen)


def work_until_killed(task: Task) -> None:
    if task.place is not None:
        die_at(Place(*task.place), task.visit)
    source = random.Random(task.seed)
    store = open_store(Path(task.directory), [])
    rounds = itertools.count() if task.place is None else range(2 * _SURVEYED)
    for _ in rounds:
        work(store, source)
    store.close()


class Zygote:
    """The test's end of the program."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def start(self, task: Task) -> int:
        """The pid of a child that has begun with `task`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(task)) + "\n")
        self._process.stdin.flush()
        return int(self._answer())

    def signal_of_the_end(self) -> int:
        """Wait for the child's end. 0: it ended by itself."""
        return int(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def zygote() -> Iterator[Zygote]:
    """The program, ready for tasks."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.crash_writer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        yield Zygote(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == 0


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            work_until_killed(Task(**json.loads(line)))
            return
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, flush=True)


if __name__ == "__main__":
    main()
