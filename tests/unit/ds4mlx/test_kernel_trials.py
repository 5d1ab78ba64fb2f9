"""Each workload gets a trial, trials run what the forward pass would, and the stopwatch counts right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core")

from ds4mlx.arrays import arrays  # noqa: E402
from ds4mlx.costs.layer_workloads import Q2  # noqa: E402
from ds4mlx.costs.measure import measure, why_unmeasurable  # noqa: E402
from ds4mlx.costs.step_workloads import step_workloads  # noqa: E402
from ds4mlx.costs.timing import KernelTime, Stopwatch, Trial, calls_of  # noqa: E402
from ds4mlx.costs.trials import Call, Trials, spread  # noqa: E402
from ds4mlx.costs.workload import Moment, Workload  # noqa: E402
from ds4mlx.kernel_choice import KernelChoice, KernelStatus  # noqa: E402
from ds4mlx.kernels.kernel import Maker  # noqa: E402
from ds4mlx.kernels.registry import OPERATIONS  # noqa: E402
from ds4mlx.operations import make_operations  # noqa: E402
from shared.model.known_shapes import FLASH  # noqa: E402
from tests.ksim import clang_missing, metal_kernel  # noqa: E402

SHAPE = replace(
    FLASH,
    variant="test",
    layer_count=5,
    compress_ratios=(0, 4, 128, 4, 128),
    hash_layers=2,
    embedding_width=256,
    vocabulary_size=512,
    head_count=4,
    head_dim=128,
    query_rank=64,
    output_rank=32,
    output_groups=2,
    expert_count=8,
    experts_used=2,
    expert_width=256,
    index_heads=4,
    index_top_k=16,
)
DECODE, PREFILL = Moment(255, 1), Moment(128, 128)
WORK = Workload("project", "", weights=3 << 20, activations=1 << 20, products=5)


def silent(**text: Any) -> Callable[..., list[mx.array]]:
    """A maker of kernels that give zeros."""

    def launch(**call: Any) -> list[mx.array]:
        shapes = zip(call["output_shapes"], call["output_dtypes"], strict=True)
        return [mx.zeros(shape, dtype) for shape, dtype in shapes]

    return launch


def trials(maker: Maker, moment: Moment) -> Iterator[Trial]:
    yield from Trials(SHAPE, make_operations(SHAPE, lambda name: maker, rounds=True), moment, Q2)


@pytest.mark.parametrize("moment", [DECODE, PREFILL], ids=str)
def test_every_workload_has_one_trial(moment: Moment) -> None:
    found = [trial.workload for trial in trials(silent, moment)]
    expected = step_workloads(SHAPE, moment, Q2)
    assert {work.operation for work in expected} | {"stack_rows"} == set(OPERATIONS)
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_a_call_is_repeated_on_other_memory_with_equal_numbers() -> None:
    for trial in trials(silent, DECODE):
        first, *others = trial.calls
        assert len(trial.calls) == calls_of(trial.workload)
        assert isinstance(first, Call)
        if trial.workload.operation in ("run_experts", "stack_rows"):
            continue
        for other in others[:2]:
            assert isinstance(other, Call)
            for one, copy in zip(arrays(first.arguments), arrays(other.arguments), strict=True):
                assert one is not copy
                assert np.array_equal(np.array(one), np.array(copy), equal_nan=True)


def test_repeated_experts_are_others() -> None:
    (trial,) = (trial for trial in trials(silent, DECODE) if trial.workload.operation == "run_experts")
    chosen = [np.array(call.arguments[2]).tolist() for call in trial.calls if isinstance(call, Call)]
    assert all(0 <= expert < SHAPE.expert_count for (row,) in chosen for expert in row)
    assert all(before != after for before, after in pairwise(chosen))


def test_large_arguments_are_not_copied_more_often_than_caches_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ds4mlx.costs.trials.COPIED_BYTES", 1000)
    call = Call("project", lambda x: x, (mx.zeros((100,)),), {})
    assert len(spread(call, SHAPE, 16)) == 3
    assert len(spread(call, SHAPE, 2)) == 2


class Machine:
    """A clock that runs while something is evaluated: a second for each array."""

    def __init__(self) -> None:
        self.now = 0.0
        self.evaluations: list[int] = []

    def clock(self) -> float:
        return self.now

    def evaluate(self, results: Any) -> None:
        made = len(list(arrays(results)))
        self.now += made
        self.evaluations.append(made)


def test_calls_take_turns_in_evaluations_of_as_many_as_wanted() -> None:
    machine = Machine()
    made: list[str] = []

    def call(name: str) -> Callable[[], mx.array]:
        return lambda: made.append(name) or mx.zeros((1,))

    assert Stopwatch(machine.clock, machine.evaluate).seconds_each([call("a"), call("b")], 5) == 1.0
    assert set(machine.evaluations) == {5}
    assert "".join(made) == "ababa" * len(machine.evaluations)


def test_the_least_of_the_rounds_but_the_first_counts() -> None:
    seconds = iter([1.0, 9.0, 7.0, 3.0, 8.0, 5.0])
    ticks = iter([at for second in seconds for at in (100.0, 100.0 + second)])
    stopwatch = Stopwatch(lambda: next(ticks), lambda results: None)
    assert stopwatch.seconds_each([lambda: mx.zeros((1,))], 2) == 1.5


def test_bandwidth_counts_what_is_read_and_written() -> None:
    machine = Machine()
    assert Stopwatch(machine.clock, machine.evaluate).copy_bandwidth(4000) == 8000.0


def test_a_time_is_judged_by_the_bytes() -> None:
    machine = Machine()
    trial = Trial(WORK, [lambda: [mx.zeros((1,)), mx.zeros((1,))]])
    (found,) = Stopwatch(machine.clock, machine.evaluate).times([trial], bandwidth=float(1 << 20))
    assert found == KernelTime(WORK, seconds=2.0, floor=4.0)
    assert (found.ratio, found.bytes_per_second) == (0.5, 2.0 * (1 << 20))
    assert machine.evaluations[0] == 2 * calls_of(WORK)


def test_large_workloads_are_called_less_often() -> None:
    assert calls_of(WORK) == 16
    assert calls_of(replace(WORK, weights=1 << 28)) == 3
    assert calls_of(replace(WORK, weights=1 << 33)) == 1


def choice(maker: Maker, fallbacks: tuple[str, ...] = ()) -> KernelChoice:
    statuses = [
        KernelStatus(name, "fallback" if name in fallbacks else "kernel", "", True) for name in OPERATIONS
    ]
    return KernelChoice(statuses, maker)


def test_records_of_a_measurement() -> None:
    machine = Machine()
    stopwatch = Stopwatch(machine.clock, machine.evaluate)
    records = list(measure([DECODE, PREFILL], choice(silent, ("route",)), stopwatch, SHAPE))
    assert {(record["tokens"], record["context"]) for record in records} == {(1, 256), (128, 256)}
    for record in records:
        assert record["runs_as"] == ("fallback" if record["operation"] == "route" else "kernel")
        assert record["ratio"] == pytest.approx(record["kernel_seconds"] / record["floor_seconds"])
        bandwidth = record["copy_gb_per_second"] * 1e9
        assert record["floor_seconds"] == pytest.approx(record["bytes"] / bandwidth)


class Device:
    """Stands for `mlx.core` on some machine."""

    cpu, gpu = "cpu", "gpu"

    def __init__(self, available: bool, default: str) -> None:
        self.metal = self
        self._available = available
        self._default = default

    def is_available(self) -> bool:
        return self._available

    def default_device(self) -> str:
        return self._default

    def Device(self, kind: str) -> str:
        return kind


def test_only_metal_can_be_measured() -> None:
    assert why_unmeasurable(Device(True, "gpu")) is None
    for device in (Device(True, "cpu"), Device(False, "gpu")):
        reason = why_unmeasurable(device)
        assert reason
        assert "Mac" in reason
        assert "\n" not in reason


@pytest.mark.long
@pytest.mark.parametrize("moment", [DECODE, PREFILL], ids=str)
def test_simulated_kernels_can_be_timed(moment: Moment) -> None:
    """Every call's arguments are such as the real kernels take."""
    if missing := clang_missing():
        pytest.skip(missing)
    for trial in trials(metal_kernel, moment):
        mx.eval(trial.calls[-1]())
