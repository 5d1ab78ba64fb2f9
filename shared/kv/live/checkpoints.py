"""Points of live timelines that can be gone back to, all of them within one budget of memory.

Owns which point is given up when memory is short: the one whose loss would cost the fewest tokens. Must not
know: prompts, stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from shared.session import Mark

DEFAULT_CHECKPOINT_BYTES: Final = 512 << 20


class PointKind(IntEnum):
    """Why a point is kept; where several reasons meet the highest counts."""

    ON_THE_WAY = 0  # so that no edit costs more than a stretch of a long text
    USER = 1  # before a user's message
    PROMPT_END = 2  # before a prompt's last token: where it is asked again, or its answer does not return


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A mark, and how many bytes of a client's rendering its tokens stand for."""

    mark: Mark
    offset: int
    kind: PointKind

    @property
    def position(self) -> int:
        return self.mark.position


class CheckpointBudget:
    """The memory, in bytes, that the checkpoints of all slots share. 0 keeps none."""

    def __init__(self, limit_bytes: int = DEFAULT_CHECKPOINT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._shelves: list[Checkpoints] = []

    def shelf(self) -> Checkpoints:
        """The checkpoints of one more slot."""
        shelf = Checkpoints(self)
        self._shelves.append(shelf)
        return shelf

    @property
    def used_bytes(self) -> int:
        return sum(point.mark.nbytes for shelf in self._shelves for point in shelf)

    def thin(self) -> None:
        """Give up points until the rest fits."""
        while self.used_bytes > self.limit_bytes:
            _, _, shelf, point = min(
                (
                    (last_resort, loss, shelf, point)
                    for shelf in self._shelves
                    for last_resort, loss, point in shelf.losses()
                ),
                key=lambda candidate: candidate[:2],
            )
            shelf.give_up(point)


class Checkpoints:
    """The points of one slot's timeline, in order."""

    def __init__(self, budget: CheckpointBudget) -> None:
        self._budget = budget
        self._points: list[Checkpoint] = []

    def __iter__(self) -> Iterator[Checkpoint]:
        return iter(self._points)

    @property
    def last(self) -> Checkpoint | None:
        """The point nearest to the end of the timeline."""
        return self._points[-1] if self._points else None

    def add(self, point: Checkpoint) -> None:
        """Keep a point at the end of the timeline, instead of one that is there already."""
        self.drop_behind(point.position - 1)
        self._points.append(point)
        self._budget.thin()

    def newest(self, most_bytes: int) -> Checkpoint | None:
        """The last point that stands for at most `most_bytes`."""
        return next((point for point in reversed(self._points) if point.offset <= most_bytes), None)

    def end_at(self, position: int) -> bool:
        """Whether the last point stands at `position`."""
        return bool(self._points) and self._points[-1].position == position

    def prompt_end(self) -> Checkpoint | None:
        """The end of the newest prompt whose end is still kept."""
        return next((p for p in reversed(self._points) if p.kind is PointKind.PROMPT_END), None)

    def drop_behind(self, position: int) -> None:
        """The timeline now ends at `position`."""
        self._points = [point for point in self._points if point.position <= position]

    def drop_beyond(self, offset: int) -> None:
        """What stands behind byte `offset` will not come back."""
        self._points = [point for point in self._points if point.offset <= offset]

    def clear(self) -> None:
        self._points = []

    def give_up(self, point: Checkpoint) -> None:
        self._points = [other for other in self._points if other is not point]

    def losses(self) -> Iterator[tuple[bool, int, Checkpoint]]:
        """For each point whether it is given up only after all others (the newest prompt's end and the last
        user's message), and the tokens to evaluate again without it: those since the point before."""
        last = {kind: max((p.position for p in self if p.kind is kind), default=-1) for kind in PointKind}
        before = 0
        for point in self._points:
            last_resort = point.kind is not PointKind.ON_THE_WAY and point.position == last[point.kind]
            yield last_resort, point.position - before, point
            before = point.position
