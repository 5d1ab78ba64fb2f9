"""A turn's pieces as token steps, the place reached in them, and what may come next there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shared.scripted import script
from shared.scripted.vocabulary import END_OF_TURN, SPACE, TOKENS, tokens_of

_SCRIPTED_LOGIT = 0.0
_ALTERNATIVE_STEP = 1000.0  # each alternative lies this far below the one before
_FAR_BELOW = 1e7


@dataclass(frozen=True, slots=True)
class Step:
    """One decode step: its alternatives as tokens, the script's own choice first. With `logits`, one for
    each alternative, the sampler chooses."""

    alternatives: tuple[tuple[int, ...], ...]
    logits: tuple[float, ...] | None = None
    delay_s: float | None = None


class Cursor(NamedTuple):
    """The number of the step in play, and how many tokens of which of its alternatives were emitted."""

    step: int = 0
    alternative: int = 0
    emitted: int = 0


_END = Step(((END_OF_TURN,),), delay_s=0.0)
_SPACES = Step(((SPACE,),))


class Steps:
    """All steps of a turn; after the last one come end tokens, or spaces, without end."""

    def __init__(self, pieces: Sequence[script.Piece], eos: bool) -> None:
        self._steps = [_step(piece) for piece in pieces]
        self._after = _END if eos else _SPACES

    def at(self, cursor: Cursor) -> Step:
        return self._steps[cursor.step] if cursor.step < len(self._steps) else self._after

    def has(self, cursor: Cursor) -> bool:
        """Whether this is a place in these steps (a saved one may be of another script)."""
        alternatives = self.at(cursor).alternatives
        return cursor.alternative < len(alternatives) and (
            cursor.emitted == 0 or cursor.emitted < len(alternatives[cursor.alternative])
        )

    def possible(self, cursor: Cursor) -> list[int]:
        """The alternatives that go on from the emitted tokens, in the script's order."""
        alternatives, emitted = self.at(cursor).alternatives, cursor.emitted
        if len(alternatives) == 1 or not emitted:
            return list(range(len(alternatives)))
        so_far = alternatives[cursor.alternative][:emitted]
        return [
            index
            for index, tokens in enumerate(alternatives)
            if len(tokens) > emitted and tokens[:emitted] == so_far
        ]

    def rest(self, cursor: Cursor, alternative: int) -> tuple[int, ...]:
        """The tokens of an alternative that are still to come."""
        return self.at(cursor).alternatives[alternative][cursor.emitted :]

    def sampled(self, cursor: Cursor) -> bool:
        """Whether the sampler, not the script, chooses here."""
        return self.at(cursor).logits is not None and not cursor.emitted

    def after(self, cursor: Cursor, alternative: int, count: int) -> Cursor:
        """The place after `count` more tokens of an alternative."""
        emitted = cursor.emitted + count
        if emitted >= len(self.at(cursor).alternatives[alternative]):
            return Cursor(cursor.step + 1)
        return Cursor(cursor.step, alternative, emitted)

    def follow(self, cursor: Cursor, token: int) -> Cursor:
        """The place after a token that the caller chose; one that the script does not expect here moves
        nothing."""
        for alternative in self.possible(cursor):
            if self.at(cursor).alternatives[alternative][cursor.emitted] == token:
                return self.after(cursor, alternative, 1)
        return cursor

    def logits(self, cursor: Cursor) -> npt.NDArray[np.float32]:
        """Logits [vocabulary] by which the scripted token is chosen, or under a mask the first
        alternative that it allows."""
        step, possible = self.at(cursor), self.possible(cursor)
        values = [_SCRIPTED_LOGIT - _ALTERNATIVE_STEP * rank for rank in range(len(possible))]
        if step.logits is not None and not cursor.emitted:
            values = list(step.logits)
        row = np.full(len(TOKENS), min(values) - _FAR_BELOW, dtype=np.float32)
        # Backwards, so that of alternatives that begin alike the first counts.
        for alternative, value in zip(reversed(possible), reversed(values), strict=True):
            row[step.alternatives[alternative][cursor.emitted]] = value
        return row


def _step(piece: script.Piece) -> Step:
    if isinstance(piece, str):
        return Step((tokens_of(piece),))
    delay = piece.delay_s
    if isinstance(piece, script.TextPiece):
        return Step(tuple(map(tokens_of, (piece.text, *piece.otherwise))), delay_s=delay)
    if isinstance(piece, script.HexPiece):
        return Step((tuple(bytes.fromhex(piece.hex)),), delay_s=delay)
    if isinstance(piece, script.PlainPiece):
        return Step((tuple(piece.plain.encode()),), delay_s=delay)
    if isinstance(piece, script.TokensPiece):
        return Step((tuple(chain.from_iterable(map(tokens_of, piece.tokens))),), delay_s=delay)
    return Step(tuple(map(tokens_of, piece.logits)), tuple(piece.logits.values()), delay)
