"""Steps of models of any size, traced and not computed: which kernels are launched, and what else is done."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

mx = pytest.importorskip("mlx.core")

from bench.host_overhead import VIEWS  # noqa: E402
from ds4mlx.costs.workload import Moment  # noqa: E402
from ds4mlx.kernels.kernel import CONSTANT_SPACE_BELOW, Maker  # noqa: E402
from ds4mlx.model import Model  # noqa: E402
from ds4mlx.operations import make_operations  # noqa: E402
from shared.gguf.types import TensorType  # noqa: E402
from shared.model.shape import ModelShape  # noqa: E402
from tests.ksim.signature import KernelCall  # noqa: E402
from tests.support.hollow_weights import hollow_weights, refilled  # noqa: E402


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a kernel. `text` is header and body as MLX gets them, `inputs` the shapes and dtypes of
    inputs, `outputs` those of outputs; `grid` counts threads. What it is for tells no launches apart: the
    operation, and the layer's number, None after the last layer."""

    name: str
    text: tuple[str, str]
    names: tuple[tuple[str, ...], tuple[str, ...]]
    inputs: tuple[tuple[tuple[int, ...], Any], ...]
    outputs: tuple[tuple[tuple[int, ...], Any], ...]
    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    operation: str = field(compare=False)
    layer: int | None = field(compare=False)

    @property
    def kernel(self) -> str:
        """The kernel's own name, without what tells its specialisations apart."""
        return re.sub(r"^ds4_|_[0-9a-f]{10}[cd]*$", "", self.name)

    @property
    def threads(self) -> int:
        """Threads in a threadgroup, of which MLX makes no more than the grid has."""
        sizes = zip(self.grid, self.threadgroup, strict=True)
        return math.prod(min(threads, group) for threads, group in sizes)

    @property
    def groups(self) -> int:
        """Threadgroups."""
        sizes = zip(self.grid, self.threadgroup, strict=True)
        return math.prod(-(-threads // group) for threads, group in sizes)

    @property
    def signature(self) -> tuple[Any, ...]:
        """All that decides the complete text beside `text`: of each input whether Metal passes it in constant
        memory, its dimensions and dtype, of each output its dtype."""
        return (*map(_passed, self.inputs), *(dtype for _, dtype in self.outputs))

    def small_call(self) -> KernelCall:
        """The launch with inputs cut to a few elements, so few that they keep the signature."""
        inputs = [
            mx.zeros([min(size, CONSTANT_SPACE_BELOW) for size in shape], t) for shape, t in self.inputs
        ]
        header, source = self.text
        kernel = {
            "name": self.name,
            "input_names": list(self.names[0]),
            "output_names": list(self.names[1]),
            "source": source,
            "header": header,
        }
        launch = {
            "inputs": inputs,
            "output_shapes": [shape for shape, _ in self.outputs],
            "output_dtypes": [dtype for _, dtype in self.outputs],
            "grid": self.grid,
            "threadgroup": self.threadgroup,
        }
        return KernelCall(kernel, launch)


def _passed(array: tuple[tuple[int, ...], Any]) -> tuple[bool, int, Any]:
    shape, dtype = array
    return math.prod(shape) < CONSTANT_SPACE_BELOW, len(shape), dtype


@dataclass
class TracedStep:
    """What one step launches, in order, its primitives by MLX's names, and the bytes of all arrays that it
    makes. `layer` is the one that the next launch is for."""

    sequence: list[Launch] = field(default_factory=list)
    primitives: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    layer: int | None = None

    @property
    def launches(self) -> set[Launch]:
        """Each different launch once."""
        return set(self.sequence)

    def maker(self, operation: str, **kernel: Any) -> Callable[..., list[Any]]:
        """In place of mx.fast.metal_kernel: launches are kept."""
        made: Callable[..., Any] = mx.fast.metal_kernel(**kernel)
        text = (kernel["header"], kernel["source"])
        names = (tuple(kernel["input_names"]), tuple(kernel["output_names"]))

        def launch(**call: Any) -> list[Any]:
            found = Launch(
                name=kernel["name"],
                text=text,
                names=names,
                inputs=tuple((tuple(array.shape), array.dtype) for array in call["inputs"]),
                outputs=tuple(zip(map(tuple, call["output_shapes"]), call["output_dtypes"], strict=True)),
                grid=call["grid"],
                threadgroup=call["threadgroup"],
                operation=operation,
                layer=self.layer,
            )
            self.sequence.append(found)
            return list(made(**call))

        return launch

    def collect(self, entry: dict[str, Any]) -> None:
        """Takes entries of mx.export_function."""
        if entry.get("type") == "primitive":
            self.primitives[entry["name"]] += 1
            if entry["name"] not in VIEWS | {"SliceUpdate"}:  # which is written in place
                self.bytes += sum(math.prod(shape) * dtype.size for _, shape, dtype in entry["outputs"])


def traced_step(
    shape: ModelShape,
    types: tuple[TensorType, TensorType],
    moment: Moment,
    makers: Callable[[str], bool] = lambda operation: True,
    *,
    rounds: bool = True,
    quality: bool = False,
) -> TracedStep:
    """A step of a model with experts of these block types; operations that `makers` denies are fallbacks."""
    traced = TracedStep()
    operations = make_operations(
        shape,
        lambda operation: partial(traced.maker, operation) if makers(operation) else None,
        rounds=rounds,
        quality=quality,
    )
    weights = hollow_weights(shape, *types)
    model = Model(weights, shape, "kv" if rounds else "float", operations=operations)
    state = model.open_state(moment.end + 1)
    state.position = moment.start

    def layer_done(index: int, *_: object) -> None:
        traced.layer = index + 1 if index + 1 < shape.layer_count else None

    def step(tokens: Any, *arrays: Any) -> list[Any]:
        model.weights = refilled(weights, iter(arrays))
        traced.layer = 0
        result = model.forward(tokens, state, layer_done)
        state.advance(result)
        return [result.logits, *state.arrays()]

    mx.export_function(traced.collect, step, mx.zeros((moment.count,), mx.int32), *weights.arrays())
    return traced


def traced_call(
    operation: str, build: Callable[[Maker], Callable[..., Any]], arguments: tuple[Any, ...]
) -> TracedStep:
    """A call of one operation, which `build` makes of a maker."""
    traced = TracedStep()

    def call(unused: Any) -> list[Any]:
        results = build(partial(traced.maker, operation))(*arguments)
        several = results if isinstance(results, tuple | list) else [results]
        return [array for array in several if array is not None]

    mx.export_function(traced.collect, call, mx.zeros((1,)))
    return traced
