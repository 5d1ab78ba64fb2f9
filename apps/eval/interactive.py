"""A run that is watched and steered on a terminal. Spec: apps §3.6.

Owns what the keys do and which question comes next. Knows no terminal: keys come from a function, and what is
to be seen goes to one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from apps.eval.board import Board, RunClock
from apps.eval.keys import Key, KeySource
from apps.eval.run import Run
from shared.questions.question import Question
from shared.questions.run import Outcome, ask
from shared.session import CancelCheck

# A terminal needs no more frames a second than eyes do, and a step of the model must not wait for them.
_FRAME_SECONDS = 0.05
_PAUSE_STEP_SECONDS = 0.05


class InteractiveRun:
    """Asks the questions of `run`; `show` draws the board, `told` gets each finished question."""

    def __init__(
        self,
        run: Run,
        *,
        keys: KeySource,
        show: Callable[[Board], None],
        told: Callable[[int, Question, Outcome], None],
        interrupted: CancelCheck,
        pause_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._run = run
        self._keys = keys
        self._show = show
        self._told = told
        self._interrupted = interrupted
        self._pause_seconds = pause_seconds
        self._clock = clock
        self._sleep = sleep
        self._quit = False
        self._queued: int | None = None  # to run next
        self._drawn_at = float("-inf")
        self.board = Board(run.questions, run.settings, RunClock(clock), changed=self._draw_sometimes)

    @property
    def seconds(self) -> float:
        """Of the run, pauses left out."""
        return self.board.clock()

    def play(self) -> list[Outcome]:
        """Ask until nothing is PENDING, or until it is stopped; an outcome for each question."""
        with closing(self._run.engine.open_session(self._run.context)) as session:
            while not self._stopped():
                index = self._next()
                if index is None:
                    break
                question = self.board.questions[index]
                self.board.begin(index)
                outcome = ask(
                    self._run.engine,
                    session,
                    question,
                    replace(self._run.settings, seed=self._run.settings.seed + index),
                    watcher=self.board,
                    cancelled=self._leave_question,
                    clock=self.board.clock,
                )
                if outcome.status == "STOPPED" and not self._quit and not self._interrupted():
                    outcome = Outcome("PENDING")  # another one was wanted first
                else:
                    self._told(index, question, outcome)
                self.board.end(index, outcome)
                self._rest()
        return list(self.board.outcomes)

    def _next(self) -> int | None:
        index, self._queued = self._queued, None
        if index is not None:
            return index
        return next((i for i, outcome in enumerate(self.board.outcomes) if outcome.status == "PENDING"), None)

    def _stopped(self) -> bool:
        self._handle_keys()
        return self._quit or self._interrupted()

    def _leave_question(self) -> bool:
        """Polled by the session and the decode loop."""
        return self._stopped() or self._queued is not None

    def _handle_keys(self) -> None:
        for key in self._keys():
            self._handle(key)
        while self.board.clock.paused and not self._quit and not self._interrupted():
            self._sleep(_PAUSE_STEP_SECONDS)
            for key in self._keys():
                self._handle(key)

    def _handle(self, key: Key) -> None:
        if key == "quit":
            self._quit = True
        elif key == "pause":
            self.board.clock.switch()
        elif key == "run":
            self._queued = self.board.selected
        else:
            self.board.select(-1 if key == "up" else 1)
        self._draw()

    def _rest(self) -> None:
        """Leaves time to see a verdict."""
        self._draw()
        if self._pause_seconds > 0 and not self._stopped() and self._queued is None:
            self._sleep(self._pause_seconds)

    def _draw_sometimes(self) -> None:
        if self._clock() - self._drawn_at >= _FRAME_SECONDS:
            self._draw()

    def _draw(self) -> None:
        self._drawn_at = self._clock()
        self._show(self.board)
