"""One timeline on the MLX backend: prefill in steps, decode with look-ahead, going back.

Synchronous; the thread that opened the engine owns it. Must not know: the forward pass's inside, files.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ds4mlx.model import Model, Streams
from ds4mlx.picking import GreedyPick, pick
from ds4mlx.state import State
from ds4mlx.transfer import WindowCopy, copy_windows, from_host, put_windows, to_host
from shared.errors import Cancelled, Ds4Error, SessionInvalid
from shared.kv.payload import LayerState
from shared.power import PowerGovernor
from shared.sampling import Sampling
from shared.session import CancelCheck, Picked
from shared.timeline import TimelineSession


class MlxSession(TimelineSession):
    """Implements `shared.session.Session`. `_before` are the logits that an undo returns to."""

    def __init__(self, model: Model, context: int, prefill_chunk: int, power: PowerGovernor) -> None:
        super().__init__(model.shape, context, prefill_chunk)
        self._model = model
        self._power = power
        self._state: State | None = model.open_state(context)
        self._logits: mx.array | None = None
        self._before: mx.array | None = None

    def submit(self, token: int | Picked) -> None:
        state = self._open_state()
        self._require_room()
        try:
            result = self._model.forward(self._as_array(token), state)
            state.advance(result)
            # The step before must be done: a buffer that it still reads would be copied, not written.
            mx.synchronize()
            self._resolve_last()
            mx.async_eval(result.logits, state.arrays())
            if self._power.active:
                mx.eval(result.logits)
            self._evaluated.append(token)
            self._before, self._logits = self._logits, result.logits
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
        state = self._open_state()
        if self._before is None:
            raise SessionInvalid("there is no submitted token to take back")
        self._evaluated.pop()
        self._logits, self._before = self._before, None
        state.position -= 1
        self._drop_marks_behind(state.position)

    def logits(self) -> npt.NDArray[np.float32]:
        return np.array(self._live_logits())

    def invalidate(self) -> None:
        self._open_state().reset()
        self._forget()

    def close(self) -> None:
        self._state = None
        self._forget()
        mx.clear_cache()

    @property
    def _longest_step(self) -> int:
        return self._chunk

    def _prefill(self, tokens: list[int], cancelled: CancelCheck | None) -> None:
        """Evaluate one step layer by layer."""
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
        self._evaluated += tokens
        self._logits, self._before = result.logits, None

    def _forget(self) -> None:
        super()._forget()
        self._logits = self._before = None

    def _restart(self, tokens: list[int | Picked], logits: npt.NDArray[np.float32]) -> None:
        self._evaluated = tokens
        self._logits, self._before = mx.array(logits), None

    def _copy_windows(self) -> list[WindowCopy]:
        return copy_windows(self._open_state())

    def _put_windows(self, windows: Sequence[WindowCopy], position: int) -> None:
        put_windows(self._open_state(), list(windows), position)

    def _to_host(self) -> list[LayerState]:
        return to_host(self._open_state())

    def _from_host(self, layers: list[LayerState], position: int) -> None:
        from_host(self._open_state(), layers, position)

    def _as_array(self, token: int | Picked) -> mx.array:
        """The token as int32 [1]; a greedy choice stays on the device, unread."""
        return token.token if isinstance(token, GreedyPick) else mx.array([self._number(token)], mx.int32)

    def _live_logits(self) -> mx.array:
        if self._logits is None:
            raise SessionInvalid("the session holds no evaluated prompt: sync one first")
        return self._logits

    def _open_state(self) -> State:
        if self._state is None:
            raise SessionInvalid("the session is closed")
        return self._state
