"""Calls of the operations as the forward pass makes them, on random numbers: what to time, and on what.

A layer of each kind runs once, and its calls are kept with their arguments, so that no call is described
twice. Must not know: clocks, devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import mlx.core as mx

from ds4mlx.arrays import arrays, rebuilt
from ds4mlx.costs.layer_workloads import ExpertTypes, LayerWorkloads
from ds4mlx.costs.step_workloads import (
    LayerKind,
    first_mix,
    head,
    layer_kinds,
    stacked_rows,
    stacks,
    step_workloads,
)
from ds4mlx.costs.timing import Trial, calls_of
from ds4mlx.costs.workload import Moment, Workload
from ds4mlx.kernels import stack_rows
from ds4mlx.model import Model, Streams
from ds4mlx.operations import Operations
from ds4mlx.random_weights import RandomWeights
from ds4mlx.state import State
from ds4mlx.step import Step
from shared.model.shape import ModelShape

# Calls of one evaluation work on copies of their arguments, until those together exceed every cache.
COPIED_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Call:
    operation: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]

    def __call__(self) -> Any:
        return self.function(*self.arguments, **self.keywords)


class RecordedOperations:
    """Operations that do their work and keep the calls. Those of the State are not among them."""

    def __init__(self, operations: Operations) -> None:
        self.calls: list[Call] = []
        wrapped = {field.name: self._wrap(field.name, operations) for field in fields(operations)}
        self.operations = Operations(**wrapped)

    def _wrap(self, name: str, operations: Operations) -> Any:
        found = getattr(operations, name)
        if isinstance(found, dict):
            return {ratio: self._recording(name, function) for ratio, function in found.items()}
        return self._recording(name, found)

    def _recording(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def recording(*arguments: Any, **keywords: Any) -> Any:
            self.calls.append(Call(name, function, arguments, keywords))
            return function(*arguments, **keywords)

        return recording


class Trials:
    """Of the workloads of one step. `operations` are those of `shape`, made for rows that are rounded."""

    def __init__(self, shape: ModelShape, operations: Operations, moment: Moment, types: ExpertTypes) -> None:
        self._shape = shape
        self._operations = operations
        self._moment = moment
        self._types = types

    def __iter__(self) -> Iterator[Trial]:
        """One for each of `step_workloads`, in another order. The weights of one layer are alive at a time.

        When decoding, the step must be one that completes a window of every ratio.
        """
        missing = {
            (work.operation, work.use): work
            for work in step_workloads(self._shape, self._moment, self._types)
        }
        for work, call in self._pairs(missing):
            found = missing.pop((work.operation, work.use), None)
            if found is not None:
                yield Trial(found, spread(call, self._shape, calls_of(found)))
        assert not missing, f"nothing calls {list(missing)}"

    def _pairs(self, missing: dict[tuple[str, str], Workload]) -> Iterator[tuple[Workload, Call]]:
        for kind in layer_kinds(self._shape):
            expected = self._layer_workloads(kind)
            if any((work.operation, work.use) in missing for work in expected):
                yield from _matched(expected, self.layer_calls(kind))
        once = [first_mix(self._shape, self._moment), *head(self._shape)]
        yield from _matched(once, self.step_calls())
        yield from _matched(stacked_rows(self._shape, self._moment), self._stack_calls())

    def _layer_workloads(self, kind: LayerKind) -> list[Workload]:
        return list(LayerWorkloads(self._shape, self._moment, kind.ratio, kind.hashed, self._types).calls())

    def layer_calls(self, kind: LayerKind) -> list[Call]:
        """What a layer of this kind calls, in order; no result is computed yet."""
        model, recorded = self._model((kind.ratio,), int(kind.hashed))
        state = self._filled(model.open_state(self._moment.end + 1))
        step = Step(model.shape, self._moment.start, self._moment.count, state.ring_rows)
        tokens = mx.random.randint(0, self._shape.vocabulary_size, (step.count,), mx.int32)
        model.layer(0, state, self._streams(step.count), tokens, step)
        return recorded.calls

    def step_calls(self) -> list[Call]:
        """What a step calls once: the first mix, then the output head."""
        model, recorded = self._model((), 0)
        streams = self._streams(self._moment.count)
        mix = RandomWeights(self._shape, self._types.gate_up, self._types.down).mix(self._shape.mix_width)
        recorded.operations.hyper_mix(streams.values, mix.mix)
        model.output_head(streams.last())
        return recorded.calls

    def _stack_calls(self) -> Iterator[Call]:
        if self._moment.count > 1:
            return
        for _, width, size, layers in stacks(self._shape):
            dtype = mx.float16 if size == 2 else mx.float32
            rows = [mx.random.normal((1, width)).astype(dtype) for _ in range(layers)]
            groups = [rows[at : at + stack_rows.LARGEST] for at in range(0, layers, stack_rows.LARGEST)]
            yield Call("stack_rows", partial(_each, self._operations.stack_rows), (groups,), {})

    def _model(self, ratios: tuple[int, ...], hashed: int) -> tuple[Model, RecordedOperations]:
        shape = replace(self._shape, layer_count=len(ratios), compress_ratios=ratios, hash_layers=hashed)
        weights = RandomWeights(shape, self._types.gate_up, self._types.down).draw()
        recorded = RecordedOperations(self._operations)
        return Model(weights, shape, operations=recorded.operations), recorded

    def _filled(self, state: State) -> State:
        """With random rows: equal scores would make choosing among them harder than it is."""
        state.position = self._moment.start
        state.raw = _drawn(state.raw)
        state.frontiers = {ratio: _drawn(ring) for ratio, ring in state.frontiers.items()}
        for compressed in state.compressed:
            if compressed is not None:
                compressed.attention = _drawn(compressed.attention)
                compressed.index = None if compressed.index is None else _drawn(compressed.index)
        return state

    def _streams(self, count: int) -> Streams:
        shape = self._shape
        width, streams = shape.embedding_width, shape.streams
        return Streams(
            mx.random.normal((count, streams, width)),
            mx.random.normal((count, width)),
            mx.random.uniform(shape=(count, streams * (1 + streams))),
        )


def spread(call: Call, shape: ModelShape, count: int) -> list[Call]:
    """Up to `count` times the same call on other copies of its arguments, or with other experts, so that
    repeated it does not find in a cache what a step has to read from memory. All arguments are computed."""
    mx.eval(list(arrays(call.arguments)))
    if call.operation == "run_experts":
        x, store, chosen, *rest = call.arguments
        turns = [(chosen + turn * shape.experts_used) % shape.expert_count for turn in range(count)]
        mx.eval(turns)
        return [replace(call, arguments=(x, store, turn, *rest)) for turn in turns]
    size = sum(array.nbytes for array in arrays(call.arguments))
    copies = min(count, -(-COPIED_BYTES // max(1, size)))
    calls = [call, *(replace(call, arguments=rebuilt(call.arguments, _copied)) for _ in range(copies - 1))]
    mx.eval([list(arrays(made.arguments)) for made in calls])
    return calls


def _copied(part: Any) -> Any:
    return part + mx.zeros((), part.dtype) if isinstance(part, mx.array) else None


def _matched(expected: Iterable[Workload], calls: Iterable[Call]) -> Iterator[tuple[Workload, Call]]:
    for work, call in zip(expected, calls, strict=True):
        assert work.operation == call.operation, f"{work.operation} is not {call.operation}"
        yield work, call


def _each(function: Callable[..., Any], groups: list[list[mx.array]]) -> list[Any]:
    return [function(group) for group in groups]


def _drawn(array: mx.array) -> mx.array:
    return mx.random.normal(array.shape).astype(array.dtype)
