"""Which files make room for a new one, and whether the new one would be worth it. Spec: kv §6.

Owns the ranking only. Must not know: directories, how a file is removed, why it was asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from shared.kv.files.header import ANCHORS, Header, Reason

# Seconds in which a hit loses half of its weight.
_HIT_HALF_LIFE: Final = 21600.0
_FAINTEST_HITS: Final = 0.01
# A cold file with as many continuations, or hits, is where several conversations begin.
_SHARED_BY: Final = 2


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file of the store, or one about to be written. `size` is the whole file in bytes.

    `superseded`: the file about to be written continues this one. `shared_anchor`: see `is_shared_anchor`.
    """

    name: str
    header: Header
    size: int
    superseded: bool = False
    shared_anchor: bool = False


@dataclass(frozen=True, slots=True)
class Victims:
    """`names` in the order in which they go. With `would_evict_incoming` nothing goes: the new file would be
    the first that has to leave again, or there is no room that may be taken."""

    names: tuple[str, ...] = ()
    would_evict_incoming: bool = False


def decayed_hits(header: Header, now: float) -> float:
    """The hits of a file as they count at `now`, Unix seconds: half of them every six hours. Spec: kv §6."""
    hits = header.hits * _fading(header, now)
    return hits if hits >= _FAINTEST_HITS else 0.0


def score(candidate: Candidate, now: float) -> float:
    """What a file is worth, in tokens for each byte; the lowest goes first. Spec: kv §6."""
    if not candidate.size:
        return 0.0
    header = candidate.header
    hits = decayed_hits(header, now)
    value = (hits + 1) * header.tokens / candidate.size
    if header.reason in ANCHORS:
        value *= 2
    if candidate.superseded:
        value *= 0.05 + 0.45 * hits / (hits + 1)
    return value


def is_shared_anchor(header: Header, branches: int, now: float) -> bool:
    """Whether several conversations begin with this file: it is the cold save of a prompt, and `branches`
    other files continue it in different ways or it was hit lately. Such a file is small, so that by its
    tokens alone it would always be the first to go."""
    return header.reason == Reason.COLD and (
        branches >= _SHARED_BY or decayed_hits(header, now) >= _SHARED_BY
    )


def choose_victims(
    candidates: Sequence[Candidate],
    budget: int | None,
    extra: int,
    now: float,
    *,
    protected: Collection[str] = (),
    incoming: Candidate | None = None,
) -> Victims:
    """What has to go so that `candidates` and `extra` further bytes fit into `budget` bytes (None: no limit).

    `incoming` is the file that needs the `extra` bytes; one of `candidates` with its name will be replaced by
    it and neither counts nor goes. `protected` names never go; shared anchors go when nothing else is left.

    Nothing is written that would be the first to leave again: an incoming file must be worth as much as each
    file that goes for it, and never takes the place of a shared anchor. Only the state of a session that is
    being given up is written if there is any way.
    """
    if budget is None:
        return Victims()
    present = [file for file in candidates if incoming is None or file.name != incoming.name]
    excess = sum(file.size for file in present) + extra - budget
    names: list[str] = []
    if excess > 0 and extra <= budget:
        standing = _standing(present, budget // 2, now)
        pool = [file for file in present if file.name not in protected]
        for file in _in_order(pool, standing, now):
            if excess <= 0 or (incoming is not None and not _gives_way(file, incoming, standing, now)):
                break
            names.append(file.name)
            excess -= file.size
    if excess > 0 and incoming is not None:
        return Victims(would_evict_incoming=True)
    return Victims(tuple(names))


def _standing(candidates: Sequence[Candidate], room: int, now: float) -> set[str]:
    """The shared anchors that count as such: the best ones, together at most `room` bytes."""
    anchors = [file for file in candidates if file.shared_anchor]
    anchors.sort(key=lambda file: (score(file, now), file.header.last_used), reverse=True)
    names: set[str] = set()
    for anchor in anchors:
        if anchor.size <= room:
            room -= anchor.size
            names.add(anchor.name)
    return names


def _in_order(files: Sequence[Candidate], standing: Collection[str], now: float) -> list[Candidate]:
    """The order in which files go: the lowest score, then the longest unused, then the first found."""
    return sorted(files, key=lambda file: (file.name in standing, score(file, now), file.header.last_used))


def _gives_way(file: Candidate, incoming: Candidate, standing: Collection[str], now: float) -> bool:
    if incoming.header.reason in (Reason.EVICT, Reason.SHUTDOWN):
        return True
    return file.name not in standing and _faded_score(file, now) <= score(incoming, now)


def _faded_score(candidate: Candidate, now: float) -> float:
    """The score, if having been written fades like a hit. By `score` alone a directory full of long states,
    all forgotten, would refuse every short new one for ever."""
    hits = decayed_hits(candidate.header, now)
    return score(candidate, now) * (hits + _fading(candidate.header, now)) / (hits + 1)


def _fading(header: Header, now: float) -> float:
    """What is left of one hit at the last use."""
    return 2.0 ** -(max(0.0, now - header.used_at) / _HIT_HALF_LIFE) if header.used_at else 0.0
