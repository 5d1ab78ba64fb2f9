"""Everything that can be chosen about the server, as values. Knows no flag and no environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from shared.kv.store.policy import StoreSettings
from shared.text.effort import Effort

DEFAULT_PORT = 8000
DEFAULT_MAX_TOKENS = 393_216
DEFAULT_TOOL_MEMORY = 100_000
DEFAULT_MAX_QUEUE = 64
DEFAULT_CHECKPOINT_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may cost before it is understood. Bytes, levels."""

    body_bytes: int = 64 * 1024 * 1024
    header_bytes: int = 64 * 1024
    json_depth: int = 256


@dataclass(frozen=True, slots=True)
class Timing:
    """Wall-clock intervals in seconds; tests make them small."""

    keepalive_waiting: float = 5.0
    keepalive_decode: float = 15.0
    write_timeout: float = 2.0
    # A body must keep coming: each part within `body_stall`, the whole within `body_stall` plus the time
    # that its bytes take at `body_bytes_per_second`.
    body_stall: float = 10.0
    body_bytes_per_second: float = 16 * 1024
    # How long a refused upload is read and dropped so that its sender sees the answer.
    refusal_linger: float = 1.0
    idle_connection: float = 30.0
    # How long a peer may leave what it was sent unacknowledged, or its receive window shut.
    dead_peer: float = 30.0
    # What is in work may finish; then every connection gets a moment to be closed in order.
    shutdown_grace: float = 10.0
    close_grace: float = 2.0


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """A disk store of prompt states. `directory` None: the model's own folder in the user's cache."""

    directory: Path | None = None
    store: StoreSettings = field(default_factory=StoreSettings)


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Who may use the API: everyone who shows one of `keys`, without keys everyone.

    Web pages of the `origins` may read the answers, with `any_origin` those of all. `host_names` are what
    the server may be called besides its addresses and `localhost`; None: whatever it is called.
    """

    keys: frozenset[bytes] = field(default=frozenset(), repr=False)
    any_origin: bool = False
    origins: frozenset[str] = frozenset()
    host_names: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How requests are answered. `max_tokens` is the budget of a request that names none. `sessions` turns
    are in work at once and `max_queue` more may wait. The live conversations share `checkpoint_bytes` of
    memory to go back in; without `disk` nothing is stored."""

    max_tokens: int = DEFAULT_MAX_TOKENS
    thinking: bool = True
    effort: Effort = "high"
    control_tokens_in_content: bool = False
    exact_replay: bool = True
    tool_memory_ids: int = DEFAULT_TOOL_MEMORY
    sessions: int = 1
    max_queue: int = DEFAULT_MAX_QUEUE
    checkpoint_bytes: int = DEFAULT_CHECKPOINT_BYTES
    disk: DiskSettings | None = None
    access: AccessSettings = AccessSettings()
    limits: Limits = field(default_factory=Limits)
    timing: Timing = field(default_factory=Timing)
