"""A process that dies in the middle of anything leaves a store that is whole."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.crash_rounds import Found, die_at, die_from_outside, inspect, plant_leftovers
from tests.support.crash_writer import survey, zygote

pytestmark = pytest.mark.long

DEATHS = 100


def assert_telling(found: list[Found]) -> None:
    assert max(left.files for left in found) >= 3, "the writer never got far"
    assert sum(left.leftovers > 0 for left in found) >= len(found) / 20, "hardly any death met a write"


def test_a_death_at_every_line(tmp_path: Path) -> None:
    source, found = random.Random(1), []
    plant_leftovers(tmp_path)
    places = survey(tmp_path)
    with zygote() as children:
        for place, visits in places.items():
            plant_leftovers(tmp_path)
            if die_at(place, visits, children, tmp_path, source):
                found.append(inspect(tmp_path, source))
    assert len(found) >= DEATHS
    assert_telling(found)


def test_a_hundred_deaths_from_outside(tmp_path: Path) -> None:
    source, found = random.Random(2), []
    with zygote() as children:
        for _ in range(DEATHS):
            die_from_outside(children, tmp_path, source)
            found.append(inspect(tmp_path, source))
    assert_telling(found)
