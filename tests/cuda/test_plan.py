"""What is planned from a file's header is what is then taken."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ds4cuda.device import Device
from ds4cuda.plan import planner, weight_bytes
from ds4cuda.scratch import Scratch, buffer_sizes, scratch_bytes
from ds4cuda.state import State
from ds4cuda.step import Step
from ds4cuda.weights import WeightReader
from shared.model.known_shapes import FLASH
from shared.model.open import open_model
from tests.cuda.cupy_standin import CupyStandin
from tests.support.golden import model_path


@pytest.mark.parametrize("name", ["tiny-q2", "tiny-q4", "tiny-pro-q2"])
def test_weights_take_what_was_planned(name: str) -> None:
    with open_model(model_path(name)) as file:
        weights = WeightReader(Device(CupyStandin()), file.gguf, file.shape).read()
        assert weights.nbytes == weight_bytes(file)


def test_a_session_takes_what_was_planned() -> None:
    with open_model(model_path("tiny-q2")) as file:
        planned, device = planner(file, 64)(600), Device(CupyStandin())
        state = State(device, file.shape, 600, 64, rounds=True)
        compressed = [array for rows in state.compressed if rows for array in (rows.attention, rows.index)]
        assert state.raw.nbytes == planned.raw
        assert sum(array.nbytes for array in compressed if array is not None) == planned.compressed
        assert Scratch(device, file.shape, 64)._memory.nbytes == planned.scratch


def test_rings_hold_a_window_beside_the_longest_step() -> None:
    device = Device(CupyStandin())
    with open_model(model_path("tiny-q2")) as file:
        for context, chunk in ((600, 64), (300, 300), (20_000, 8192), (100, 100)):
            state = State(device, file.shape, context, chunk, rounds=True)
            slots = state.raw.shape[1]
            assert state.longest_step <= chunk
            assert slots >= min(context, file.shape.window + state.longest_step)


def test_scratch_memory_is_shared_out_without_overlap() -> None:
    scratch = Scratch(Device(CupyStandin()), FLASH, 3)
    for number, (name, (dtype, count)) in enumerate(buffer_sizes(FLASH, 3).items()):
        if count < 1 << 20:
            scratch(name, count)[...] = number
            assert scratch(name, count).dtype == dtype
    for number, (name, (_, count)) in enumerate(buffer_sizes(FLASH, 3).items()):
        if count < 1 << 20:
            assert (scratch(name, count) == number).all(), name
    with pytest.raises(ValueError, match="holds 3 numbers of tokens, not 4"):
        scratch("tokens", 4)
    assert scratch_bytes(FLASH, 4096) < 4 << 30


def test_scores_are_made_in_bounded_blocks() -> None:
    step = Step.at(FLASH, 1 << 20, 4096)
    blocks = step.score_blocks()
    assert blocks[0][0] == 0
    assert blocks[-1][1] == 4096
    assert all(before[1] == after[0] for before, after in pairwise(blocks))
    assert max(end - first for first, end in blocks) * step.compressed_rows(4) <= 16 << 20


def test_when_the_indexer_chooses() -> None:
    top_k = FLASH.index_top_k
    assert not Step.at(FLASH, 4 * top_k + 2, 1).chooses
    assert Step.at(FLASH, 4 * top_k + 3, 1).chooses
    assert not Step.at(FLASH, 4 * top_k + 3, 1, 1024).chooses
    assert Step.at(FLASH, 4 * top_k, 4, 1024).chooses
    assert Step.at(FLASH, 4 * 1024 + 3, 1, 1024).chooses
