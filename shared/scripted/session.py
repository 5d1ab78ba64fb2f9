"""One timeline of the scripted engine: the `Session` protocol over real tokens and a place in the script."""

from __future__ import annotations

import io
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import numpy.typing as npt

from shared.errors import Cancelled, ContextFullError, EngineFault, PayloadError, SessionInvalid
from shared.prefix import common_prefix
from shared.sampling import Sampling
from shared.scripted.cast import TakenTurn
from shared.scripted.payload import SavedState, payload_size, read_payload, write_payload
from shared.scripted.playback import Place, Playback, ScriptedPick
from shared.scripted.vocabulary import TOKENS
from shared.session import CancelCheck, Mark, Picked, Progress, Synced

if TYPE_CHECKING:
    from shared.scripted.engine import ScriptedEngine


@dataclass(frozen=True, eq=False)
class ScriptedMark:
    """A position and the place in the script there."""

    position: int
    place: Place
    nbytes: int  # what the script says a snapshot costs beside its tokens: a mark copies just that


class ScriptedSession:
    """See `shared.session.Session`. Opened by the engine."""

    def __init__(self, engine: ScriptedEngine, context: int) -> None:
        self._engine = engine
        self._context = context
        self._playback = Playback(engine.cast)
        self._tokens: list[int] = []
        self._pending: ScriptedPick | None = None  # submitted, not read yet
        self._before_submit: tuple[int, Place] | None = None
        self._marks: weakref.WeakSet[ScriptedMark] = weakref.WeakSet()
        self._loaded = False  # by a payload, and not synced since

    @property
    def tokens(self) -> list[int]:
        self._settle()
        return list(self._tokens)

    @property
    def position(self) -> int:
        return len(self._tokens)

    @property
    def context(self) -> int:
        return self._context

    def sync(
        self,
        tokens: Sequence[int],
        progress: Progress | None = None,
        quantum: int | None = None,
        cancelled: CancelCheck | None = None,
    ) -> Synced:
        prompt = list(tokens)
        chunk = self._engine.prefill_chunk
        self._settle()
        reused = len(self._tokens) if self._tokens == prompt[: len(self._tokens)] else 0
        self._check(prompt, reused, quantum)
        loaded, self._loaded, self._before_submit = self._loaded, False, None
        turn = self._playback.begin(prompt)
        if reused < len(self._tokens):
            self._drop_from(0)
        try:
            if loaded and turn.strikes("sync-after-load"):
                raise self._fault("sync after a load")
            self._prefill(prompt, turn, progress, min(quantum or chunk, chunk), cancelled or _never)
        finally:
            self._note("sync", len(prompt), reused, max(0, len(self._tokens) - reused), turn=turn)
        self._playback.prompted(prompt)
        return Synced(reused, len(prompt) - reused)

    def submit(self, token: int | Picked) -> None:
        self._settle()
        turn = self._decoding()
        cursor = self._playback.place.cursor
        if isinstance(token, ScriptedPick):
            step, after = token.step, token.after
        elif isinstance(token, int):
            _check_vocabulary([token])
            step, after = [token], Place(turn, turn.steps.follow(cursor, token))
        else:
            raise TypeError("a scripted session takes token ids and its own picks")
        if len(self._tokens) + len(step) > self._context:
            raise ContextFullError(len(self._tokens) + len(step), self._context)
        self._before_submit = len(self._tokens), self._playback.place
        self._pending = token if isinstance(token, ScriptedPick) else None
        self._tokens += step
        self._playback.move(after)
        self._note("submit", len(step))

    def pick(
        self, sampling: Sampling, uniform: float = 0.0, allowed: npt.NDArray[np.bool_] | None = None
    ) -> ScriptedPick:
        self._settle()
        turn = self._decoding()
        cursor = self._playback.place.cursor
        begins = cursor.emitted == 0
        fault = "decode" if begins and turn.fails_piece(cursor.step) else None
        room = max(1, self._context - len(self._tokens))
        step, after = self._playback.next_step(turn, room, sampling, uniform, allowed)
        if not step:
            fault, step = "the token mask allows nothing of what the script says here", [0]
        delay = turn.piece_delay(cursor) if begins else 0.0

        def wait() -> None:
            if delay:
                self._engine.pauses.sleep(delay)
            if fault is not None:
                raise self._fault(fault)

        self._note("pick", len(step))
        return ScriptedPick(step, after, wait)

    def undo(self) -> None:
        if self._before_submit is None:
            raise SessionInvalid("there is no submitted token to take back")
        position, place = self._before_submit
        self._drop_from(position)
        self._playback.move(place)
        self._note("undo", position)

    def logits(self) -> npt.NDArray[np.float32]:
        self._settle()
        return self._decoding().steps.logits(self._playback.place.cursor)

    def common_prefix(self, tokens: Sequence[int]) -> int:
        return common_prefix(self.tokens, tokens)

    def mark(self) -> ScriptedMark:
        self._require_state()
        mark = ScriptedMark(len(self._tokens), self._playback.place, self._engine.script.snapshot.fixed_bytes)
        self._marks.add(mark)
        self._note("mark", mark.position)
        return mark

    def rewind(self, mark: Mark) -> None:
        if not isinstance(mark, ScriptedMark) or mark not in self._marks:
            raise SessionInvalid("this mark is not on the session's timeline any more: sync the full prompt")
        self._drop_from(mark.position)
        self._playback.move(mark.place)
        self._note("rewind", mark.position)

    def snapshot(self) -> bytes:
        file = io.BytesIO()
        self._write("snapshot", file)
        return file.getvalue()

    def restore(self, snapshot: bytes) -> None:
        self._read("restore", io.BytesIO(snapshot), len(snapshot))

    def save(self, file: BinaryIO) -> int:
        return self._write("save", file)

    def load(self, file: BinaryIO, payload_bytes: int) -> None:
        turn = self._playback.for_load()
        if turn.strikes("load"):
            self._forget()
            self._note("load", 0, turn=turn)
            raise PayloadError("the script lets this load fail")
        self._read("load", file, payload_bytes)
        self._loaded = True

    def payload_bytes(self) -> int:
        return payload_size(len(self._tokens), self._engine.script.snapshot)

    def invalidate(self) -> None:
        self._forget()
        self._note("invalidate", 0)

    def close(self) -> None:
        self._forget()
        self._note("close", 0)

    def _check(self, tokens: list[int], known: int, quantum: int | None) -> None:
        """The first `known` tokens were accepted before."""
        if not tokens:
            raise ValueError("a prompt needs at least one token")
        _check_vocabulary(tokens[known:])
        if quantum is not None and quantum < 1:
            raise ValueError(f"a prefill step takes at least one token, not {quantum}")
        if len(tokens) >= self._context:
            raise ContextFullError(len(tokens), self._context)

    def _prefill(
        self,
        prompt: list[int],
        turn: TakenTurn,
        progress: Progress | None,
        quantum: int,
        cancelled: CancelCheck,
    ) -> None:
        power, pauses, plan = self._engine.power, self._engine.pauses, turn.turn
        first, total = len(self._tokens), len(prompt) - len(self._tokens)
        if total and progress is not None:
            progress(0, total)
        for start in range(first, len(prompt), quantum):
            if cancelled():
                raise Cancelled
            started = power.start()
            end = min(start + quantum, len(prompt))
            if turn.strikes("prefill"):
                raise self._fault("prefill")
            if turn.stalls():
                pauses.stall(plan.prefill_block_s, plan.prefill_spin_s)
            if not pauses.interruptible(plan.prefill_s_per_1000_tokens * (end - start) / 1000, cancelled):
                raise Cancelled
            self._tokens += prompt[start:end]
            power.rest("prefill", started, cancelled)
            if progress is not None:
                progress(end - first, total)

    def _write(self, call: str, file: BinaryIO) -> int:
        self._settle()
        self._require_state()
        turn = self._playback.place.turn
        self._note(call, len(self._tokens))
        if turn is not None and turn.strikes("save"):
            file.write(b"\0")
            raise self._fault("save")
        cost = self._engine.script.snapshot

        def written(size: int) -> None:
            if cost.save_s_per_mb:
                self._engine.pauses.sleep(cost.save_s_per_mb * size / 1e6)

        return write_payload(file, SavedState(self._tokens, *self._playback.saved()), cost, written)

    def _read(self, call: str, file: BinaryIO, size: int) -> None:
        self._forget()
        state = read_payload(file, size, self._context)
        self._tokens = state.tokens
        self._playback.restore(state.turn, state.cursor)
        self._note(call, len(self._tokens))

    def _decoding(self) -> TakenTurn:
        self._require_state()
        return self._playback.decoding(self._tokens)

    def _settle(self) -> None:
        """Wait for a submitted pick, as a device would be waited for."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.tokens()

    def _drop_from(self, position: int) -> None:
        del self._tokens[position:]
        self._pending = self._before_submit = None
        for mark in [mark for mark in self._marks if mark.position > position]:
            self._marks.discard(mark)

    def _forget(self) -> None:
        self._drop_from(0)
        self._playback.move(Place())
        self._loaded = False

    def _fault(self, where: str) -> EngineFault:
        self._forget()
        return EngineFault(f"the script fails here: {where}")

    def _require_state(self) -> None:
        if not self._tokens:
            raise SessionInvalid("the session holds nothing: sync a full prompt first")

    def _note(
        self, call: str, tokens: int, reused: int = 0, evaluated: int = 0, *, turn: TakenTurn | None = None
    ) -> None:
        turn = turn or self._playback.place.turn
        self._engine.journal.note(
            call, tokens, turn=None if turn is None else turn.index, reused=reused, evaluated=evaluated
        )


def _check_vocabulary(tokens: list[int]) -> None:
    for token in (min(tokens, default=0), max(tokens, default=0)):
        if not 0 <= token < len(TOKENS):
            raise ValueError(f"token {token} is outside the vocabulary of {len(TOKENS)}")


def _never() -> bool:
    return False
