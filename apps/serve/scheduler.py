"""Several turns on one engine: whose piece of work comes next.

Owns the rounds, and who may begin. Runs on the inference thread and never waits. Must not know: threads,
HTTP, what a piece of work is made of.
"""

from __future__ import annotations

from functools import partial

from apps.serve.errors import Failure
from apps.serve.job_queue import JobQueue
from apps.serve.jobs import Job
from apps.serve.log import describe
from apps.serve.patience import Patience
from apps.serve.run_turn import TurnRun, TurnTools
from shared.kv.live.prefill import ALONE, BESIDE_OTHERS
from shared.kv.live.slots import Slots


class Scheduler:
    """Turns on as many slots as there are, taken from `queue` in the order they came."""

    def __init__(self, queue: JobQueue, slots: Slots, tools: TurnTools) -> None:
        self._queue = queue
        self._slots = slots
        self._tools = tools
        self._patience = Patience(slots)
        self._turns: list[TurnRun] = []  # those in prefill in the order in which they get their pieces

    def round(self) -> None:
        """One token for every turn that decodes, an end for every one that nobody wants any more, then one
        piece of prefill for the turn that has waited for its own the longest."""
        for turn in [turn for turn in self._turns if turn.decoding or turn.cancelled]:
            self._advance(turn)
        self._begin()
        due = next((turn for turn in self._turns if not turn.decoding), None)
        if due is not None:
            self._turns.remove(due)
            self._turns.append(due)
            self._advance(due)

    def _begin(self) -> None:
        """Take those who wait, as far as there are slots and they had not better go on waiting."""
        waiting = self._queue.waiting()
        self._patience.keep(waiting)
        for job in waiting:
            if len(self._turns) == len(self._slots.slots):
                return
            if not self._patience.waits(job, self._turns) and self._queue.take(job):
                self._turns.append(self._turn(job))

    def _turn(self, job: Job) -> TurnRun:
        # Its place is free before its client knows: who asks again at once is not turned away.
        over = partial(self._queue.ended, job)
        return TurnRun(job, self._slots, self._tools, quantum=self._quantum, over=over)

    def _quantum(self) -> int:
        """Tokens of the next piece of prefill."""
        return BESIDE_OTHERS if any(turn.decoding for turn in self._turns) else ALONE

    def _advance(self, turn: TurnRun) -> None:
        goes_on = False
        try:
            goes_on = turn.advance()
        except Exception as error:
            # A fault of ours, not the engine's: the thread and all other turns must survive it.
            self._tools.log.error(f"internal error: {describe(error)} req={turn.job.request.id}")
            turn.job.fail(Failure(500, "internal error; the next request starts clean"))
        self._patience.worked(turn.last_work)
        if not goes_on:
            self._turns.remove(turn)
            self._queue.ended(turn.job)
