"""What sessions on a device do alike: prompts cut into steps, the evaluated tokens, marks, payloads.

A backend adds what happens in its buffers. Must not know: any device, the forward pass, files.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from shared.errors import ContextFullError, EngineFault, SessionInvalid
from shared.kv.payload import (
    LayerState,
    PayloadLayout,
    SessionState,
    payload_size,
    read_payload,
    write_payload,
)
from shared.model.memory import prefill_cap, raw_capacity
from shared.model.shape import ModelShape
from shared.prefix import common_prefix
from shared.session import CancelCheck, Mark, Picked, Progress, Synced

Array = npt.NDArray[np.float32]


@dataclass(eq=False, slots=True, weakref_slot=True)
class TimelineMark:
    """See `shared.session.Mark`. `windows` are a backend's copies of what later steps overwrite."""

    position: int
    logits: Array
    windows: Sequence[Any]
    valid: bool = True

    @property
    def nbytes(self) -> int:
        return self.logits.nbytes + sum(int(window.nbytes) for window in self.windows)


class TimelineSession(ABC):
    """The part of `shared.session.Session` that no device sees. `_evaluated` are the tokens of the timeline,
    of which only the last may be unread."""

    def __init__(self, shape: ModelShape, context: int, prefill_chunk: int) -> None:
        if context < 1:
            raise ValueError(f"a context of {context} tokens is impossible")
        self._shape = shape
        self._context = context
        self._chunk = prefill_cap(context, prefill_chunk)
        self._evaluated: list[int | Picked] = []
        self._marks: WeakSet[TimelineMark] = WeakSet()

    @property
    def tokens(self) -> list[int]:
        self._resolve_last()
        return [token if isinstance(token, int) else token.value() for token in self._evaluated]

    @property
    def position(self) -> int:
        return len(self._evaluated)

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

    def common_prefix(self, tokens: Sequence[int]) -> int:
        return common_prefix(self.tokens, tokens)

    def mark(self) -> Mark:
        mark = TimelineMark(self.position, self.logits(), self._copy_windows())
        self._marks.add(mark)
        return mark

    def rewind(self, mark: Mark) -> None:
        if not isinstance(mark, TimelineMark) or not mark.valid or mark not in self._marks:
            raise SessionInvalid("the mark is not on this session's present timeline: sync the prompt again")
        self._put_windows(mark.windows, mark.position)
        self._restart(self._evaluated[: mark.position], mark.logits)
        self._drop_marks_behind(mark.position)

    def snapshot(self) -> bytes:
        file = io.BytesIO()
        self.save(file)
        return file.getvalue()

    def restore(self, snapshot: bytes) -> None:
        self.load(io.BytesIO(snapshot), len(snapshot))

    def save(self, file: BinaryIO) -> int:
        stored = SessionState(self.tokens, self.logits(), self._to_host())
        return write_payload(file, stored, self._layout())

    def load(self, file: BinaryIO, payload_bytes: int) -> None:
        self.invalidate()
        stored = read_payload(file, payload_bytes, self._layout())
        self._from_host(stored.layers, len(stored.tokens))
        self._restart(list(stored.tokens), stored.logits)

    def payload_bytes(self) -> int:
        return payload_size(self._shape, self.position, self._context)

    @abstractmethod
    def logits(self) -> Array: ...

    @abstractmethod
    def invalidate(self) -> None:
        """Also `_forget`."""

    @property
    @abstractmethod
    def _longest_step(self) -> int:
        """The most tokens of a prefill step."""

    @abstractmethod
    def _prefill(self, tokens: list[int], cancelled: CancelCheck | None) -> None:
        """Evaluate one step; a cancelled one leaves the session as it was."""

    @abstractmethod
    def _restart(self, tokens: list[int | Picked], logits: Array) -> None:
        """Go on after `tokens`, of which the buffers hold the state."""

    @abstractmethod
    def _copy_windows(self) -> Sequence[Any]:
        """What later steps overwrite; each copy tells its `nbytes`."""

    @abstractmethod
    def _put_windows(self, windows: Sequence[Any], position: int) -> None: ...

    @abstractmethod
    def _to_host(self) -> list[LayerState]: ...

    @abstractmethod
    def _from_host(self, layers: list[LayerState], position: int) -> None: ...

    def _forget(self) -> None:
        """There is no timeline any more."""
        self._evaluated = []
        self._drop_marks_behind(-1)

    def _require_room(self) -> None:
        """Raises ContextFullError where no token can follow."""
        if self.position >= self._context:
            raise ContextFullError(self.position + 1, self._context)

    def _number(self, token: int | Picked) -> int:
        """The id of a token to submit; blocks until it is known. Raises ValueError for one that is none."""
        number = token if isinstance(token, int) else token.value()
        if not 0 <= number < self._shape.vocabulary_size:
            vocabulary = self._shape.vocabulary_size
            raise ValueError(f"token {number} is outside the vocabulary of {vocabulary}")
        return number

    def _resolve_last(self) -> None:
        """Replace the last token by its number, now that it is known without waiting."""
        tokens = self._evaluated
        if tokens and not isinstance(tokens[-1], int):
            tokens[-1] = tokens[-1].value()

    def _drop_marks_behind(self, position: int) -> None:
        for mark in [mark for mark in self._marks if mark.position > position]:
            mark.valid = False
            self._marks.discard(mark)

    def _fault(self, reason: Exception) -> EngineFault:
        """Forget everything: what the failed step left in the buffers is unknown."""
        self.invalidate()
        return EngineFault(f"the engine failed in mid-step ({reason}): the next prompt starts from zero")

    def _step_end(self, start: int, end: int, quantum: int | None) -> int:
        """Where the step from `start` ends: at multiples of its size, so that a resumed prompt is cut like
        one from the beginning."""
        size = self._longest_step if quantum is None else min(max(1, quantum), self._longest_step)
        return min(end, start - start % size + size)

    def _checked(self, tokens: Sequence[int]) -> list[int]:
        wanted = [int(token) for token in tokens]
        if not wanted:
            raise ValueError("an empty prompt cannot be evaluated")
        vocabulary = self._shape.vocabulary_size
        if not all(0 <= token < vocabulary for token in wanted):
            raise ValueError(f"the prompt holds a token outside the vocabulary of {vocabulary}")
        if len(wanted) >= self._context:
            raise ContextFullError(len(wanted), self._context)
        return wanted

    def _extends(self, wanted: list[int]) -> bool:
        return 0 < self.position <= len(wanted) and wanted[: self.position] == self.tokens

    def _layout(self) -> PayloadLayout:
        return PayloadLayout(
            shape=self._shape,
            context=self._context,
            raw_capacity=raw_capacity(self._context, self._chunk, self._shape.window),
            prefill_chunk=self._chunk,
        )
