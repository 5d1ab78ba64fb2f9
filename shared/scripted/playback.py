"""Where one session stands in the script: the turn in play, the place in it, and what comes next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shared.sampling import Sampling, choose
from shared.scripted.cast import Cast, TakenTurn, last_message
from shared.scripted.steps import Cursor


class Place(NamedTuple):
    """A turn and the place in it; no turn before the first prompt and after a load without one."""

    turn: TakenTurn | None = None
    cursor: Cursor = Cursor()


class ScriptedPick:
    """The tokens of one step. Reading them waits for the step's delay, once, and meets its fault."""

    def __init__(self, tokens: list[int], after: Place, wait: Callable[[], None]) -> None:
        self.step = tokens
        self.after = after
        self._wait: Callable[[], None] | None = wait

    def value(self) -> int:
        return self.tokens()[0]

    def tokens(self) -> list[int]:
        if self._wait is not None:
            self._wait()
            self._wait = None
        return list(self.step)


class Playback:
    """The script as one session plays it. Turns are dealt by the engine's `cast`, shared by its sessions."""

    def __init__(self, cast: Cast) -> None:
        self.place = Place()
        self._cast = cast
        # The prompt of the last sync while nothing else has happened: a longer one continues its request.
        self._prompt: list[int] | None = None

    def begin(self, prompt: list[int]) -> TakenTurn:
        """The prefill of a prompt starts: take a turn, or go on with the one of the same request."""
        message, before = self._message(prompt), self._prompt
        if self.place.turn is not None and before is not None and prompt[: len(before)] == before:
            turn = self._cast.retake(self.place.turn, message)
        else:
            turn = self._cast.take(message)
        self.place = Place(turn)
        self._prompt = None
        return turn

    def prompted(self, prompt: list[int]) -> None:
        """The prefill is done."""
        self._prompt = prompt

    def decoding(self, timeline: Sequence[int]) -> TakenTurn:
        """The turn in play, now that the caller decodes; a loaded session without one takes it here."""
        self._prompt = None
        if self.place.turn is None:
            self.place = Place(self._cast.take(self._message(timeline)))
        turn = self.place.turn
        assert turn is not None
        return turn

    def _message(self, timeline: Sequence[int]) -> bytes:
        """What a turn is chosen by. A long prompt is synced in many steps: no search where nobody looks."""
        return last_message(timeline) if self._cast.looks_at_messages else b""

    def move(self, place: Place) -> None:
        """Go to another place: forward by a step, or back to an earlier one."""
        self.place = place
        self._prompt = None

    def for_load(self) -> TakenTurn:
        """The turn whose failures a load obeys: the one in prefill, else the one that will come next."""
        if self.place.turn is not None and self._prompt is not None:
            return self.place.turn
        return self._cast.upcoming()

    def saved(self) -> tuple[int, Cursor]:
        """The place as numbers: 0 no turn, 1 the empty turn, else the turn's index + 2."""
        turn, cursor = self.place
        if turn is None:
            return 0, cursor
        return (1 if turn.index is None else turn.index + 2), cursor

    def restore(self, number: int, cursor: Cursor) -> None:
        """Back to saved numbers, as far as the script has such a place."""
        turn = self._cast.turn(None if number == 1 else number - 2) if number else None
        self.move(Place() if turn is None or not turn.steps.has(cursor) else Place(turn, cursor))

    def next_step(
        self,
        turn: TakenTurn,
        room: int,
        sampling: Sampling,
        uniform: float,
        allowed: npt.NDArray[np.bool_] | None,
    ) -> tuple[list[int], Place]:
        """At most `room` tokens that come next and the place after them; none if the mask allows none."""
        steps, cursor = turn.steps, self.place.cursor
        rests = {alternative: steps.rest(cursor, alternative) for alternative in steps.possible(cursor)}
        if steps.sampled(cursor):
            if allowed is not None and not allowed.any():
                return [], self.place
            token = choose(steps.logits(cursor), sampling, uniform, allowed)
            chosen = next((i for i, rest in rests.items() if rest[0] == token), None)
            if chosen is None:
                return [token], Place(turn, Cursor(cursor.step + 1))
        else:
            chosen = next((i for i, rest in rests.items() if allowed is None or allowed[rest[0]]), None)
            if chosen is None:
                return [], self.place
        # A mask is made for one token only.
        step = list(rests[chosen][: room if allowed is None else 1])
        return step, Place(turn, steps.after(cursor, chosen, len(step)))
