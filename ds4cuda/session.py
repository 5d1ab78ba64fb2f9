"""One timeline on the CUDA backend: prefill in steps, decode with look-ahead, going back, saving.

Synchronous; the thread that opened the engine owns it. Must not know: the forward pass's inside, files.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from ds4cuda.graph import DecodeSteps
from ds4cuda.model import Model
from ds4cuda.picking import Chooser, DevicePick
from ds4cuda.state import State
from ds4cuda.transfer import WindowCopy, copy_windows, from_host, put_windows, to_host
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
    windows: WindowCopy
    valid: bool = True

    @property
    def nbytes(self) -> int:
        return self.logits.nbytes + self.windows.nbytes


@dataclass(slots=True)
class _Timeline:
    """Evaluated tokens. Logits after n tokens are in place n mod 2; `can_undo`: those before the last token,
    to which an undo returns, are still in the other."""

    tokens: list[int | Picked] = field(default_factory=list)
    can_undo: bool = False


@dataclass(frozen=True, slots=True)
class _Buffers:
    """What a session has on the device, and what works in it. `logits` are the two places, float32 [2,
    vocabulary]."""

    state: State
    logits: Any
    steps: DecodeSteps
    chooser: Chooser

    @classmethod
    def of(cls, model: Model, context: int) -> _Buffers:
        state, vocabulary = model.open_state(context), model.shape.vocabulary_size
        logits = model.device.empty((2, vocabulary), np.float32)
        chooser = Chooser(model.device, model.operations, vocabulary)
        return cls(state, logits, DecodeSteps(model, state, logits), chooser)


class CudaSession:
    """Implements `shared.session.Session`."""

    def __init__(self, model: Model, context: int, prefill_chunk: int, power: PowerGovernor) -> None:
        if context < 1:
            raise ValueError(f"a context of {context} tokens is impossible")
        self._model = model
        self._device = model.device
        self._context = context
        self._power = power
        self._chunk = prefill_cap(context, prefill_chunk)
        self._buffers: _Buffers | None = _Buffers.of(model, context)
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
        steps = self._open().steps
        if not self.position:
            raise SessionInvalid("the session holds no evaluated prompt: sync one first")
        if self.position >= self._context:
            raise ContextFullError(self.position + 1, self._context)
        chosen = token.token if isinstance(token, DevicePick) else None
        number = -1 if isinstance(token, DevicePick) else self._known(token)
        self._timeline.can_undo = False  # from here on its logits are overwritten
        try:
            self._model.begin(self.position, 1, number, chosen)
            steps.run(self.position)
            self._resolve_last()
            if self._power.active:
                self._device.synchronize()
        except (RuntimeError, MemoryError) as reason:
            raise self._fault(reason) from reason
        self._take([token if number < 0 else number], can_undo=True)

    def pick(
        self, sampling: Sampling, uniform: float = 0.0, allowed: npt.NDArray[np.bool_] | None = None
    ) -> Picked:
        return self._open().chooser.pick(self._live_logits(), sampling, uniform, allowed)

    def undo(self) -> None:
        state, timeline = self._open().state, self._timeline
        if not timeline.can_undo:
            raise SessionInvalid("there is no submitted token to take back")
        timeline.tokens.pop()
        timeline.can_undo = False
        state.position = self.position
        self._drop_marks_behind(state.position)

    def logits(self) -> npt.NDArray[np.float32]:
        return self._device.download(self._live_logits())

    def common_prefix(self, tokens: Sequence[int]) -> int:
        return common_prefix(self.tokens, tokens)

    def mark(self) -> Mark:
        mark = WindowMark(self.position, self.logits(), copy_windows(self._device, self._open().state))
        self._marks.add(mark)
        return mark

    def rewind(self, mark: Mark) -> None:
        if not isinstance(mark, WindowMark) or not mark.valid or mark not in self._marks:
            raise SessionInvalid("the mark is not on this session's present timeline: sync the prompt again")
        put_windows(self._device, self._open().state, mark.windows, mark.position)
        self._restart(self._timeline.tokens[: mark.position], mark.logits)
        self._drop_marks_behind(mark.position)

    def snapshot(self) -> bytes:
        file = io.BytesIO()
        self.save(file)
        return file.getvalue()

    def restore(self, snapshot: bytes) -> None:
        self.load(io.BytesIO(snapshot), len(snapshot))

    def save(self, file: BinaryIO) -> int:
        stored = SessionState(self.tokens, self.logits(), to_host(self._device, self._open().state))
        return write_payload(file, stored, self._layout())

    def load(self, file: BinaryIO, payload_bytes: int) -> None:
        state = self._open().state
        self.invalidate()
        stored = read_payload(file, payload_bytes, self._layout())
        from_host(self._device, state, stored.layers, len(stored.tokens))
        self._restart(list(stored.tokens), stored.logits)

    def payload_bytes(self) -> int:
        return payload_size(self._model.shape, self.position, self._context)

    def invalidate(self) -> None:
        self._open().state.reset()
        self._timeline = _Timeline()
        self._drop_marks_behind(-1)

    def close(self) -> None:
        self._buffers = None
        self._timeline = _Timeline()
        self._drop_marks_behind(-1)
        self._device.free()

    def _prefill(self, tokens: list[int], cancelled: CancelCheck | None) -> None:
        """Evaluate one step layer by layer; a cancelled one leaves the session as it was."""
        state, model, count = self._open().state, self._model, len(tokens)
        started = self._power.start()

        def layer_done(layer: int) -> None:
            nonlocal started
            self._device.synchronize()
            self._power.rest(f"prefill.{layer}", started, cancelled)
            started = self._power.start()
            if cancelled is not None and cancelled():
                raise Cancelled

        state.keep_frontiers()
        try:
            self._device.write(model.scratch("tokens", count), np.array(tokens, np.int32))
            model.begin(self.position, count)
            logits = model.forward(state, model.step(self.position, count), layer_done)
        except (Ds4Error, KeyboardInterrupt):
            state.put_back_frontiers()
            raise
        except (RuntimeError, MemoryError) as reason:
            raise self._fault(reason) from reason
        self._take(list(tokens), can_undo=False)
        self._device.copy(self._live_logits(), logits)

    def _take(self, tokens: list[int | Picked], *, can_undo: bool) -> None:
        """Move on to after a step of `tokens`."""
        self._timeline.tokens += tokens
        self._timeline.can_undo = can_undo
        self._open().state.position = self.position

    def _restart(self, tokens: list[int | Picked], logits: npt.NDArray[np.float32]) -> None:
        self._timeline = _Timeline(tokens)
        self._device.write(self._live_logits(), logits)

    def _step_end(self, start: int, end: int, quantum: int | None) -> int:
        """Where the step from `start` ends: at multiples of its size, so that a resumed prompt is cut like
        one from the beginning."""
        longest = self._open().state.longest_step
        size = longest if quantum is None else min(max(1, quantum), longest)
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

    def _known(self, token: int | Picked) -> int:
        number = token if isinstance(token, int) else token.value()
        if not 0 <= number < self._model.shape.vocabulary_size:
            vocabulary = self._model.shape.vocabulary_size
            raise ValueError(f"token {number} is outside the vocabulary of {vocabulary}")
        return number

    def _resolve_last(self) -> None:
        """Replace the last token by its number, now that it is known without waiting."""
        tokens = self._timeline.tokens
        if tokens and not isinstance(tokens[-1], int):
            tokens[-1] = tokens[-1].value()

    def _live_logits(self) -> Any:
        logits = self._open().logits
        if not self.position:
            raise SessionInvalid("the session holds no evaluated prompt: sync one first")
        return logits[self.position % 2]

    def _open(self) -> _Buffers:
        if self._buffers is None:
            raise SessionInvalid("the session is closed")
        return self._buffers

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
