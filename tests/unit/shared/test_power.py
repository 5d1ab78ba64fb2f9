"""The power governor's arithmetic, on a clock of the test."""

from __future__ import annotations

import pytest

from shared.power import PowerGovernor
from tests.support.clock import FakeClock


def governor(percent: int, clock: FakeClock) -> PowerGovernor:
    return PowerGovernor(percent, clock=clock, sleep=clock.sleep)


def unit(power: PowerGovernor, clock: FakeClock, seconds: float, key: str = "decode") -> float:
    """Do a unit of work; returns how long the governor slept after it."""
    started = power.start()
    clock.now += seconds
    before = sum(clock.slept)
    power.rest(key, started)
    return sum(clock.slept) - before


def test_full_power_never_sleeps() -> None:
    clock = FakeClock()
    assert unit(governor(100, clock), clock, 3.0) == 0


def test_first_sample_starts_the_average() -> None:
    clock = FakeClock()
    assert unit(governor(50, clock), clock, 2.0) == pytest.approx(2.0)
    assert unit(governor(25, clock), clock, 2.0) == pytest.approx(6.0)


def test_average_is_seven_eighths_old() -> None:
    clock = FakeClock()
    power = governor(50, clock)
    unit(power, clock, 8.0)
    assert unit(power, clock, 16.0) == pytest.approx(9.0)
    assert unit(power, clock, 9.0) == pytest.approx(9.0)


def test_units_have_averages_of_their_own() -> None:
    clock = FakeClock()
    power = governor(50, clock)
    unit(power, clock, 8.0, "layer 0")
    assert unit(power, clock, 1.0, "layer 1") == pytest.approx(1.0)


def test_percentage_changes_at_run_time() -> None:
    clock = FakeClock()
    power = governor(100, clock)
    unit(power, clock, 4.0)
    power.percent = 80
    assert unit(power, clock, 4.0) == pytest.approx(1.0)


def test_sleeps_are_short_slices_that_an_interrupt_ends() -> None:
    clock = FakeClock()
    power = governor(1, clock)
    started = power.start()
    clock.now += 1.0
    power.rest("decode", started, lambda: len(clock.slept) >= 3)
    assert len(clock.slept) == 3
    assert max(clock.slept) <= 0.05


@pytest.mark.parametrize("percent", [0, 101, -5])
def test_refuses_other_percentages(percent: int) -> None:
    with pytest.raises(ValueError, match="between 1 and 100"):
        PowerGovernor(percent)


def test_a_clock_that_goes_back_is_no_work() -> None:
    clock = FakeClock(10.0)
    assert unit(governor(50, clock), clock, -5.0) == 0
