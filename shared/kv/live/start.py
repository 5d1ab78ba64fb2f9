"""How a turn begins: the slot it runs on and what was found for it. Must not know: how it was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.kv.files.cache_file import CacheFile
from shared.kv.live.disk_match import hidden_kind
from shared.kv.live.prompt import Prompt
from shared.kv.live.slot import LiveSlot, MemorySource
from shared.kv.store.outcomes import Saved

Source = Literal[MemorySource, "disk-text", "miss"]


@dataclass(frozen=True, slots=True)
class Start:
    """A turn on `slot`, whose session holds the first `reused` of the `tokens` to sync to.

    The tokens render to `prompt`, or to it with the live turns' own words in place. `prompt` is what was
    asked for; results of tools alone have what they belong to before them. `file` is the cache file that was
    loaded; `saved` what became of the state that made room, if one did.
    """

    slot: LiveSlot
    prompt: Prompt
    tokens: list[int]
    source: Source
    reused: int
    file: CacheFile | None = None
    saved: Saved | None = None

    @property
    def holds_answers(self) -> bool:
        """The state is one that the earlier answers were made in, with what was hidden in them."""
        if self.file is not None:
            return bool(hidden_kind(self.file))
        return self.source not in ("miss", "memory-checkpoint")
