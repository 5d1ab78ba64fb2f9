"""Which turn of the script a prefill takes, and how often each kind of work of a turn has been done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shared.scripted.script import Script, Turn
from shared.scripted.steps import Cursor, Steps
from shared.scripted.vocabulary import CONTROL, tokenizer
from shared.text import marks


class TakenTurn:
    """A turn in play. `index` is its place in the script, None for the empty turn after the last one."""

    def __init__(self, index: int | None, turn: Turn) -> None:
        self.index = index
        self.turn = turn
        self.steps = Steps(turn.pieces, turn.eos)
        self._stalled = False
        self._done: Counter[str] = Counter()

    def strikes(self, at: str) -> bool:
        """Count one unit of work of a kind; True if it is the one that the script lets fail."""
        number = self._done[at]
        self._done[at] += 1
        fail = self.turn.fail
        return fail is not None and fail.at == at and fail.after == number

    def stalls(self) -> bool:
        """True once: for the prefill step that takes the turn's long block."""
        stalls, self._stalled = not self._stalled, True
        return stalls

    def fails_piece(self, number: int) -> bool:
        """Whether a fault strikes instead of a decode piece, however often it is asked."""
        fail = self.turn.fail
        return fail is not None and fail.at == "decode" and fail.after == number

    def piece_delay(self, cursor: Cursor) -> float:
        """Seconds that the step at `cursor` takes."""
        delay = self.steps.at(cursor).delay_s
        return self.turn.piece_delay_s if delay is None else delay


class Cast:
    """Deals out turns: first an unused one whose `match` the message holds, then the unused ones without
    `match` in order, then what `after` says. Unless it `looks_at_messages`, any message will do."""

    def __init__(self, script: Script) -> None:
        self.looks_at_messages = any(turn.match is not None for turn in script.turns)
        self._turns = script.turns
        self._after = script.after
        self._used: set[int] = set()
        self._ahead: dict[int, TakenTurn] = {}  # dealt but not yet taken

    def take(self, message: bytes) -> TakenTurn:
        """The turn for a prompt whose last user or tool message is `message`."""
        index = self._choose(message)
        if index is None:
            return self._deal(None)
        self._used.add(index)
        return self._ahead.pop(index, None) or self._deal(index)

    def retake(self, current: TakenTurn, message: bytes) -> TakenTurn:
        """Take again for a longer prompt of the same request, of which more is known now."""
        if current.index is not None:
            self._used.discard(current.index)
            self._ahead[current.index] = current
        return self.take(message)

    def upcoming(self) -> TakenTurn:
        """The turn that a prompt without a matching message would take, for work done ahead of it."""
        index = self._choose(b"", peek=True)
        if index is None:
            return self._deal(None)
        return self._ahead.setdefault(index, self._deal(index))

    def turn(self, index: int | None) -> TakenTurn | None:
        """A turn by its place, for a restored session; None if the script has no such turn."""
        if index is not None and not 0 <= index < len(self._turns):
            return None
        return self._deal(index)

    def _deal(self, index: int | None) -> TakenTurn:
        return TakenTurn(index, Turn(pieces=[]) if index is None else self._turns[index])

    def _choose(self, message: bytes, *, peek: bool = False) -> int | None:
        index = self._unused(message)
        if index is not None or self._after == "eos":
            return index
        if self._after == "cycle":
            used, self._used = self._used, set()
            index = self._unused(message)
            if peek:
                self._used = used
            return index
        fitting = [i for i, turn in enumerate(self._turns) if _matches(turn, message)]
        plain = [i for i, turn in enumerate(self._turns) if turn.match is None]
        return max(fitting or plain, default=None)

    def _unused(self, message: bytes) -> int | None:
        unused = [i for i in range(len(self._turns)) if i not in self._used]
        fitting = (i for i in unused if _matches(self._turns[i], message))
        plain = (i for i in unused if self._turns[i].match is None)
        return next(fitting, next(plain, None))


def last_message(tokens: Sequence[int]) -> bytes:
    """The bytes of the last user or tool message of a prompt; of the whole prompt if it has none."""
    end = len(tokens)
    for position in range(len(tokens) - 1, -1, -1):
        if tokens[position] == CONTROL[marks.ASSISTANT]:
            end = position
        elif tokens[position] == CONTROL[marks.USER]:
            return tokenizer().decode(tokens[position + 1 : end])
    return tokenizer().decode(tokens)


def _matches(turn: Turn, message: bytes) -> bool:
    return turn.match is not None and turn.match.encode() in message
