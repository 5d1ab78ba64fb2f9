"""The thinking flags, and the defaults people rely on."""

import pytest

from apps import options
from apps.options import requested_effort
from shared.errors import UsageError
from shared.sampling import Sampling


@pytest.mark.parametrize(
    ("think", "think_max", "nothink", "effort", "expected"),
    [
        (False, False, False, None, "high"),
        (True, False, False, None, "high"),
        (False, False, True, None, "none"),
        (False, True, False, None, "max"),
        (True, True, False, "low", "max"),
        (False, False, False, "low", "low"),
        (False, False, True, "low", "none"),
    ],
)
def test_requested_effort(think, think_max, nothink, effort, expected):
    assert requested_effort(think, think_max, nothink, effort) == expected


@pytest.mark.parametrize("flags", [(True, False), (False, True), (True, True)])
def test_thinking_and_not_thinking_contradict(flags):
    with pytest.raises(UsageError, match="--nothink contradicts --think"):
        requested_effort(*flags, True, None)


def test_sampling_defaults_are_the_published_ones():
    defaults = (options.DEFAULT_TEMPERATURE, options.DEFAULT_TOP_P, options.DEFAULT_MIN_P)
    assert Sampling(*defaults) == Sampling()
    assert defaults == (1.0, 1.0, 0.05)


def test_a_seed_is_never_taken_for_another():
    options.check_seed(None)
    options.check_seed(2**64 - 1)
    with pytest.raises(UsageError, match=r"^--seed 18446744073709551616 is too large"):
        options.check_seed(2**64)
