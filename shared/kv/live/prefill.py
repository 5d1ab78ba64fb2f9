"""The prefill of one turn, step by step, with the checkpoints and the saves that are due on its way.

Owns the order of things between `Slots.begin` and the first sampled token. Spec: kv §5, §9.2.
Must not know: dialects, requests, schedulers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Final

from shared.kv.files.header import Reason
from shared.kv.live.checkpoints import PointKind
from shared.kv.live.prefill_plan import Stop, cold_length, plan_stops
from shared.kv.live.report import ReuseReport
from shared.kv.live.slots import Slots
from shared.kv.live.start import Start
from shared.kv.store.outcomes import Saved
from shared.session import CancelCheck, Progress, Synced

# Tokens of one piece of work while nobody else waits for the engine, and while another turn decodes.
ALONE: Final = 4096
BESIDE_OTHERS: Final = 256
_FULL: Final = sys.maxsize


class Prefill:
    """Brings the session of `start` to the end of its prompt.

    `progress` counts the tokens behind the reused ones, first with 0 done. `quantum` is asked again and again
    how many tokens a piece of work may have: fewer while other turns are decoding.
    """

    def __init__(
        self,
        slots: Slots,
        start: Start,
        *,
        progress: Progress | None = None,
        cancelled: CancelCheck | None = None,
        quantum: Callable[[], int] = lambda: ALONE,
    ) -> None:
        self.start = start
        # Leading tokens that a checkpoint or a save of this turn now holds.
        self.secured = 0
        self._slots = slots
        self._slot = start.slot
        self._session = start.slot.session
        self._tokens = start.tokens
        self._progress = progress
        self._cancelled = cancelled
        self._quantum = quantum
        self._saved_bytes = start.saved.bytes if start.saved is not None else 0
        self._spent = 0  # tokens of the present piece of work

    def run(self) -> Synced:
        """All steps at once. Raises as `steps`."""
        for _ in self.steps():
            pass
        return self.synced

    @property
    def synced(self) -> Synced:
        """Tokens that were there already, and tokens computed so far."""
        reused = self.start.reused
        return Synced(reused, max(0, self._session.position - reused))

    def report(self) -> ReuseReport:
        """What happened so far, for the log."""
        start = self.start
        file = None if start.file is None else start.file.name
        reused, evaluated = self.synced
        return ReuseReport(start.source, start.slot.number, reused, evaluated, self._saved_bytes, file)

    def steps(self) -> Iterator[None]:
        """Yields between bounded pieces of work, so that other turns may work in between.

        A piece goes on over a stop if what follows still fits. Raises Cancelled (what is done stays, and is
        found again), ContextFullError, EngineFault: then tell `Slots.failed`.
        """
        counter, specials, settings = self._slot.counter, self._slots.tokenizer.specials, self._slots.settings
        cold = self._cold_length()
        if cold is not None:
            counter.suppress(cold)
        try:
            self._tell(0)
            self._mark_start()
            for stop in plan_stops(self._tokens, self.start.reused, cold, specials, settings):
                yield from self._sync(stop.position)
                self._duties(stop, cold)
        finally:
            # Without effect once the cold save is made.
            counter.restore()

    def _cold_length(self) -> int | None:
        """Where the state of a new conversation is saved. One whose first prefill was broken off before that
        is still new when it is asked again."""
        slot, slots, reused = self._slot, self._slots, self.start.reused
        known = 0 if slot.cold_due else reused
        cold = cold_length(self._tokens, known, slots.tokenizer.specials, slots.settings)
        slot.cold_due = cold is not None and cold > reused
        return cold if slot.cold_due else None

    def _sync(self, end: int) -> Iterator[None]:
        """Evaluate up to `end`, in steps that end at multiples of their size."""
        while True:
            quantum = max(1, self._quantum())
            base = self._session.position
            target = min(end, base - base % quantum + quantum)
            if self._spent and self._spent + target - base > quantum:
                yield
                self._spent = 0
                continue
            self._session.sync(self._tokens[:target], self._step_progress(base), quantum, self._cancelled)
            self._spent += target - base
            if target >= end:
                return

    def _step_progress(self, base: int) -> Progress:
        def tell(done: int, total: int) -> None:
            if done:
                self._tell(base + done - self.start.reused)

        return tell

    def _tell(self, done: int) -> None:
        total = len(self._tokens) - self.start.reused
        if self._progress is not None and total:
            self._progress(done, total)

    def _mark_start(self) -> None:
        """Remember what was there already where no stop will: a prompt known up to its last token, and what a
        file held, so that it is not read again for the next branch."""
        reused = self.start.reused
        if not reused or self._slot.checkpoints.end_at(reused):
            return
        if reused >= len(self._tokens) - 1:
            self._checkpoint(PointKind.PROMPT_END)
        elif self.start.file is not None:
            self._checkpoint(PointKind.ON_THE_WAY)

    def _duties(self, stop: Stop, cold: int | None) -> None:
        """What is due at a stop: the state is whole there, logits included."""
        if stop.kind is not None:
            self._checkpoint(stop.kind)
        trimmed = len(self._tokens) - stop.position
        if stop.position == cold:
            self._slot.cold_due = False
            saved = self._slots.save(self._slot, Reason.COLD, trimmed=trimmed)
            if saved.stored:
                self._slot.counter.stored(stop.position)
            else:
                self._slot.counter.restore()
            self._count(saved)
        elif (continued := self._slots.save_on_the_way(self._slot, trimmed=trimmed)) is not None:
            self._count(continued)

    def _checkpoint(self, kind: PointKind) -> None:
        self._slot.checkpoint(kind)
        self.secured = self._session.position

    def _count(self, saved: Saved) -> None:
        self._saved_bytes += saved.bytes
        if saved.stored:
            self.secured = self._session.position
            # A whole state was copied: that was a piece of work by itself.
            self._spent = _FULL
