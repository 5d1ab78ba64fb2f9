"""How a turn begins: the slot it runs on and what was found for it. Must not know: how it was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.kv.files.cache_file import CacheFile
from shared.kv.live.slot import LiveSlot
from shared.kv.store.outcomes import Saved

Source = Literal["memory-token", "thinking-visible", "memory-text", "memory-checkpoint", "disk-text", "miss"]


@dataclass(frozen=True, slots=True)
class Start:
    """A turn on `slot`, whose session holds the first `reused` of the `tokens` to sync to.

    The tokens render to the prompt, or to it with the live turns' own reasoning in place. `file` is the cache
    file that was loaded; `saved` what became of the state that made room, if one did.
    """

    slot: LiveSlot
    tokens: list[int]
    source: Source
    reused: int
    file: CacheFile | None = None
    saved: Saved | None = None
