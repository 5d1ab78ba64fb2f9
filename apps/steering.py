"""What programs ask of an engine about steering; engines without weights cannot be steered.

Must not know: backends, options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.errors import UsageError
from shared.session import Engine

if TYPE_CHECKING:
    from shared.model.file_engine import FileEngine
    from shared.steering.steering import Steering


def steering_of(engine: Engine) -> Steering | None:
    """What steers the engine, perhaps by 0; None if it has no directions."""
    found = _file_engine(engine)
    return None if found is None else found.steering


def is_steered(engine: Engine) -> bool:
    """Whether steering changes what the engine computes: its states are then of no use to other settings, nor
    theirs to it."""
    steering = steering_of(engine)
    return steering is not None and steering.active


def weights_fingerprint(engine: Engine) -> str:
    """`Engine.fingerprint` whatever the steering: for what holds no state."""
    found = _file_engine(engine)
    return engine.fingerprint if found is None else found.weights_fingerprint


def steerable(engine: Engine) -> FileEngine:
    """The engine, if it can be steered. Raises UsageError."""
    found = _file_engine(engine)
    if found is None:
        raise UsageError(f"the {engine.backend} backend computes nothing to be steered")
    return found


def _file_engine(engine: Engine) -> FileEngine | None:
    from shared.model.file_engine import FileEngine

    return engine if isinstance(engine, FileEngine) else None
