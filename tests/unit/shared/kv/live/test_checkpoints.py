"""Which points are given up when memory is short."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from shared.kv.live.checkpoints import Checkpoint, CheckpointBudget, Checkpoints, PointKind

WAY, USER, END = PointKind


@dataclass(frozen=True)
class Mark:
    position: int
    nbytes: int = 10


def point(position: int, kind: PointKind = WAY, size: int = 10) -> Checkpoint:
    return Checkpoint(Mark(position, size), position, kind)


def shelf(budget: CheckpointBudget, *points: Checkpoint) -> Checkpoints:
    made = budget.shelf()
    for each in points:
        made.add(each)
    return made


def positions(points: Checkpoints) -> list[int]:
    return [each.position for each in points]


def test_the_point_goes_whose_loss_costs_the_fewest_tokens() -> None:
    points = shelf(CheckpointBudget(30), point(100), point(150), point(300), point(420))
    assert positions(points) == [100, 300, 420]
    points.add(point(1000))
    assert positions(points) == [300, 420, 1000]


def test_the_newest_prompt_end_and_user_boundary_go_last() -> None:
    budget = CheckpointBudget(20)
    points = shelf(budget, point(500, USER), point(510, USER), point(519, END), point(4000))
    assert positions(points) == [510, 519]
    budget.limit_bytes = 10
    budget.thin()
    assert positions(points) == [510]


def test_an_older_prompt_end_has_no_privilege() -> None:
    points = shelf(CheckpointBudget(20), point(100, END), point(105, END), point(900, USER))
    assert positions(points) == [105, 900]


def test_all_slots_share_the_budget() -> None:
    budget = CheckpointBudget(30)
    first = shelf(budget, point(1000), point(1010))
    second = shelf(budget, point(500), point(700))
    assert (positions(first), positions(second)) == ([1000], [500, 700])
    assert budget.used_bytes == 30
    first.clear()
    assert budget.used_bytes == 20


def test_no_budget_keeps_nothing() -> None:
    assert positions(shelf(CheckpointBudget(0), point(5, END))) == []


def test_a_point_replaces_the_one_at_its_place_and_ends_the_timeline() -> None:
    points = shelf(CheckpointBudget(100), point(5), point(9), point(5, END))
    assert [(each.position, each.kind) for each in points] == [(5, END)]


def test_finding_and_dropping() -> None:
    points = shelf(CheckpointBudget(100), point(5, END), point(9), point(12))
    assert points.newest(4) is None
    newest, end = points.newest(10), points.prompt_end()
    assert newest is not None
    assert end is not None
    assert (newest.position, end.position) == (9, 5)
    assert points.end_at(12)
    assert not points.end_at(9)
    points.drop_behind(11)
    assert positions(points) == [5, 9]
    points.drop_beyond(5)
    assert positions(points) == [5]
    assert not shelf(CheckpointBudget(9)).end_at(0)


@given(
    st.lists(st.tuples(st.integers(1, 500), st.sampled_from(PointKind), st.integers(1, 30)), max_size=25),
    st.integers(0, 200),
)
def test_they_always_fit_and_stay_in_order(steps: list[tuple[int, PointKind, int]], limit: int) -> None:
    budget = CheckpointBudget(limit)
    points, position = budget.shelf(), 0
    for step, kind, size in steps:
        position += step
        points.add(point(position, kind, size))
        assert budget.used_bytes <= limit
        assert positions(points) == sorted(set(positions(points)))
