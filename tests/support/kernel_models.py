"""Golden models as a GPU stores them, with all of their operations as kernels in the simulator."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

mx = pytest.importorskip("mlx.core")

from ds4mlx.adoption import TensorBytes  # noqa: E402
from ds4mlx.model import Model  # noqa: E402
from ds4mlx.operations import make_operations  # noqa: E402
from ds4mlx.plan import Storage  # noqa: E402
from ds4mlx.weights import WeightReader, Weights  # noqa: E402
from shared.model.open import open_model  # noqa: E402
from tests.ksim import metal_kernel  # noqa: E402
from tests.support.golden import model_path  # noqa: E402

if TYPE_CHECKING:
    from ds4mlx.model import Activation
    from shared.model.shape import ModelShape


@cache
def packed_weights(name: str) -> tuple[Weights, ModelShape]:
    """Weights of a golden model in the storage of a GPU."""
    with open_model(model_path(name)) as file:
        source = TensorBytes(file.gguf, adopt=False, notes=[])
        storage = Storage(True, False, file.shape.streams)
        return WeightReader(file.gguf, file.shape, source, storage).read(), file.shape


class Launches:
    """A maker of simulated kernels that remembers the names of those that were launched, and refuses inputs
    that Metal would have to copy first because their elements do not lie one after the other."""

    def __init__(self, *, check: str = "fast", seed: int = 0) -> None:
        self._settings: dict[str, Any] = {"check": check, "seed": seed}
        self.names: set[str] = set()

    def __call__(self, **text: Any) -> Callable[..., list[mx.array]]:
        simulated = metal_kernel(**text, **self._settings)

        def launch(**call: Any) -> list[mx.array]:
            self.names.add(text["name"])
            mx.eval(call["inputs"])
            for name, array in zip(text["input_names"], call["inputs"], strict=True):
                assert memoryview(array).c_contiguous, f"{text['name']}: {name} would be copied"
            return simulated(**call)

        return launch


def simulated_model(name: str, activation: Activation, launches: Launches) -> Model:
    weights, shape = packed_weights(name)
    operations = make_operations(shape, lambda operation: launches, rounds=activation == "kv")
    return Model(weights, shape, activation, operations=operations)
