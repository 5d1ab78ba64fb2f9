"""The seam between programs and backends: `Engine` (the loaded model) and `Session` (one timeline).

Knows no backend. Synchronous and single-threaded: one thread owns an engine from load to close.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from shared.model.shape import ModelShape
from shared.power import PowerGovernor
from shared.sampling import Sampling
from shared.text.tokenizer import Tokenizer

# Called with (tokens done, tokens total) of the evaluated suffix after every completed prefill step,
# the first time with done = 0. May raise `Cancelled`.
Progress = Callable[[int, int], None]
# Polled between layers and between steps; True drops the step in work and raises `Cancelled`.
CancelCheck = Callable[[], bool]


class Synced(NamedTuple):
    """What a sync did: leading tokens reused from the live state, and tokens computed."""

    reused: int
    evaluated: int


class Picked(Protocol):
    """A token chosen from the session's current logits, perhaps still being computed."""

    def value(self) -> int:
        """The token id (the first one of a step of several). Blocks until it is known."""
        ...

    def tokens(self) -> list[int]:
        """All ids of the step, in order; more than one where a step yields several. `submit` then
        advances by all of them, and `undo` takes back all of them. Blocks like `value`."""
        return [self.value()]


class Mark(Protocol):
    """A position in one session's past that `rewind` can return to. Opaque; holds no live array."""

    @property
    def position(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """Host memory that the mark holds, in bytes."""
        ...


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes an engine needs for `sessions` of `context` tokens each (spec: model §5.1). Scratch memory serves
    one at a time; `checkpoints` bytes hold the points that sessions can go back to."""

    context: int
    weights: int
    raw: int
    compressed: int
    scratch: int
    raw_rows: int
    compressed_rows: int
    prefill_chunk: int
    sessions: int = 1
    checkpoints: int = 0

    @property
    def context_buffers(self) -> int:
        return self.sessions * (self.raw + self.compressed) + self.scratch + self.checkpoints

    @property
    def total(self) -> int:
        return self.weights + self.context_buffers


# The plan of a model on a backend for one session of so many tokens.
MemoryPlanner = Callable[[int], MemoryPlan]


class Session(Protocol):
    """One mutable timeline of tokens and the model state that belongs to them.

    Callers hand over a full token prefix; the session decides what it can reuse. State is valid after
    a successful `sync`, `restore` or `load`, until `invalidate` or an `EngineFault`.
    """

    @property
    def tokens(self) -> list[int]:
        """The evaluated tokens, a copy. A lazy token that was submitted is resolved here (blocks)."""
        ...

    @property
    def position(self) -> int:
        """Number of evaluated tokens; 0 when invalid. Never blocks."""
        ...

    @property
    def context(self) -> int:
        """Capacity in tokens. `position` never exceeds it; a prompt must be strictly shorter."""
        ...

    def sync(
        self,
        tokens: Sequence[int],
        progress: Progress | None = None,
        quantum: int | None = None,
        cancelled: CancelCheck | None = None,
    ) -> Synced:
        """Make `tokens` the timeline. Evaluates only the suffix when the live tokens are a prefix of it
        (equality included: nothing is evaluated); otherwise starts from zero.

        `quantum` limits the tokens of one prefill step (default: the engine's prefill chunk).
        Raises ContextFullError, Cancelled (valid at the last completed step), ValueError (empty, or an id
        outside the vocabulary), EngineFault.
        """
        ...

    def submit(self, token: int | Picked) -> None:
        """Evaluate one token at `position`. Does not wait for the result, unless the power is limited: then
        the caller, who rests after each token, must find the work done. Raises ContextFullError when
        `position == context`."""
        ...

    def pick(
        self, sampling: Sampling, uniform: float = 0.0, allowed: npt.NDArray[np.bool_] | None = None
    ) -> Picked:
        """Choose a token from the current logits without blocking. `uniform` in [0, 1) is the draw, used
        only for temperature > 0; `allowed` [vocabulary] masks tokens out, and the step is then one token, for
        which alone the mask was made. Spec: model §6.1."""
        ...

    def undo(self) -> None:
        """Take back exactly the last submitted token, bit-exactly, logits included. Once after a `submit`,
        before any other change; raises SessionInvalid when there is nothing to take back."""
        ...

    def logits(self) -> npt.NDArray[np.float32]:
        """Logits after the last token, float32 [vocabulary], a copy. Blocks."""
        ...

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """Number of equal leading tokens of the live timeline and `tokens`; 0 when invalid."""
        ...

    def mark(self) -> Mark:
        """Remember the present state cheaply (window rows, frontiers, counts; about 20 MB for Flash)."""
        ...

    def rewind(self, mark: Mark) -> None:
        """Return to a mark of this session taken on the present timeline. Bit-exact. Raises
        SessionInvalid if the timeline was rebuilt, or rewound behind the mark, since."""
        ...

    def snapshot(self) -> bytes:
        """The whole state as payload bytes (spec: kv §2)."""
        ...

    def restore(self, snapshot: bytes) -> None:
        """Take over a snapshot, of this or another session of the same model. Raises PayloadError."""
        ...

    def save(self, file: BinaryIO) -> int:
        """Write the payload of `snapshot` to `file`; returns the bytes written."""
        ...

    def load(self, file: BinaryIO, payload_bytes: int) -> None:
        """Read a payload of exactly `payload_bytes`. Raises PayloadError; then the session is invalid."""
        ...

    def payload_bytes(self) -> int:
        """Size that `save` would write now (spec: kv §2.3)."""
        ...

    def invalidate(self) -> None:
        """Forget the timeline; the next sync starts from zero."""
        ...

    def close(self) -> None:
        """Free the session's buffers. The session must not be used again."""
        ...


class Engine(Protocol):
    """The loaded model: immutable but for its power setting and steering, one per process."""

    @property
    def backend(self) -> str:
        """`mlx`, `cuda`, `reference` or `scripted`."""
        ...

    @property
    def name(self) -> str:
        """The model's name for people (GGUF `general.name`, else the variant's name)."""
        ...

    @property
    def shape(self) -> ModelShape: ...

    @property
    def model_id(self) -> int:
        """0 Flash-like, 1 PRO-like: the id in cache files."""
        ...

    @property
    def quant_bits(self) -> int:
        """2 or 4, from layer 0's routed gate experts."""
        ...

    @property
    def fingerprint(self) -> str:
        """Which weights and steering these are, 64 hex digits: the same for every backend, others for others.
        Saved states belong to it. Ask before `close`."""
        ...

    @property
    def effort_profile(self) -> str:
        """`preview` or `official` (spec: chat §2.3)."""
        ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def power(self) -> PowerGovernor:
        """Sleeps between units of work; its percentage may be changed at run time. Sessions rest after each
        layer of a prefill, whoever decodes rests after each token."""
        ...

    def open_session(self, context: int) -> Session: ...

    def memory_plan(self, context: int) -> MemoryPlan: ...

    def close(self) -> None: ...
