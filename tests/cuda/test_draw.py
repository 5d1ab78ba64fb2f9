"""Draws on the device, against the shared choice in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from ds4cuda.device import Device
from ds4cuda.kernels import draw
from shared.sampling import Sampling, choose
from tests.cuda.arrays import numbers

SIZE = 700
SETTINGS = [
    Sampling(),
    Sampling(temperature=0.3, min_p=0.0),
    Sampling(temperature=3.0, min_p=0.001),
    Sampling(min_p=1.5),
    Sampling(top_k=1),
    Sampling(top_k=40, min_p=0.0),
    Sampling(top_k=40, top_p=0.7, min_p=0.02),
    Sampling(top_k=5000, top_p=0.5),
    Sampling(top_p=0.9, min_p=0.0),
    Sampling(temperature=2.0, top_p=0.999, min_p=0.0),
    Sampling(temperature=1e-300, top_p=0.5),
    Sampling(temperature=0.7, top_p=1e-9),
    Sampling(top_p=0.8, min_p=2.0),
    Sampling(top_p=-1.0, top_k=-3, min_p=-1.0),
]
UNIFORMS = (0.0, 2.0**-24, 0.1, 0.5, 0.77, 0.999, 1 - 2.0**-24)

Draw = Callable[..., int]


def drawer(device: Device, size: int = SIZE) -> Draw:
    """-> what the device draws, which must be what the shared choice is."""
    calls = {masked: draw.build(device, vocabulary=size, masked=masked) for masked in (False, True)}
    # What nobody wrote is a signalling pattern.
    scratch = draw.DrawScratch(
        weights=np.full(size, 2**64 - 1, np.uint64),
        bests=np.full(draw.SLICES, np.nan, np.float32),
        ids=np.full(draw.SLICES, -1, np.int32),
        sums=np.full(draw.DIGITS, 2**64 - 1, np.uint64),
        counts=np.full(draw.DIGITS, -1, np.int32),
    )

    def drawn(
        logits: npt.NDArray[np.float32],
        sampling: Sampling,
        uniform: float,
        allowed: npt.NDArray[np.bool_] | None = None,
    ) -> int:
        token = np.full(1, -1, np.int32)
        mask, fallback = (logits, 0) if allowed is None else (allowed.view(np.uint8), int(np.argmax(allowed)))
        call = calls[allowed is not None]
        call(logits, mask, scratch, token, sampling=sampling, uniform=uniform, fallback=fallback)
        assert token[0] == choose(logits, sampling, uniform, allowed), (sampling, uniform)
        return int(token[0])

    return drawn


def test_every_setting(device: Device) -> None:
    random, drawn = np.random.default_rng(0), drawer(device)
    for number, sampling in enumerate(SETTINGS):
        logits = numbers(random, SIZE) * 4
        for uniform in UNIFORMS[number % 2 :: 2]:
            drawn(logits, sampling, uniform)


def test_equal_logits_go_by_their_ids(device: Device) -> None:
    """Whole numbers tie often; both zeros are equal. Weights of 1 make edges of draws exact."""
    drawn = drawer(device)
    logits = np.random.default_rng(1).integers(-3, 3, SIZE).astype(np.float32)
    logits[logits == 0] *= np.where(np.arange((logits == 0).sum()) % 3, 1, -1).astype(np.float32)
    for sampling in (Sampling(top_k=130), Sampling(top_p=0.6), Sampling(top_k=300, top_p=0.9, min_p=0.2)):
        for uniform in (0.001, 0.4, 0.9):
            drawn(logits, sampling, uniform)
    flat = np.zeros(SIZE, np.float32)
    flat[512:] = np.nan
    for sampling in (Sampling(), Sampling(top_k=256), Sampling(top_p=0.5)):
        reached = [drawn(flat, sampling, uniform) for uniform in (0.0, 0.25, 0.25 + 2.0**-24, 1 - 2.0**-24)]
        last = 511 if sampling == Sampling() else 255
        assert reached == [0, (last + 1) // 4 - 1, (last + 1) // 4, last]
    assert drawn(flat, Sampling(), 11 / 512) == 10  # all of the first slice, and no more
    assert drawn(flat, Sampling(min_p=1.0), 0.5) == 255
    assert drawn(flat, Sampling(min_p=1.5), 0.5) == 0
    even = np.arange(SIZE) % 2 == 0
    assert drawn(flat, Sampling(min_p=1.5), 0.5, ~even) == 1
    assert drawn(flat, Sampling(top_p=0.5), 0.5, ~even) == 127


def test_the_best_of_large_slices(device: Device) -> None:
    """In any warp, and beyond the first round of threads."""
    each = 290
    drawn = drawer(device, draw.SLICES * each)
    for place in (3 * each + 7 * 32 + 5, 10 * each + 256 + 9, 63 * each + 100):
        logits = np.zeros(draw.SLICES * each, np.float32)
        logits[place] = 1
        # Above the weight that it would have if another were taken for the best.
        assert drawn(logits, Sampling(min_p=3), 0.5) == place


def test_draws_that_end_where_equal_logits_do(device: Device) -> None:
    """So hot, everything weighs the same, and ends are exact."""
    drawn, hot = drawer(device), 1e300
    logits = np.full(SIZE, np.nan, np.float32)
    groups = np.repeat(np.array([64, 4, 1, 0.5, -4], np.float32), [128, 64, 64, 128, 128])
    logits[:512] = np.random.default_rng(6).permutation(groups)
    for top_k in (128, 192, 256):
        drawn(logits, Sampling(temperature=hot, top_k=top_k), 1 - 2.0**-24)
    for top_p in (0.25, 0.375, 0.5):
        drawn(logits, Sampling(temperature=hot, top_p=top_p), 1 - 2.0**-24)
    for uniform in (0.25, 0.375, 0.5, 0.75):
        drawn(logits, Sampling(temperature=hot, top_k=512), uniform)


@pytest.mark.parametrize("sampling", [Sampling(min_p=0.0), Sampling(min_p=0.0, top_p=0.999), Sampling()])
def test_the_first_token_is_drawn_by_nothing(device: Device, sampling: Sampling) -> None:
    """However little it weighs, if the minimum leaves it in."""
    drawn, logits = drawer(device), numbers(np.random.default_rng(5), SIZE)
    logits[0] = -900
    assert (drawn(logits, sampling, 0.0) == 0) == (sampling == Sampling(min_p=0.0))


def test_masks_and_logits_that_cannot_be_drawn(device: Device) -> None:
    random, drawn = np.random.default_rng(2), drawer(device)
    logits = numbers(random, SIZE)
    logits[random.integers(0, SIZE, 200)] = np.nan
    logits[[3, 400]] = np.inf
    logits[[4, 401]] = -np.inf
    logits[5] = np.finfo(np.float32).max  # what is best by far weighs alone
    allowed = random.random(SIZE) < 0.1
    allowed[[3, 5, 400]] = True
    for sampling in (Sampling(), Sampling(min_p=0.0), Sampling(top_p=0.9), Sampling(top_k=7)):
        assert drawn(logits, sampling, 0.6) == 5
        assert drawn(logits, sampling, 0.6, allowed) == 5
    logits[5] = 0
    for sampling in (Sampling(), Sampling(min_p=0.0), Sampling(top_p=0.9), Sampling(top_k=7)):
        for uniform in (0.0, 0.3, 0.95):
            assert allowed[drawn(logits, sampling, uniform, allowed)]


def test_two_of_the_largest_logits_share_a_draw(device: Device) -> None:
    """Also as the last token, and where the minimum is what the best weighs."""
    drawn, logits = drawer(device), np.zeros(SIZE, np.float32)
    logits[[5, SIZE - 1]] = np.finfo(np.float32).max
    for sampling in (Sampling(top_k=7), Sampling(top_k=7, min_p=1.0), Sampling(top_p=0.9, min_p=1.0)):
        assert [drawn(logits, sampling, uniform) for uniform in (0.4, 0.6)] == [5, SIZE - 1]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(top_p=0.5), Sampling(top_k=3)])
def test_where_nothing_can_be_drawn(device: Device, sampling: Sampling) -> None:
    drawn, logits = drawer(device), np.full(SIZE, np.nan, np.float32)
    assert drawn(logits, sampling, 0.5) == 0
    assert drawn(logits, sampling, 0.5, np.arange(SIZE) > 70) == 71
    logits[500] = -1e38
    assert drawn(logits, sampling, 0.5) == 500


def test_a_sparse_mask_of_few_tokens(device: Device) -> None:
    """Slices without a token, and fewer tokens than may be kept."""
    drawn, logits = drawer(device), numbers(np.random.default_rng(3), SIZE)
    allowed = np.zeros(SIZE, bool)
    allowed[[2, 350, 699]] = True
    for sampling in (Sampling(min_p=0.0), Sampling(top_k=2, min_p=0.0), Sampling(top_k=40, top_p=0.95)):
        for uniform in (0.05, 0.5, 0.95):
            drawn(logits, sampling, uniform, allowed)


@pytest.mark.long
def test_many_draws(device: Device) -> None:
    random, drawn = np.random.default_rng(4), drawer(device, 3000)
    for number in range(20):
        logits = numbers(random, 3000) * float(random.choice([0.01, 1, 10]))
        sampling = Sampling(
            temperature=float(random.choice([0.2, 1, 5])),
            top_p=float(random.choice([1, 0.95, 0.3])),
            min_p=float(random.choice([0, 0.05])),
            top_k=int(random.choice([0, 1, 50, 1024])),
        )
        allowed = random.random(3000) < 0.5 if number % 3 == 0 else None
        drawn(logits, sampling, float(random.random()), allowed)
