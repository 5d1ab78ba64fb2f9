"""What every engine that was loaded from a model file tells of it.

Must not know: backends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from weakref import WeakSet

from shared.errors import SessionInvalid
from shared.model.open import ModelFile
from shared.model.shape import ModelShape
from shared.power import PowerGovernor
from shared.session import CancelCheck, MemoryPlan, Session
from shared.steering.directions import Array, Component
from shared.steering.steering import Steering
from shared.text.tokenizer import Tokenizer


class FileEngine(ABC):
    """The part of `shared.session.Engine` that comes from the file, which it owns, and steering. `notes` are
    lines for the start of a program."""

    backend: str

    def __init__(
        self, file: ModelFile, *, prefill_chunk: int, power: PowerGovernor, notes: list[str]
    ) -> None:
        self._file = file
        self.prefill_chunk = prefill_chunk
        self.power = power
        self.notes = notes
        self._steering: Steering | None = None
        self._sessions: WeakSet[Session] = WeakSet()

    @property
    def name(self) -> str:
        return self._file.name

    @property
    def shape(self) -> ModelShape:
        return self._file.shape

    @property
    def model_id(self) -> int:
        return self._file.shape.model_id

    @property
    def quant_bits(self) -> int:
        return self._file.quant_bits

    @property
    def fingerprint(self) -> str:
        """Under steering another one for each: states that were come to otherwise are of no use to it."""
        weights = self._file.fingerprint
        return weights if self._steering is None else self._steering.fingerprint(weights)

    @property
    def weights_fingerprint(self) -> str:
        """As `fingerprint`, whatever the steering."""
        return self._file.fingerprint

    @property
    def steering(self) -> Steering | None:
        """What steers the model, perhaps by 0; None if there are no directions."""
        return self._steering

    @property
    def effort_profile(self) -> str:
        return self._file.effort_profile

    @property
    def tokenizer(self) -> Tokenizer:
        return self._file.tokenizer

    def open_session(self, context: int) -> Session:
        session = self._new_session(context)
        self._sessions.add(session)
        return session

    def steer(self, steering: Steering) -> None:
        """Steer every step from now on. Open sessions forget their timelines, whose state belongs to what was
        before."""
        self._steering = steering
        self._use_steering(steering if steering.active else None)
        for session in list(self._sessions):
            with suppress(SessionInvalid):  # a closed one
                session.invalidate()

    def last_outputs(
        self,
        session: Session,
        tokens: Sequence[int],
        component: Component,
        cancelled: CancelCheck | None = None,
    ) -> Array:
        """What `component` of each layer gives for the last of `tokens`, before steering: float32 [layers,
        width]. They are then the session's timeline. Raises like `Session.sync`."""
        session.invalidate()
        with self._recorded(component) as outputs:
            session.sync(tokens, cancelled=cancelled)
            return outputs()

    def close(self) -> None:
        self._file.close()

    @abstractmethod
    def memory_plan(self, context: int) -> MemoryPlan: ...

    @abstractmethod
    def _new_session(self, context: int) -> Session: ...

    @abstractmethod
    def _use_steering(self, steering: Steering | None) -> None:
        """From the next step on."""

    @abstractmethod
    def _recorded(self, component: Component) -> AbstractContextManager[Callable[[], Array]]:
        """While it is held, steps of prefill keep what `component` gives for their last token; its value
        gives that of the last step, float32 [layers, width]."""
