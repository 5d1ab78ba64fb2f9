"""One timeline on the CUDA backend: prefill in steps, decode with look-ahead, going back.

Synchronous; the thread that opened the engine owns it. Must not know: the forward pass's inside, files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ds4cuda.graph import DecodeSteps
from ds4cuda.model import Model
from ds4cuda.picking import Chooser, DevicePick
from ds4cuda.state import State
from ds4cuda.step import Step
from ds4cuda.transfer import WindowCopy, copy_windows, from_host, put_windows, to_host
from shared.errors import Cancelled, Ds4Error, SessionInvalid
from shared.kv.payload import LayerState
from shared.power import PowerGovernor
from shared.sampling import Sampling
from shared.session import CancelCheck, Picked
from shared.timeline import TimelineSession


@dataclass(frozen=True, slots=True)
class _Buffers:
    """What a session has on the device, and what works in it. Logits after n tokens are in row n mod 2 of
    `logits`, float32 [2, vocabulary]; those before the last token stand in the other, for an undo."""

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


class CudaSession(TimelineSession):
    """Implements `shared.session.Session`."""

    def __init__(self, model: Model, context: int, prefill_chunk: int, power: PowerGovernor) -> None:
        super().__init__(model.shape, context, prefill_chunk)
        self._model = model
        self._device = model.device
        self._power = power
        self._buffers: _Buffers | None = _Buffers.of(model, context)
        self._can_undo = False

    def submit(self, token: int | Picked) -> None:
        steps = self._open().steps
        if not self.position:
            raise SessionInvalid("the session holds no evaluated prompt: sync one first")
        self._require_room()
        chosen = token.token if isinstance(token, DevicePick) else None
        number = -1 if isinstance(token, DevicePick) else self._number(token)
        self._can_undo = False  # from here on, the logits that it would return to are overwritten
        try:
            self._model.begin(self.position, 1, number, chosen)
            steps.run(self.position)
            self._resolve_last()
            if self._power.active:
                self._device.synchronize()
        except (RuntimeError, MemoryError) as reason:
            raise self._fault(reason) from reason
        self._evaluated.append(token if number < 0 else number)
        self._move(can_undo=True)

    def pick(
        self, sampling: Sampling, uniform: float = 0.0, allowed: npt.NDArray[np.bool_] | None = None
    ) -> Picked:
        return self._open().chooser.pick(self._live_logits(), sampling, uniform, allowed)

    def undo(self) -> None:
        self._open()
        if not self._can_undo:
            raise SessionInvalid("there is no submitted token to take back")
        self._evaluated.pop()
        self._move(can_undo=False)
        self._drop_marks_behind(self.position)

    def logits(self) -> npt.NDArray[np.float32]:
        return self._device.download(self._live_logits())

    def invalidate(self) -> None:
        self._open().state.reset()
        self._forget()

    def close(self) -> None:
        self._buffers = None
        self._forget()
        self._device.free()

    @property
    def _longest_step(self) -> int:
        return self._open().state.longest_step

    def _prefill(self, tokens: list[int], cancelled: CancelCheck | None) -> None:
        """Evaluate one step layer by layer."""
        state, model, count = self._open().state, self._model, len(tokens)
        step = model.step(self.position, count)
        started = self._power.start()

        def layer_done(layer: int) -> None:
            nonlocal started
            self._device.synchronize()
            self._layer_done(layer, step)
            self._power.rest(f"prefill.{layer}", started, cancelled)
            started = self._power.start()
            if cancelled is not None and cancelled():
                raise Cancelled

        state.keep_frontiers()
        try:
            self._device.write(model.scratch("tokens", count), np.array(tokens, np.int32))
            model.begin(self.position, count)
            logits = model.forward(state, step, layer_done)
        except (Ds4Error, KeyboardInterrupt):
            state.put_back_frontiers()
            raise
        except (RuntimeError, MemoryError) as reason:
            raise self._fault(reason) from reason
        self._evaluated += tokens
        self._move(can_undo=False)
        self._device.copy(self._live_logits(), logits)

    def _layer_done(self, layer: int, step: Step) -> None:
        """A layer of a prefill step is done, and its arrays are still there."""

    def _move(self, *, can_undo: bool) -> None:
        """The state is now that after the evaluated tokens."""
        self._open().state.position = self.position
        self._can_undo = can_undo

    def _forget(self) -> None:
        super()._forget()
        self._can_undo = False

    def _restart(self, tokens: list[int | Picked], logits: npt.NDArray[np.float32]) -> None:
        self._evaluated = tokens
        self._move(can_undo=False)
        self._device.write(self._live_logits(), logits)

    def _copy_windows(self) -> list[WindowCopy]:
        return [copy_windows(self._device, self._open().state)]

    def _put_windows(self, windows: Sequence[WindowCopy], position: int) -> None:
        put_windows(self._device, self._open().state, windows[0], position)

    def _to_host(self) -> list[LayerState]:
        return to_host(self._device, self._open().state)

    def _from_host(self, layers: list[LayerState], position: int) -> None:
        from_host(self._device, self._open().state, layers, position)

    def _live_logits(self) -> Any:
        logits = self._open().logits
        if not self.position:
            raise SessionInvalid("the session holds no evaluated prompt: sync one first")
        return logits[self.position % 2]

    def _open(self) -> _Buffers:
        if self._buffers is None:
            raise SessionInvalid("the session is closed")
        return self._buffers
