"""The greedy choice on the device, against the shared one, and where logits are kept."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from ds4cuda.device import Device
from ds4cuda.kernels import keep_logits, pick
from shared.sampling import GREEDY, choose
from tests.cuda.arrays import numbers

SIZE = 2500


def picked(device: Device, logits: npt.NDArray, allowed: npt.NDArray[np.bool_] | None = None) -> int:
    token = np.zeros(1, np.int32)
    mask, fallback = (logits, 0) if allowed is None else (allowed.view(np.uint8), int(np.argmax(allowed)))
    pick.build(device, masked=allowed is not None)(logits, mask, token, fallback=fallback)
    expected = choose(logits, GREEDY, 0.0, allowed)
    assert token[0] == expected
    return expected


def test_the_best_and_the_lowest_of_equals(device: Device) -> None:
    logits = numbers(np.random.default_rng(0), SIZE)
    picked(device, logits)
    logits[[1999, 700, 31, 2400]] = 50
    assert picked(device, logits) == 31
    logits[:5] = [np.nan, np.inf, -np.inf, 1e38, 0]
    assert picked(device, logits) == 3


@pytest.mark.parametrize("best", [SIZE - 1, 2047, 2048])
def test_the_best_wherever_it_stands(device: Device, best: int) -> None:
    """The end, the last thread, the first one after worse ones of others; with the largest float."""
    logits = numbers(np.random.default_rng(2), SIZE)
    logits[best] = np.finfo(np.float32).max
    assert picked(device, logits) == best


def test_masks(device: Device) -> None:
    logits = numbers(np.random.default_rng(1), SIZE)
    allowed = np.zeros(SIZE, bool)
    allowed[[900, 40, 2499]] = True
    logits[[900, 40, 2499]] = [1, 2, 2]
    assert picked(device, logits, allowed) == 40


@pytest.mark.parametrize("lost", [np.nan, -np.inf, -1e30])
def test_where_nothing_can_be_chosen(device: Device, lost: float) -> None:
    logits = np.full(SIZE, lost, np.float32)
    assert picked(device, logits) == 0
    allowed = np.arange(SIZE) > 70
    assert picked(device, logits, allowed) == 71


@pytest.mark.parametrize("position", [6, 7])
def test_logits_are_kept_beside_those_before(device: Device, position: int) -> None:
    logits = numbers(np.random.default_rng(position), 700)
    places = np.zeros((2, 700), np.float32)
    keep_logits.build(device)(logits, np.array([position], np.int32), places)
    assert np.array_equal(places[(position + 1) % 2], logits)
    assert not places[position % 2].any()
