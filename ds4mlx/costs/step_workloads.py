"""The workloads of a whole step of a model: of every layer, and of what a step has once.

Must not know: devices, time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ds4mlx.costs.layer_workloads import ExpertTypes, LayerWorkloads, hyper_join, product
from ds4mlx.costs.workload import FLOAT, HALF, Moment, Workload
from ds4mlx.kernels import stack_rows
from ds4mlx.kernels.hyper import SLICE
from ds4mlx.linear import Dimensions
from shared.model.frontier import frontier_widths
from shared.model.shape import ModelShape


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Layers with the same operations and sizes."""

    ratio: int
    hashed: bool


def layer_kinds(shape: ModelShape) -> dict[LayerKind, int]:
    """How many layers of each kind there are, in the order in which they come."""
    return Counter(
        LayerKind(ratio, layer < shape.hash_layers) for layer, ratio in enumerate(shape.compress_ratios)
    )


def decode_moment(context: int) -> Moment:
    """The step of one token after which `context` tokens are held."""
    return Moment(context - 1, 1)


def step_workloads(shape: ModelShape, moment: Moment, types: ExpertTypes) -> list[Workload]:
    """All calls of a step, equal ones (same operation, same use) as one with the sum of their times."""
    found: dict[tuple[str, str], Workload] = {}
    parts = [
        replace(work, times=work.times * layers)
        for kind, layers in layer_kinds(shape).items()
        for work in LayerWorkloads(shape, moment, kind.ratio, kind.hashed, types).calls()
    ]
    for work in [first_mix(shape, moment), *parts, *head(shape), *stacked_rows(shape, moment)]:
        key = (work.operation, work.use)
        known = found.get(key)
        found[key] = work if known is None else replace(known, times=known.times + work.times)
    # What the first layer begins with is `first_mix`: nothing has to join yet.
    join = found["hyper_join", "layers"]
    found["hyper_join", "layers"] = replace(join, times=join.times - 1)
    return list(found.values())


def first_mix(shape: ModelShape, moment: Moment) -> Workload:
    """Of the streams as they begin, before any output has joined them."""
    joined = hyper_join(shape, moment.count, shape.mix_width, "")
    numbers = shape.streams * shape.embedding_width
    spared = FLOAT * moment.count * (numbers + shape.embedding_width + shape.streams * (1 + shape.streams))
    return replace(
        joined,
        operation="hyper_mix",
        use="first layer",
        activations=joined.activations - spared,
        products=moment.count * numbers * (shape.mix_width + 1),
    )


def head(shape: ModelShape) -> list[Workload]:
    """Logits of a step's last token, in the order of the calls."""
    width, streams = shape.embedding_width, shape.streams
    join = hyper_join(shape, 1, streams, "head")
    slices = width // SLICE
    collapse = Workload(
        "head_collapse",
        "head",
        weights=FLOAT * (width + 2 * streams),
        activations=FLOAT * (streams * width + slices * (streams + 1) + width),
        products=streams * width,
    )
    return [
        join,
        collapse,
        product("logits", 1, Dimensions("q8_0", width, shape.vocabulary_size)),
    ]


def stacked_rows(shape: ModelShape, moment: Moment) -> Iterator[Workload]:
    """Rows of all layers put below one another, as a step of one token does before it writes them."""
    if moment.count > 1:
        return
    for use, width, size, layers in stacks(shape):
        yield Workload(
            "stack_rows",
            use,
            weights=0,
            activations=2 * layers * width * size,
            products=0,
            launches=-(-layers // stack_rows.LARGEST),
        )


def stacks(shape: ModelShape) -> Iterator[tuple[str, int, int, int]]:
    """Of each kind of row its use, width, bytes a number and layers."""
    yield "rows of the window", shape.head_dim, HALF, shape.layer_count
    for ratio in sorted(set(shape.compress_ratios) - {0}):
        layers = shape.compress_ratios.count(ratio)
        yield f"frontier rows, ratio {ratio}", sum(frontier_widths(shape, ratio)), FLOAT, layers
