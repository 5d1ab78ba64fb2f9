"""The state that the board shows: questions and outcomes, what is selected, what runs. Knows no terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from shared.questions.question import Question
from shared.questions.run import AskSettings, Outcome, Watcher
from shared.text.events import TextDelta, ThinkingDelta, TurnEvent

Phase = Literal["", "FILL", "THINK", "ANS", "PASS", "FAIL"]

# Characters of the running answer that are kept to be shown; more than a screen holds.
_KEPT = 8000
_PIECE = 256


class RunClock:
    """Seconds since the start, pauses left out."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = clock()
        self._paused_at: float | None = None

    def __call__(self) -> float:
        now = self._clock() if self._paused_at is None else self._paused_at
        return now - self._started

    @property
    def paused(self) -> bool:
        return self._paused_at is not None

    def switch(self) -> None:
        """Pause, or go on."""
        if self._paused_at is None:
            self._paused_at = self._clock()
        else:
            self._started += self._clock() - self._paused_at
            self._paused_at = None


@dataclass
class Board(Watcher):
    """Told of a question by `begin`, then as its watcher, then by `end`."""

    questions: Sequence[Question]
    settings: AskSettings
    clock: RunClock
    changed: Callable[[], None] = lambda: None
    selected: int = 0
    follows: bool = True  # the selection goes with the run, until it is moved
    current: int | None = None
    phase: Phase = ""
    done: int = 0
    total: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    stream: deque[tuple[str, bool]] = field(default_factory=deque)  # text, and whether it is thinking
    _since: float = 0.0
    _kept: int = 0

    def __post_init__(self) -> None:
        self.outcomes = [Outcome("PENDING")] * len(self.questions)

    @property
    def speed(self) -> float:
        """Tokens a second of the present phase."""
        seconds = self.clock() - self._since
        return self.done / seconds if seconds > 0 else 0.0

    @property
    def shown(self) -> int:
        """The question on the right: the one that runs, else the selected one."""
        return self.selected if self.current is None else self.current

    def count(self, status: str) -> int:
        return sum(outcome.status == status for outcome in self.outcomes)

    def select(self, step: int) -> None:
        """Move the selection by `step`, as far as there are questions."""
        self.follows = False
        self.selected = min(max(self.selected + step, 0), len(self.questions) - 1)

    def begin(self, index: int) -> None:
        """The question that runs from now on."""
        self.current = index
        self.follows = self.follows or index == self.selected
        if self.follows:
            self.selected = index
        self.outcomes[index] = Outcome("PREFILL")
        self._enter("FILL", 0, 0)
        self.stream.clear()
        self._kept = 0
        self.changed()

    def prefill(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        self.changed()

    def token(self, events: Sequence[TurnEvent], generated: int, thinking: bool) -> None:
        assert self.current is not None, "tokens belong to the question that runs"
        limits = self.settings.limits
        if self.phase == "FILL":
            self._enter("THINK" if thinking else "ANS", 0, 0)
            self.outcomes[self.current] = Outcome("RUNNING")
        self.phase = "THINK" if thinking else "ANS"
        # What is kept for the answer is no room to think in.
        self.done, self.total = generated, limits.tokens - (limits.hard if thinking else 0)
        for event in events:
            if isinstance(event, ThinkingDelta | TextDelta):
                self._keep(event.text, isinstance(event, ThinkingDelta))
        self.changed()

    def end(self, index: int, outcome: Outcome) -> None:
        """What came of the question that ran."""
        self.current = None
        self.outcomes[index] = outcome
        self.phase = "PASS" if outcome.status == "PASSED" else "FAIL" if outcome.status == "FAILED" else ""
        self.changed()

    def _enter(self, phase: Phase, done: int, total: int) -> None:
        self.phase, self.done, self.total = phase, done, total
        self._since = self.clock()

    def _keep(self, text: str, thinking: bool) -> None:
        last, kind = self.stream[-1] if self.stream else ("", not thinking)
        if kind is thinking and len(last) < _PIECE:
            # One piece for many tokens: every piece is styled by itself in every frame.
            self.stream[-1] = (last + text, thinking)
        else:
            self.stream.append((text, thinking))
        self._kept += len(text)
        while self._kept - len(self.stream[0][0]) > _KEPT:
            self._kept -= len(self.stream.popleft()[0])
