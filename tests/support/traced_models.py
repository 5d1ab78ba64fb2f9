"""The models whose kernels are checked as they would be compiled: published ones, and those of tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from bench.embedded_model.shape import SHAPE as EMBEDDED
from ds4mlx.costs.workload import Moment
from ds4mlx.kernels.registry import OPERATIONS, operation
from shared.gguf.types import TensorType
from shared.model.known_shapes import FLASH, FLASH_4_EXPERT, PRO
from shared.model.open import open_model
from shared.model.shape import ModelShape
from tests.support.golden import model_path
from tests.support.traced_steps import Launch, TracedStep, traced_call, traced_step

_Q2 = (TensorType.IQ2_XXS, TensorType.Q2_K)
_Q4 = (TensorType.Q4_K, TensorType.Q4_K)
_EXCHANGED = (TensorType.Q2_K, TensorType.IQ2_XXS)


@dataclass(frozen=True, slots=True)
class TracedModel:
    """`types` are the block types of gate and up, and of down; `shape` is looked up when it is needed."""

    shape: Callable[[], ModelShape]
    types: tuple[TensorType, TensorType]
    rounds: bool = True
    quality: bool = False
    long: bool = True


def _golden(name: str) -> ModelShape:
    with open_model(model_path(name)) as file:
        return file.shape


# Those that are not `long` launch every kernel that there is.
MODELS = {
    "flash": TracedModel(lambda: FLASH, _Q2, long=False),
    "pro": TracedModel(lambda: PRO, _Q4, long=False),
    "tiny": TracedModel(lambda: _golden("tiny-q2"), _EXCHANGED, long=False),
    "flash-q4": TracedModel(lambda: FLASH, _Q4),
    "flash-4-expert": TracedModel(lambda: FLASH_4_EXPERT, _Q2),
    "flash-float": TracedModel(lambda: FLASH, _Q2, rounds=False),
    "flash-quality": TracedModel(lambda: FLASH, _Q2, quality=True),
    "pro-q2": TracedModel(lambda: PRO, _Q2),
    "tiny-pro": TracedModel(lambda: _golden("tiny-pro-q2"), _Q2),
    "tiny-pro-float": TracedModel(lambda: _golden("tiny-pro-q2"), _Q4, rounds=False),
    "embedded": TracedModel(lambda: EMBEDDED, _Q2),
}
EVERYDAY = [name for name, model in MODELS.items() if not model.long]
# Parameters of a test of each model; PROOF stands for the examples by which kernels prove themselves.
EACH = [pytest.param(name, marks=[pytest.mark.long] * model.long) for name, model in MODELS.items()]
PROOF = "proof"
EACH_AND_PROOF = [pytest.param(PROOF), *EACH]


def moments(shape: ModelShape) -> Iterator[Moment]:
    """Steps that differ in what they launch: whether windows end, whether the indexer chooses, how many
    tokens there are."""
    chooses = -(-4 * shape.index_top_k // 128) * 128 + 128
    yield Moment(5, 1)
    yield Moment(127, 1)  # ends windows of both ratios
    yield Moment(chooses, 1)
    yield Moment(chooses + 3, 1)  # ends a window of ratio 4
    yield Moment(chooses + 127, 1)
    yield Moment(chooses + 1, 2)
    yield Moment(chooses + 126, 7)
    yield Moment(chooses, 9)
    yield Moment(chooses + 100, 40)
    yield Moment(0, 4096)


@cache
def traced_steps(name: str) -> dict[Moment, TracedStep]:
    model = MODELS[name]
    shape = model.shape()
    options: dict[str, Any] = {"rounds": model.rounds, "quality": model.quality}
    return {moment: traced_step(shape, model.types, moment, **options) for moment in moments(shape)}


@cache
def launches(name: str) -> list[Launch]:
    """All different launches of a model's steps, or of the examples, by name."""
    steps = _proof() if name == PROOF else traced_steps(name).values()
    found = set[Launch]().union(*(step.launches for step in steps))
    return sorted(found, key=lambda launch: launch.name)


def _proof() -> Iterator[TracedStep]:
    for name in OPERATIONS:
        for example in operation(name).examples():
            yield traced_call(name, example.build, example.arguments)
