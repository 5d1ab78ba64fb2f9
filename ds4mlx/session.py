"""One timeline on the MLX backend: prefill in steps, decode with look-ahead, going back, saving.

Synchronous; the thread that opened the engine owns it. Must not know: the forward pass's inside, files.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import BinaryIO
from weakref import WeakSet

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ds4mlx.model import Model, Streams
from ds4mlx.picking import GreedyPick, pick
from ds4mlx.state import State
from ds4mlx.transfer import WindowCopy, copy_windows, from_host, put_windows, to_host
from shared.errors import Cancelled, ContextFullError, Ds4Error, EngineFault, SessionInvalid
from shared.kv.payload import PayloadLayout, SessionState, payload_size, read_payload, write_payload
from shared.model.memory import prefill_cap, raw_capacity
from shared.power import PowerGovernor
from shared.prefix import common_prefix
from shared.sampling import Sampling
from shared.session import CancelCheck, Mark, Picked, Progress, Synced


@dataclass(eq=False, slots=True, weakref_slot=True)
class WindowMark:
    """See `shared.session.Mark`."""

    position: int
    logits: npt.NDArray[np.float32]
    windows: list[WindowCopy]
    valid: bool = True

    @property
    def nbytes(self) -> int:
        return self.logits.nbytes + sum(window.nbytes for window in self.windows)


@dataclass(slots=True)
class _Timeline:
    """Evaluated tokens, and the logits after the last; `before` are the logits that an undo returns to."""

    tokens: list[int | Picked] = field(default_factory=list)
    logits: mx.array | None = None
    before: mx.array | None = None


class MlxSession:
    """Implements `shared.session.Session`."""

    def __init__(self, model: Model, context: int, prefill_chunk: int, power: PowerGovernor) -> None:
        if context < 1:
            raise ValueError(f"a context of {context} tokens is impossible")
        self._model = model
        self._context = context
        self._power = power
        self._chunk = prefill_cap(context, prefill_chunk)
        self._state: State | None = model.open_state(context)
        self._timeline = _Timeline()
        self._marks: WeakSet[WindowMark] = WeakSet()

    @property
    def tokens(self) -> list[int]:
        self._resolve_last()  # the only one that may be unknown
        return [token if isinstance(token, int) else token.value() for token in self._timeline.tokens]

    @property
    def position(self) -> int:
        return len(self._timeline.tokens)

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
        wanted = self._checked(tokens)
        reused = self.position if self._extends(wanted) else 0
        if reused == 0:
            self.invalidate()
        total = len(wanted) - reused
        if progress is not None:
            progress(0, total)
        while self.position < len(wanted):
            end = self._step_end(self.position, len(wanted), quantum)
            self._prefill(wanted[self.position : end], cancelled)
            if progress is not None:
                progress(self.position - reused, total)
        return Synced(reused, total)

    def submit(self, token: int | Picked) -> None:
        state, timeline = self._open_state(), self._timeline
        if self.position >= self._context:
            raise ContextFullError(self.position + 1, self._context)
        try:
            result = self._model.forward(self._as_array(token), state)
            state.advance(result)
            # The step before must be done: a buffer that it still reads would be copied, not written.
            mx.synchronize()
            self._resolve_last()
            mx.async_eval(result.logits, state.arrays())
            if self._power.active:
                mx.eval(result.logits)
            timeline.tokens.append(token)
            timeline.before, timeline.logits = timeline.logits, result.logits
        except (RuntimeError, MemoryError) as reason:
            raise self._fault(reason) from reason
        finally:
            # A decode step overwrites nothing that is still read, so even an interrupted one leaves no trace.
            state.position = self.position

    def pick(
        self, sampling: Sampling, uniform: float = 0.0, allowed: npt.NDArray[np.bool_] | None = None
    ) -> Picked:
        return pick(self._live_logits(), sampling, uniform, allowed)

    def undo(self) -> None:
        state, timeline = self._open_state(), self._timeline
        if timeline.before is None:
            raise SessionInvalid("there is no submitted token to take back")
        timeline.tokens.pop()
        timeline.logits, timeline.before = timeline.before, None
        state.position -= 1
        self._drop_marks_behind(state.position)

    def logits(self) -> npt.NDArray[np.float32]:
        return np.array(self._live_logits())

    def common_prefix(self, tokens: Sequence[int]) -> int:
        return common_prefix(self.tokens, tokens)

    def mark(self) -> Mark:
        mark = WindowMark(self.position, self.logits(), copy_windows(self._open_state()))
        self._marks.add(mark)
        return mark

    def rewind(self, mark: Mark) -> None:
        if not isinstance(mark, WindowMark) or not mark.valid or mark not in self._marks:
            raise SessionInvalid("the mark is not on this session's present timeline: sync the prompt again")
        put_windows(self._open_state(), mark.windows, mark.position)
        kept = self._timeline.tokens[: mark.position]
        self._timeline = _Timeline(kept, mx.array(mark.logits))
        self._drop_marks_behind(mark.position)

    def snapshot(self) -> bytes:
        file = io.BytesIO()
        self.save(file)
        return file.getvalue()

    def restore(self, snapshot: bytes) -> None:
        self.load(io.BytesIO(snapshot), len(snapshot))

    def save(self, file: BinaryIO) -> int:
        stored = SessionState(self.tokens, self.logits(), to_host(self._open_state()))
        return write_payload(file, stored, self._layout())

    def load(self, file: BinaryIO, payload_bytes: int) -> None:
        state = self._open_state()
        self.invalidate()
        stored = read_payload(file, payload_bytes, self._layout())
        from_host(state, stored.layers, len(stored.tokens))
        self._timeline = _Timeline(list(stored.tokens), mx.array(stored.logits))

    def payload_bytes(self) -> int:
        return payload_size(self._model.shape, self.position, self._context)

    def invalidate(self) -> None:
        self._open_state().reset()
        self._timeline = _Timeline()
        self._drop_marks_behind(-1)

    def close(self) -> None:
        self._state = None
        self._timeline = _Timeline()
        self._drop_marks_behind(-1)
        mx.clear_cache()

    def _prefill(self, tokens: list[int], cancelled: CancelCheck | None) -> None:
        """Evaluate one step layer by layer; a cancelled one leaves the session as it was."""
        state = self._open_state()
        started = self._power.start()

        def layer_done(layer: int, streams: Streams, rows: list[mx.array]) -> None:
            nonlocal started
            mx.eval(streams.arrays(), rows)
            self._power.rest(f"prefill.{layer}", started, cancelled)
            started = self._power.start()
            if cancelled is not None and cancelled():
                raise Cancelled

        try:
            mx.synchronize()
            result = self._model.forward(mx.array(tokens, mx.int32), state, layer_done)
            mx.eval(result.arrays(), state.arrays())
            state.advance(result)
            mx.eval(state.arrays())
        except Ds4Error:
            raise
        except (RuntimeError, MemoryError) as reason:
            raise self._fault(reason) from reason
        self._timeline = _Timeline([*self._timeline.tokens, *tokens], result.logits)

    def _step_end(self, start: int, end: int, quantum: int | None) -> int:
        """Where the step from `start` ends: at multiples of its size, so that a resumed prompt is cut like
        one from the beginning."""
        size = min(self._chunk if quantum is None else max(1, quantum), self._chunk)
        return min(end, start - start % size + size)

    def _checked(self, tokens: Sequence[int]) -> list[int]:
        wanted = [int(token) for token in tokens]
        if not wanted:
            raise ValueError("an empty prompt cannot be evaluated")
        vocabulary = self._model.shape.vocabulary_size
        if not all(0 <= token < vocabulary for token in wanted):
            raise ValueError(f"the prompt holds a token outside the vocabulary of {vocabulary}")
        if len(wanted) >= self._context:
            raise ContextFullError(len(wanted), self._context)
        return wanted

    def _extends(self, wanted: list[int]) -> bool:
        return 0 < self.position <= len(wanted) and wanted[: self.position] == self.tokens

    def _as_array(self, token: int | Picked) -> mx.array:
        """The token as int32 [1]; a greedy choice stays on the device, unread."""
        if isinstance(token, GreedyPick):
            return token.token
        number = token if isinstance(token, int) else token.value()
        if not 0 <= number < self._model.shape.vocabulary_size:
            raise ValueError(
                f"token {number} is outside the vocabulary of {self._model.shape.vocabulary_size}"
            )
        return mx.array([number], mx.int32)

    def _resolve_last(self) -> None:
        """Replace the last token by its number, now that it is known without waiting."""
        tokens = self._timeline.tokens
        if tokens and not isinstance(tokens[-1], int):
            tokens[-1] = tokens[-1].value()

    def _live_logits(self) -> mx.array:
        if self._timeline.logits is None:
            raise SessionInvalid("the session holds no evaluated prompt: sync one first")
        return self._timeline.logits

    def _open_state(self) -> State:
        if self._state is None:
            raise SessionInvalid("the session is closed")
        return self._state

    def _drop_marks_behind(self, position: int) -> None:
        for mark in [mark for mark in self._marks if mark.position > position]:
            mark.valid = False
            self._marks.discard(mark)

    def _fault(self, reason: Exception) -> EngineFault:
        """Forget everything: what the failed step left in the buffers is unknown."""
        self.invalidate()
        return EngineFault(f"the engine failed in mid-step ({reason}): the next prompt starts from zero")

    def _layout(self) -> PayloadLayout:
        return PayloadLayout(
            shape=self._model.shape,
            context=self._context,
            raw_capacity=raw_capacity(self._context, self._chunk, self._model.shape.window),
            prefill_chunk=self._chunk,
        )
