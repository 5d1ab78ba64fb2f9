"""A session of the reference engine: one timeline over the NumPy forward pass.

Owns the tokens, the logits and what marks and undo need; every step is committed whole or not at all.
Must not know: how files are named or kept.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from shared.errors import Cancelled, ContextFullError, Ds4Error, EngineFault, PayloadError, SessionInvalid
from shared.kv.payload import PayloadLayout, SessionState, payload_size, read_payload, write_payload
from shared.model.reference import Reference
from shared.model.reference_state import Past, ReferenceState
from shared.power import PowerGovernor
from shared.prefix import common_prefix
from shared.quant.rounding import round_f16
from shared.sampling import Sampling, choose
from shared.session import CancelCheck, Mark, Picked, Progress, Synced

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ChosenToken(Picked):
    """A token that is known at once."""

    token: int

    def value(self) -> int:
        return self.token


class ReferenceMark:
    """A position to return to. Becomes stale when the timeline is rebuilt or goes back behind it."""

    def __init__(self, past: Past, logits: Array) -> None:
        self.past = past
        self.logits = logits
        self.stale = False

    @property
    def position(self) -> int:
        return self.past.position

    @property
    def nbytes(self) -> int:
        return self.logits.nbytes + self.past.nbytes


class ReferenceSession:
    """The `Session` protocol; every value it returns is computed at once."""

    def __init__(self, model: Reference, power: PowerGovernor, context: int, prefill_chunk: int) -> None:
        self._model = model
        self._power = power
        self._context = context
        self._prefill_chunk = prefill_chunk
        self._state = ReferenceState(model.shape, context)
        self._tokens: list[int] = []
        self._logits = np.zeros(0, np.float32)
        self._before_submit: ReferenceMark | None = None
        self._marks: WeakSet[ReferenceMark] = WeakSet()

    @property
    def tokens(self) -> list[int]:
        return self._tokens.copy()

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
        wanted = self._checked(tokens)
        if quantum is not None and quantum < 1:
            raise ValueError(f"a prefill step has at least one token, not {quantum}")
        reused = self.position if self.common_prefix(wanted) == self.position else 0
        total = len(wanted) - reused
        if total == 0:
            return Synced(reused, 0)
        _poll(cancelled)
        if progress:
            progress(0, total)
        if reused == 0:
            self.invalidate()
        self._before_submit = None
        while self.position < len(wanted):
            _poll(cancelled)
            end = min(len(wanted), self._step_end(quantum))
            self._evaluate(wanted[self.position : end], self._between_layers(cancelled))
            if progress:
                progress(self.position - reused, total)
        return Synced(reused, total)

    def submit(self, token: int | Picked) -> None:
        self._require_valid()
        values = [token] if isinstance(token, int) else token.tokens()
        if min(values) < 0 or max(values) >= self._model.shape.vocabulary_size:
            raise ValueError(f"a token of {values} is outside the vocabulary")
        if self.position + len(values) > self._context:
            raise ContextFullError(self.position, self._context)
        before = ReferenceMark(self._state.past(), self._logits)
        self._evaluate(values)
        self._before_submit = before

    def pick(
        self, sampling: Sampling, uniform: float = 0.0, allowed: npt.NDArray[np.bool_] | None = None
    ) -> Picked:
        self._require_valid()
        return ChosenToken(choose(self._logits, sampling, uniform, allowed))

    def undo(self) -> None:
        if self._before_submit is None:
            raise SessionInvalid("there is no submitted token to take back")
        self._return_to(self._before_submit)

    def logits(self) -> Array:
        self._require_valid()
        return self._logits.copy()

    def common_prefix(self, tokens: Sequence[int]) -> int:
        return common_prefix(self._tokens, tokens)

    def mark(self) -> Mark:
        self._require_valid()
        mark = ReferenceMark(self._state.past(), self._logits)
        self._marks.add(mark)
        return mark

    def rewind(self, mark: Mark) -> None:
        if not isinstance(mark, ReferenceMark) or mark.stale or mark not in self._marks:
            raise SessionInvalid("this mark does not belong to the session's timeline: sync a full prompt")
        self._return_to(mark)

    def snapshot(self) -> bytes:
        file = io.BytesIO()
        self.save(file)
        return file.getvalue()

    def restore(self, snapshot: bytes) -> None:
        self.load(io.BytesIO(snapshot), len(snapshot))

    def save(self, file: BinaryIO) -> int:
        self._require_valid()
        state = SessionState(self._tokens, self._logits, self._state.export())
        return write_payload(file, state, self._layout())

    def load(self, file: BinaryIO, payload_bytes: int) -> None:
        self.invalidate()
        try:
            state = read_payload(file, payload_bytes, self._layout())
        except OSError as error:
            raise PayloadError(f"the saved session cannot be read: {error.strerror or error}") from error
        if self._model.rounded:
            # Other writers keep compressed rows in float32; attention here reads them as binary16 values.
            for layer in state.layers:
                if layer.compressed is not None:
                    layer.compressed = round_f16(layer.compressed)
        self._state.adopt(len(state.tokens), state.layers)
        self._tokens = state.tokens
        self._logits = state.logits

    def payload_bytes(self) -> int:
        self._require_valid()
        return payload_size(self._model.shape, self.position, self._context)

    def invalidate(self) -> None:
        self._state.reset()
        self._tokens = []
        self._before_submit = None
        self._forget_marks_after(-1)

    def close(self) -> None:
        self.invalidate()

    def _checked(self, tokens: Sequence[int]) -> list[int]:
        wanted = [int(token) for token in tokens]
        if not wanted:
            raise ValueError("a prompt has at least one token")
        if min(wanted) < 0 or max(wanted) >= self._model.shape.vocabulary_size:
            raise ValueError("the prompt holds a token outside the vocabulary")
        if len(wanted) >= self._context:
            raise ContextFullError(len(wanted), self._context)
        return wanted

    def _require_valid(self) -> None:
        if not self._tokens:
            raise SessionInvalid("the session holds no valid state: sync a full prompt first")

    def _step_end(self, quantum: int | None) -> int:
        """Where the next prefill step ends: at absolute multiples, so that boundaries do not depend on where
        the session resumed."""
        ends = [(self.position // step + 1) * step for step in (self._prefill_chunk, quantum) if step]
        return min(ends)

    def _between_layers(self, cancelled: CancelCheck | None) -> Callable[[int], None]:
        started = self._power.start()

        def after_layer(layer: int) -> None:
            nonlocal started
            self._power.rest(f"prefill layer {layer}", started, cancelled)
            _poll(cancelled)
            started = self._power.start()

        return after_layer

    def _evaluate(self, tokens: list[int], after_layer: Callable[[int], None] = lambda layer: None) -> None:
        """One step. A `Cancelled` leaves everything as it was; any other failure ends the timeline."""
        try:
            streams, steps = self._model.forward(tokens, self._state, after_layer)
            logits = self._model.output_head(streams[-1:])[0]
        except (Ds4Error, KeyboardInterrupt):
            raise
        except Exception as error:
            self.invalidate()
            raise EngineFault(
                f"evaluating {len(tokens)} tokens failed: {error} (the next prompt starts afresh)"
            ) from error
        self._state.commit(steps, len(tokens))
        self._tokens += tokens
        self._logits = logits

    def _return_to(self, mark: ReferenceMark) -> None:
        self._state.return_to(mark.past)
        del self._tokens[mark.position :]
        self._logits = mark.logits
        self._before_submit = None
        self._forget_marks_after(mark.position)

    def _forget_marks_after(self, position: int) -> None:
        for mark in list(self._marks):
            if mark.position > position:
                mark.stale = True
                self._marks.discard(mark)

    def _layout(self) -> PayloadLayout:
        shape = self._model.shape
        return PayloadLayout(
            shape, self._context, max(1, min(shape.window, self._context)), self._prefill_chunk
        )


def _poll(cancelled: CancelCheck | None) -> None:
    if cancelled is not None and cancelled():
        raise Cancelled
