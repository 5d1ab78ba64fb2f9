"""A process that dies between two steps of a save leaves a store that is whole."""

from __future__ import annotations

import random
from pathlib import Path

from tests.support.crash_rounds import die_at, inspect, plant_leftovers
from tests.support.crash_writer import survey, zygote


def test_ten_deaths_in_one_directory(tmp_path: Path) -> None:
    source = random.Random(11)
    plant_leftovers(tmp_path)
    places = survey(tmp_path)
    with zygote() as children:
        for place in source.sample(list(places), 10):
            plant_leftovers(tmp_path)
            assert die_at(place, 1, children, tmp_path, source)
            inspect(tmp_path, source)
