"""Who had better wait although a slot is free: a prompt that begins as one in work does.

Two prompts of one conversation at the same time would compute the same beginning twice, at half the speed
each. The second waits for the first: while the beginning is being computed, and then for no more work than it
is spared, so that a wrong guess costs at most as much again, however long the first goes on.
Must not know: threads, how a turn is run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from apps.serve.jobs import Job
from apps.serve.run_turn import TurnRun
from shared.errors import Ds4Error
from shared.kv.live.slots import Slots

# Tokens of prefill that are not worth waiting for.
_WORTH_WAITING: Final = 1024


@dataclass(slots=True)
class _Wait:
    """For whom; whether that one's prompt was done when it was weighed; how much work is left to wait for."""

    holder: TurnRun
    decoding: bool
    left: int


class Patience:
    """Weighs each waiting job once for each turn it may wait for, and again when that one's prompt is done:
    then the beginning may be on disk, where all can have it."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._waits: dict[Job, _Wait] = {}

    def waits(self, job: Job, turns: Sequence[TurnRun]) -> bool:
        """Whether `job`, for which a slot is free, waits for one of `turns`."""
        wait = self._waits.get(job)
        if wait is None or wait.holder not in turns or wait.holder.decoding is not wait.decoding:
            new = self._weigh(job, turns)
            if wait is not None and new is not None:
                new.left = min(new.left, wait.left)
            if new is None:
                self._waits.pop(job, None)
                return False
            self._waits[job] = wait = new
        return wait.left > 0

    def worked(self, tokens: int) -> None:
        """The engine did the work of so many tokens of prefill."""
        for wait in self._waits.values():
            wait.left -= tokens

    def keep(self, waiting: Collection[Job]) -> None:
        """Forget all others."""
        if self._waits:
            self._waits = {job: self._waits[job] for job in waiting if job in self._waits}

    def _weigh(self, job: Job, turns: Sequence[TurnRun]) -> _Wait | None:
        others = [turn.job.request.prompt for turn in turns]
        try:
            spared = self._slots.spared_after(job.request.prompt, others, _WORTH_WAITING)
        except Ds4Error:
            return None  # the turn will meet the same trouble, and say so
        best: _Wait | None = None
        for turn, tokens in zip(turns, spared, strict=True):
            # What both begin with may have to be computed first: that is no time lost.
            left = tokens if turn.decoding else 2 * tokens
            if tokens >= _WORTH_WAITING and (best is None or left > best.left):
                best = _Wait(turn, turn.decoding, left)
        return best
