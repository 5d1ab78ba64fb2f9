"""Kernels that a device refuses at the model's own dimensions are found before the first prompt."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.ksim import clang_missing, metal_kernel

pytestmark = pytest.mark.skipif(clang_missing() is not None, reason=str(clang_missing()))
mx = pytest.importorskip("mlx.core")

from ds4mlx.kernel_choice import KernelChoice, KernelStatus  # noqa: E402
from ds4mlx.kernels.kernel import Maker, Makers  # noqa: E402
from ds4mlx.kernels.registry import OPERATIONS  # noqa: E402
from ds4mlx.model import Model  # noqa: E402
from ds4mlx.operations import make_operations  # noqa: E402
from ds4mlx.rehearsal import rehearsed, trial  # noqa: E402
from tests.support.kernel_models import packed_weights  # noqa: E402

OTHERS = ("compress_rows_and_index", "route_hashed")


def choice(maker: Maker) -> KernelChoice:
    return KernelChoice([KernelStatus(name, "kernel", "", True) for name in OPERATIONS], maker, [])


def model(makers: Makers) -> Model:
    weights, shape = packed_weights("tiny-q2")
    return Model(weights, shape, "kv", operations=make_operations(shape, makers, rounds=True))


def refusing(*kernels: str) -> Callable[..., Any]:
    """A device that does not take some kernels."""

    def make(**text: Any) -> Callable[..., list[mx.array]]:
        def refuse(**launch: Any) -> list[mx.array]:
            raise RuntimeError("Unable to build metal library from source\n error: no")

        return refuse if any(name in text["name"] for name in kernels) else metal_kernel(**text)

    return make


def test_a_device_that_takes_all_keeps_all() -> None:
    whole = choice(refusing())
    assert rehearsed(whole, model) is whole


@pytest.mark.parametrize(
    "kernel", ["attend_prefill", *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS)]
)
def test_the_operation_of_a_refused_kernel_is_left_out(kernel: str) -> None:
    left = rehearsed(choice(refusing(kernel)), model)
    [operation] = [name for name in OPERATIONS if kernel.startswith(name)]
    assert [name for name in OPERATIONS if left.maker(name) is None] == [operation]
    [warning] = left.warnings()
    assert "RuntimeError: Unable to build metal library from source error: no" in warning
    assert trial(model(left.maker)) is None


def test_without_kernels_there_is_nothing_to_try() -> None:
    nothing = KernelChoice([KernelStatus("route", "fallback", "no Metal", False)], None, [])
    assert rehearsed(nothing, partial(pytest.fail, "no model is needed")) is nothing
