"""Which slot a prompt goes to, and from what: the way that costs the fewest tokens of work, now and later.

Owns the weighing only. Must not know: how a state is taken, loaded or saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shared.kv.files.cache_file import CacheFile
from shared.kv.live.slot import LiveSlot, Reuse

# What disk work costs in tokens of prefill: for each file, and one for so many tokens read or written.
# Reading is the cheaper: a state that is written must be read again some day, and disks wear.
_FILE_TOKENS: Final = 32
_READ_SHARE: Final = 64
_WRITE_SHARE: Final = 16


@dataclass(frozen=True, slots=True)
class StoredPrefix:
    """A file and the tokens of the prompt that are left to evaluate behind it."""

    file: CacheFile
    left: int


@dataclass(frozen=True, slots=True)
class Way:
    """A slot, what memory holds for the prompt there, and whether the disk is tried first."""

    slot: LiveSlot
    reuse: Reuse
    from_disk: bool
    cost: int
    discarded: int

    @property
    def kept(self) -> int:
        """Live tokens that stay."""
        return 0 if self.from_disk else self.reuse.kept


def choose(
    slots: Sequence[LiveSlot],
    reuses: Sequence[Reuse],
    stored: StoredPrefix | None,
    *,
    worth_a_file: int,
    saves: bool,
) -> Way:
    """The cheapest way; of equal ones the one that discards least, then the slot that was idle longest.

    `reuses` are what each slot offers. If the store `saves`, what is discarded costs little from
    `worth_a_file` tokens on, because it is saved first; else it may have to be evaluated again.
    """

    def way(slot: LiveSlot, reuse: Reuse, from_disk: bool, work: int) -> Way:
        discarded = slot.loss(0 if from_disk else reuse.kept, worth_a_file)
        price = discard_price(discarded, worth_a_file=worth_a_file, saves=saves)
        return Way(slot, reuse, from_disk, work + price, discarded)

    offers = list(zip(slots, reuses, strict=True))
    ways = [way(slot, reuse, False, len(reuse.tokens) - reuse.kept) for slot, reuse in offers]
    if stored is not None:
        loading = _FILE_TOKENS + stored.file.header.tokens // _READ_SHARE
        ways += [way(slot, reuse, True, stored.left + loading) for slot, reuse in offers]
    return min(ways, key=lambda way: (way.cost, way.discarded, way.slot.used))


def discard_price(tokens: int, *, worth_a_file: int, saves: bool) -> int:
    """What it costs, in tokens of work, that so many live ones go."""
    return _FILE_TOKENS + tokens // _WRITE_SHARE if saves and tokens >= worth_a_file else tokens
