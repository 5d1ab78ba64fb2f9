"""Workloads at Flash's real shapes against what the forward pass hands to its kernels there.

The forward pass runs lazily on a maker that computes nothing, so that 80 GB of weights cost nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

mx = pytest.importorskip("mlx.core")

from ds4mlx.costs.layer_workloads import Q2, Q4, ExpertTypes, LayerWorkloads  # noqa: E402
from ds4mlx.costs.step_workloads import (  # noqa: E402
    LayerKind,
    decode_moment,
    first_mix,
    head,
    layer_kinds,
    stacks,
    step_workloads,
)
from ds4mlx.costs.trials import Call, Trials  # noqa: E402
from ds4mlx.costs.workload import BLOCK_BITS, KERNEL_BITS, Moment, Workload, total  # noqa: E402
from ds4mlx.operations import Operations, make_operations  # noqa: E402
from shared.model.known_shapes import FLASH, PRO  # noqa: E402
from shared.model.shape import ModelShape  # noqa: E402
from tests.support.traced_steps import traced_step  # noqa: E402

CHUNK = Moment(65536 - 4096, 4096)
MOMENTS = [decode_moment(2048), decode_moment(16384), decode_moment(65536), CHUNK]
KINDS = list(layer_kinds(FLASH))
# Operations that read every byte of their inputs once and need no scratch, when decoding.
WHOLE = {"hyper_mix", "hyper_join", "hyper_collapse", "head_collapse", "project", "project_swiglu"}


class Launches:
    """A maker whose kernels only remember their inputs and outputs."""

    def __init__(self) -> None:
        self.found: list[tuple[str, list[mx.array], list[mx.array]]] = []

    def __call__(self, **text: Any) -> Any:
        def launch(**call: Any) -> list[mx.array]:
            shapes = zip(call["output_shapes"], call["output_dtypes"], strict=True)
            outputs = [mx.zeros(shape, dtype) for shape, dtype in shapes]
            self.found.append((text["name"], call["inputs"], outputs))
            return outputs

        return launch

    def of(self, call: Call) -> list[tuple[str, list[mx.array], list[mx.array]]]:
        """Those of one call, made again."""
        self.found.clear()
        call()
        return list(self.found)


@pytest.fixture
def launches() -> Launches:
    return Launches()


def operations(shape: ModelShape, launches: Launches) -> Operations:
    return make_operations(shape, lambda name: launches, rounds=True)


def expected(kind: LayerKind, moment: Moment) -> list[Workload]:
    return list(LayerWorkloads(FLASH, moment, kind.ratio, kind.hashed, Q2).calls())


def moved(found: list[tuple[str, list[mx.array], list[mx.array]]]) -> int:
    """Bytes of all different inputs and of all outputs."""
    total = 0
    for _, inputs, outputs in found:
        different = {id(array): array for array in inputs}.values()
        total += sum(array.nbytes for array in [*different, *outputs])
    return total


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_layers_calls_are_those_of_the_forward_pass(
    kind: LayerKind, moment: Moment, launches: Launches
) -> None:
    calls = Trials(FLASH, operations(FLASH, launches), moment, Q2).layer_calls(kind)
    assert [call.operation for call in calls] == [work.operation for work in expected(kind, moment)]


@pytest.mark.parametrize("moment", MOMENTS[:3], ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_launches_and_bytes_are_those_of_the_kernels(
    kind: LayerKind, moment: Moment, launches: Launches
) -> None:
    calls = Trials(FLASH, operations(FLASH, launches), moment, Q2).layer_calls(kind)
    for work, call in zip(expected(kind, moment), calls, strict=True):
        found = launches.of(call)
        assert work.launches == len(found), work
        outputs = sum(array.nbytes for _, _, made in found for array in made)
        assert outputs < work.bytes, work
        if work.operation in WHOLE:
            assert work.bytes == moved(found), work
        elif work.operation not in ("index_queries", "top_k", "attend"):
            assert work.bytes <= moved(found), work  # of caches, tables and experts a part is read


def test_what_a_step_has_once(launches: Launches) -> None:
    moment = decode_moment(2048)
    calls = Trials(FLASH, operations(FLASH, launches), moment, Q2).step_calls()
    for work, call in zip([first_mix(FLASH, moment), *head(FLASH)], calls, strict=True):
        assert (work.operation, work.bytes) == (call.operation, moved(launches.of(call)))


def test_what_a_prefill_step_moves_through_our_kernels(launches: Launches) -> None:
    kind = LayerKind(4, False)
    calls = Trials(FLASH, operations(FLASH, launches), CHUNK, Q2).layer_calls(kind)
    for work, call in zip(expected(kind, CHUNK), calls, strict=True):
        if work.operation in ("hyper_join", "hyper_collapse"):
            assert work.bytes == moved(launches.of(call))


def test_a_step_has_the_launches_of_the_forward_pass() -> None:
    """All but those that end windows, which few steps do."""
    step = traced_step(FLASH, (Q2.gate_up, Q2.down), Moment(16382, 1))
    traced = Counter(launch.operation for launch in step.sequence)
    counted: Counter[str] = Counter()
    for work in step_workloads(FLASH, decode_moment(16383), Q2):
        if work.operation != "compress":
            counted[work.operation] += round(work.launches * work.times)
    assert counted == traced


def by_use(moment: Moment) -> dict[str, Workload]:
    works = step_workloads(FLASH, moment, Q2)
    return {f"{work.operation}: {work.use}": work for work in works}


def test_attention_of_one_token() -> None:
    """128 rows of the window, 127 of them cached, and 512 chosen ones, for 64 heads of 512 channels."""
    work = by_use(decode_moment(65536))["attend: ratio 4, chosen rows"]
    assert work.rows == (127 + 512) * 512 * 2
    assert work.products == (128 + 512) * 64 * 512 * 2
    slices = 20 * 64 * (512 + 2)  # 640 rows, 32 at a time
    assert work.activations == 4 * (2 * 64 * 512 + 512 + 512 + 2 * slices) + 2 * 512
    assert work.weights == 4 * 64


@pytest.mark.parametrize(("context", "slices"), [(2048, 20), (16384, 20), (65536, 20), (1024, 12), (64, 3)])
def test_slices_of_attention_are_those_launched(context: int, slices: int, launches: Launches) -> None:
    kind, moment = LayerKind(4, False), decode_moment(context)
    calls = Trials(FLASH, operations(FLASH, launches), moment, Q2).layer_calls(kind)
    (_, _, (sums, _)), _ = launches.of(next(call for call in calls if call.operation == "attend"))
    assert sums.shape[1] == slices
    work = next(work for work in expected(kind, moment) if work.operation == "attend")
    fixed = 4 * (2 * 64 * 512 + 512 + (512 if context > 2048 else 0)) + 2 * 512
    assert work.activations - fixed == 2 * 4 * slices * 64 * 514


def test_scores_of_all_rows_and_the_choice_among_them() -> None:
    scores, choice = (by_use(decode_moment(65536))[name] for name in ("index_scores: scores", "top_k: rows"))
    assert scores.rows == 16384 * 128 * 4
    assert scores.products == 16384 * 64 * 129
    assert choice.launches == 2
    assert choice.activations == 4 * (16384 + 2 * 2 * 512 + 512)
    early = by_use(decode_moment(2048))
    assert not [name for name in early if name.startswith(("index", "top_k"))]


def test_experts_of_one_token_and_of_a_chunk() -> None:
    """66 bytes hold 256 weights of gate or up, 84 of down."""
    one, many = (by_use(moment)["run_experts: routed and shared"] for moment in (MOMENTS[0], CHUNK))
    expert = 2 * 2048 * 4096 // 256 * 66 + 4096 * 2048 // 256 * 84
    shared = 4096 * 2048
    assert one.weights == 6 * expert + shared * 9 // 8
    assert many.weights == 256 * expert + shared * 10 // 8
    assert one.products == 6 * 3 * 4096 * 2048 + shared
    assert many.products == 4096 * one.products
    assert (one.launches, many.launches) == (2, 5)


def test_windows_of_single_tokens() -> None:
    """Of 128 tokens one completes a window of 128; its values and scores are 512 numbers a token each."""
    work = by_use(decode_moment(2048))["compress: ratio 128"]
    assert work.times == pytest.approx(20 / 128)
    assert work.rows == 127 * 1024 * 4
    overlapping = by_use(decode_moment(2048))["compress: ratio 4"]
    assert overlapping.times == pytest.approx(21 / 4)
    # Of 8 tokens half of 2,560 numbers each, of which the newest token's are not in the ring.
    assert overlapping.rows == 7 * 1280 * 4


def test_rows_of_a_chunk_are_counted_token_by_token() -> None:
    work = by_use(Moment(0, 4096))["attend: ratio 0"]
    assert work.products == 2 * 64 * 512 * sum(min(position + 1, 128) for position in range(4096))
    assert work.rows == 0


def test_a_blocks_scores_are_counted_for_each_block() -> None:
    """A chunk whose scores come in two blocks reads the rows twice."""
    moment = Moment(4 * 65536 - 2048, 2048)
    scores = by_use(moment)["index_scores: scores"]
    assert scores.times == 2 * 21
    assert scores.rows == 65536 * 128 * 4


def test_a_step_has_what_its_layers_have() -> None:
    found = by_use(decode_moment(16384))
    assert found["hyper_join: layers"].times == 2 * 43 - 1  # the first mix has nothing to join
    assert found["route: by table"].times == 3
    assert found["route: by scores"].times == 40
    projects = sum(work.times for name, work in found.items() if name.startswith("project: "))
    assert projects == 4 * 43 + 1
    assert sum(layers for _, _, _, layers in stacks(FLASH)) == 43 + 21 + 20
    whole = total(list(found.values()))
    assert whole.bytes == sum(work.bytes * work.times for work in found.values())
    assert whole.flops == 2 * sum(work.products * work.times for work in found.values())
    # A token's rows and its share of windows, beside 16 to 20 launches a layer.
    assert 16 * 43 < whole.launches < 18 * 43


@pytest.mark.parametrize(("types", "published"), [(Q2, 81), (Q4, 153)])
def test_with_all_experts_the_weights_are_those_of_the_file(types: ExpertTypes, published: int) -> None:
    """Files are published as of 81 and of 153 (2^30 bytes): with the embedding, and with Q8_0 in blocks."""
    every = replace(FLASH, experts_used=FLASH.expert_count)
    whole = total(step_workloads(every, decode_moment(16384), types))
    embedding = 2 * FLASH.vocabulary_size * FLASH.embedding_width
    blocks = whole.q8_0 * (BLOCK_BITS - KERNEL_BITS) / 8
    assert round((whole.weights + blocks + embedding) / 2**30) == published


def test_larger_blocks_and_the_larger_model_move_more() -> None:
    moment = decode_moment(16384)
    q2, q4, pro = (
        total(step_workloads(shape, moment, types)) for shape, types in ((FLASH, Q2), (FLASH, Q4), (PRO, Q2))
    )
    assert q2.bytes < q4.bytes < pro.bytes
    assert q2.flops == q4.flops
