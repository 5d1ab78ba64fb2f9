"""One timeline of the scripted engine: the `Session` protocol over tokens and a place in the script."""

from __future__ import annotations

import io
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import numpy.typing as npt

from shared.errors import Cancelled, ContextFullError, EngineFault, PayloadError, SessionInvalid
from shared.sampling import Sampling, choose
from shared.scripted.cast import TakenTurn, last_message
from shared.scripted.payload import SavedState, payload_size, read_payload, write_payload
from shared.scripted.steps import Cursor
from shared.scripted.vocabulary import TOKENS
from shared.session import CancelCheck, Mark, Picked, Progress, Synced

if TYPE_CHECKING:
    from shared.scripted.engine import ScriptedEngine


class ScriptedPick:
    """The tokens of one step. Reading them waits for the step's delay, once, and meets its fault."""

    def __init__(self, tokens: list[int], cursor: Cursor, wait: Callable[[], None]) -> None:
        self.cursor = cursor  # the place in the script after the step
        self.step = tokens
        self._wait: Callable[[], None] | None = wait

    def value(self) -> int:
        return self.tokens()[0]

    def tokens(self) -> list[int]:
        if self._wait is not None:
            self._wait()
            self._wait = None
        return list(self.step)


@dataclass(frozen=True, eq=False)
class ScriptedMark:
    """A position and the place in the script there."""

    position: int
    turn: TakenTurn | None
    cursor: Cursor


class ScriptedSession:
    """See `shared.session.Session`. Opened by the engine."""

    def __init__(self, engine: ScriptedEngine, context: int) -> None:
        self._engine = engine
        self._context = context
        self._tokens: list[int] = []
        self._turn: TakenTurn | None = None
        self._cursor = Cursor()
        self._pending: Picked | None = None  # submitted, not read yet
        self._undo: tuple[int, Cursor] | None = None
        self._marks: weakref.WeakSet[ScriptedMark] = weakref.WeakSet()
        # The prompt of the last sync while nothing else has happened: a longer one continues its request.
        self._prompt: list[int] | None = None
        self._loaded = False  # by a payload, and not synced since

    @property
    def tokens(self) -> list[int]:
        self._read_pending()
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
        prompt = self._checked(tokens)
        if quantum is not None and quantum < 1:
            raise ValueError(f"a prefill step takes at least one token, not {quantum}")
        self._read_pending()
        chunk = self._engine.prefill_chunk
        turn = self._take_turn(prompt)
        loaded, self._loaded = self._loaded, False
        reused = len(self._tokens) if self._tokens == prompt[: len(self._tokens)] else 0
        if reused < len(self._tokens):
            self._forget()
        self._turn, self._cursor, self._undo, self._prompt = turn, Cursor(), None, None
        if loaded and turn.strikes("sync-after-load"):
            raise self._fault("sync after a load")
        try:
            self._prefill(prompt, turn, progress, min(quantum or chunk, chunk), cancelled or _never)
        finally:
            self._note("sync", len(prompt), reused=reused, evaluated=max(0, len(self._tokens) - reused))
        self._prompt = prompt
        return Synced(reused, len(prompt) - reused)

    def submit(self, token: int | Picked) -> None:
        self._read_pending()
        turn = self._playing()
        if isinstance(token, int):
            self._check_vocabulary([token])
            step, cursor = [token], turn.steps.follow(self._cursor, token)
        elif isinstance(token, ScriptedPick):
            step, cursor = token.step, token.cursor
            self._pending = token
        else:
            raise TypeError("a scripted session takes token ids and its own picks")
        if len(self._tokens) + len(step) > self._context:
            self._pending = None
            raise ContextFullError(len(self._tokens) + len(step), self._context)
        self._undo = len(self._tokens), self._cursor
        self._tokens += step
        self._cursor = cursor
        self._note("submit", len(step))

    def pick(
        self, sampling: Sampling, uniform: float = 0.0, allowed: npt.NDArray[np.bool_] | None = None
    ) -> ScriptedPick:
        self._read_pending()
        turn, cursor = self._playing(), self._cursor
        first = cursor.emitted == 0
        fail = turn.turn.fail
        fault: str | None = None
        if first and fail is not None and fail.at == "decode" and fail.after == cursor.step:
            fault = "decode"
        step, after = self._next_step(turn, sampling, uniform, allowed)
        if not step:
            fault, step = "the token mask allows nothing of what the script says here", [0]
        delay = turn.delay_of(turn.steps.at(cursor).delay_s) if first else 0.0

        def wait() -> None:
            if delay:
                self._engine.pauses.sleep(delay)
            if fault is not None:
                raise self._fault(fault)

        self._note("pick", len(step))
        return ScriptedPick(step, after, wait)

    def undo(self) -> None:
        if self._undo is None:
            raise RuntimeError("there is no submitted token to take back")
        position, cursor = self._undo
        self._go_back(position, self._turn, cursor)
        self._note("undo", position)

    def logits(self) -> npt.NDArray[np.float32]:
        self._read_pending()
        return self._playing().steps.logits(self._cursor)

    def common_prefix(self, tokens: Sequence[int]) -> int:
        self._read_pending()
        pairs = zip(self._tokens, tokens, strict=False)
        return next(
            (n for n, (ours, theirs) in enumerate(pairs) if ours != theirs),
            min(len(self._tokens), len(tokens)),
        )

    def mark(self) -> ScriptedMark:
        self._require_state()
        mark = ScriptedMark(len(self._tokens), self._turn, self._cursor)
        self._marks.add(mark)
        self._note("mark", mark.position)
        return mark

    def rewind(self, mark: Mark) -> None:
        if not isinstance(mark, ScriptedMark) or mark not in self._marks:
            raise SessionInvalid("this mark is not on the session's timeline any more: sync the full prompt")
        self._go_back(mark.position, mark.turn, mark.cursor)
        self._prompt = None
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
        turn = self._engine.cast.upcoming() if self._turn is None or self._prompt is None else self._turn
        if turn.strikes("load"):
            self._forget()
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

    def _checked(self, tokens: Sequence[int]) -> list[int]:
        prompt = list(tokens)
        if not prompt:
            raise ValueError("a prompt needs at least one token")
        self._check_vocabulary(prompt)
        if len(prompt) >= self._context:
            raise ContextFullError(len(prompt), self._context)
        return prompt

    def _take_turn(self, prompt: list[int]) -> TakenTurn:
        message = last_message(prompt, self._engine.tokenizer)
        last = self._prompt
        if self._turn is not None and last is not None and prompt[: len(last)] == last:
            return self._engine.cast.retake(self._turn, message)
        return self._engine.cast.take(message)

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
            started = power.start()
            end = min(start + quantum, len(prompt))
            if turn.strikes("prefill"):
                raise self._fault("prefill")
            if not turn.stalled and not cancelled():
                turn.stalled = True
                if plan.prefill_block_s:
                    pauses.sleep(plan.prefill_block_s)
                if plan.prefill_spin_s:
                    pauses.hold(plan.prefill_spin_s)
            if not pauses.interruptible(plan.prefill_s_per_1000_tokens * (end - start) / 1000, cancelled):
                raise Cancelled
            self._tokens += prompt[start:end]
            power.rest("prefill", started, cancelled)
            if progress is not None:
                progress(end - first, total)

    def _next_step(
        self, turn: TakenTurn, sampling: Sampling, uniform: float, allowed: npt.NDArray[np.bool_] | None
    ) -> tuple[list[int], Cursor]:
        """The tokens of the next step and the place after it; no tokens if the mask allows none."""
        steps, cursor = turn.steps, self._cursor
        heads = {i: steps.rest(cursor, i) for i in steps.possible(cursor)}
        if steps.sampled(cursor):
            if allowed is not None and not allowed.any():
                return [], cursor
            token = choose(steps.logits(cursor), sampling, uniform, allowed)
            chosen = next((i for i, rest in heads.items() if rest[0] == token), None)
            if chosen is None:
                return [token], Cursor(cursor.step + 1)
        else:
            chosen = next((i for i, rest in heads.items() if allowed is None or allowed[rest[0]]), None)
            if chosen is None:
                return [], cursor
        # A mask is made for one token; a step never outgrows the context.
        room = 1 if allowed is not None else max(1, self._context - len(self._tokens))
        step = list(heads[chosen][:room])
        return step, steps.after(cursor, chosen, len(step))

    def _playing(self) -> TakenTurn:
        """The turn in play, for a caller that starts to decode."""
        self._require_state()
        self._prompt = None
        if self._turn is None:
            self._turn = self._engine.cast.take(last_message(self._tokens, self._engine.tokenizer))
            self._cursor = Cursor()
        return self._turn

    def _write(self, call: str, file: BinaryIO) -> int:
        self._require_state()
        self._read_pending()
        if self._turn is not None and self._turn.strikes("save"):
            file.write(b"\0")
            raise self._fault("save")
        cost = self._engine.script.snapshot

        def written(size: int) -> None:
            if cost.save_s_per_mb:
                self._engine.pauses.sleep(cost.save_s_per_mb * size / 1e6)

        number = 0 if self._turn is None else 1 if self._turn.index is None else self._turn.index + 2
        self._note(call, len(self._tokens))
        return write_payload(file, SavedState(self._tokens, number, self._cursor), cost, written)

    def _read(self, call: str, file: BinaryIO, size: int) -> None:
        self._forget()
        state = read_payload(file, size, self._context)
        self._tokens = state.tokens
        if state.turn > 0:
            self._turn = self._engine.cast.turn(None if state.turn == 1 else state.turn - 2)
        self._cursor = state.cursor if self._turn is not None else Cursor()
        self._note(call, len(self._tokens))

    def _read_pending(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.tokens()

    def _go_back(self, position: int, turn: TakenTurn | None, cursor: Cursor) -> None:
        del self._tokens[position:]
        self._turn, self._cursor = turn, cursor
        self._pending = self._undo = None
        for mark in [mark for mark in self._marks if mark.position > position]:
            self._marks.discard(mark)

    def _forget(self) -> None:
        self._go_back(0, None, Cursor())
        self._marks.clear()
        self._prompt, self._loaded = None, False

    def _fault(self, where: str) -> EngineFault:
        self._forget()
        return EngineFault(f"the script fails here: {where}")

    def _require_state(self) -> None:
        if not self._tokens:
            raise SessionInvalid("the session holds nothing: sync a full prompt first")

    def _check_vocabulary(self, tokens: Sequence[int]) -> None:
        for token in (min(tokens), max(tokens)):
            if not 0 <= token < len(TOKENS):
                raise ValueError(f"token {token} is outside the vocabulary of {len(TOKENS)}")

    def _note(self, call: str, tokens: int, *, reused: int = 0, evaluated: int = 0) -> None:
        turn = None if self._turn is None else self._turn.index
        self._engine.journal.note(call, tokens, turn=turn, reused=reused, evaluated=evaluated)


def _never() -> bool:
    return False
