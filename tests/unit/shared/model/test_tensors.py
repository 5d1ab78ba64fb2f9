"""The tensor table and the check of a directory against it."""

from dataclasses import replace

import pytest

from shared.gguf.directory import TensorInfo, tensor_bytes
from shared.gguf.types import TensorType
from shared.model.known_shapes import FLASH, PRO
from shared.model.shape import ModelShape
from shared.model.tensors import EXPERT_TYPES, check_tensors, expert_types, tensor_table
from tests.support.model_files import MXFP4, Q2, Q4, SMALL, Expert, tensors_of


def directory(shape: ModelShape = SMALL, experts: Expert = Q2) -> dict[str, TensorInfo]:
    return {
        tensor.name: TensorInfo(tensor.name, tensor.type, tensor.type, tensor.dims, 0, tensor.nbytes)
        for tensor in tensors_of(shape, lambda layer: experts)
    }


FLASH_DIMS = {
    "token_embd.weight": (4096, 129280),
    "output_hc_fn.weight": (16384, 4),
    "output_hc_scale.weight": (1,),
    "output_hc_base.weight": (4,),
    "output.weight": (4096, 129280),
    "blk.0.hc_attn_fn.weight": (16384, 24),
    "blk.0.hc_ffn_scale.weight": (3,),
    "blk.0.hc_ffn_base.weight": (24,),
    "blk.0.attn_q_b.weight": (1024, 32768),
    "blk.0.attn_kv.weight": (4096, 512),
    "blk.0.attn_output_a.weight": (4096, 8192),
    "blk.0.attn_output_b.weight": (8192, 4096),
    "blk.0.ffn_gate_tid2eid.weight": (6, 129280),
    "blk.2.attn_compressor_ape.weight": (1024, 4),
    "blk.3.attn_compressor_ape.weight": (512, 128),
    "blk.3.attn_compressor_norm.weight": (512,),
    "blk.2.indexer.attn_q_b.weight": (1024, 8192),
    "blk.2.indexer.proj.weight": (4096, 64),
    "blk.2.indexer_compressor_kv.weight": (4096, 256),
    "blk.2.indexer_compressor_ape.weight": (256, 4),
    "blk.2.indexer_compressor_norm.weight": (128,),
    "blk.3.exp_probs_b.bias": (256,),
    "blk.42.ffn_gate_exps.weight": (4096, 2048, 256),
    "blk.42.ffn_down_exps.weight": (2048, 4096, 256),
    "blk.42.ffn_down_shexp.weight": (2048, 4096),
}
PRO_DIMS = {
    "output_hc_fn.weight": (28672, 4),
    "blk.0.attn_q_b.weight": (1536, 65536),
    "blk.0.attn_output_a.weight": (4096, 16384),
    "blk.0.attn_output_b.weight": (16384, 7168),
    "blk.0.attn_compressor_kv.weight": (7168, 512),
    "blk.60.indexer.attn_q_b.weight": (1536, 8192),
    "blk.60.ffn_up_exps.weight": (7168, 3072, 384),
}


@pytest.mark.parametrize(("shape", "expected"), [(FLASH, FLASH_DIMS), (PRO, PRO_DIMS)])
def test_dimensions_of_the_published_models(shape: ModelShape, expected: dict[str, tuple[int, ...]]) -> None:
    table = {spec.name: spec for spec in tensor_table(shape)}
    assert {name: table[name].dims for name in expected} == expected


def test_which_layers_have_which_tensors() -> None:
    table = tensor_table(FLASH)
    names = [spec.name for spec in table]
    assert len(set(names)) == len(names)

    def layers(suffix: str) -> list[int]:
        return [int(name.split(".")[1]) for name in names if name.endswith(suffix)]

    assert layers("attn_compressor_kv.weight") == list(range(2, 43))
    assert layers("indexer.proj.weight") == list(range(2, 43, 2))
    assert layers("tid2eid.weight") == [0, 1, 2]
    assert layers("exp_probs_b.bias") == list(range(3, 43))
    assert layers("ffn_norm.weight") == list(range(43))
    optional = {spec.name.split(".", 2)[2] for spec in table if spec.optional}
    assert optional == {"exp_probs_b.bias"}


def test_sizes_are_those_of_the_published_files() -> None:
    def size(shape: ModelShape, experts: Expert) -> float:
        return sum(tensor.nbytes for tensor in tensors_of(shape, lambda layer: experts)) / 1e9

    # The published sizes, "about" 81, 153 and 430 GB, are in units of 2^30 bytes or 10^9.
    assert 80 < size(FLASH, Q2) < 88
    assert 152 < size(FLASH, Q4) < 166
    assert 420 < size(PRO, Q2) < 465


@pytest.mark.parametrize("experts", [Q2, Q4, MXFP4, (TensorType.Q2_K, TensorType.IQ2_XXS)])
def test_a_complete_directory_has_no_problem(experts: Expert) -> None:
    assert check_tensors(directory(experts=experts), SMALL) == []


def test_expert_types_may_differ_by_layer() -> None:
    tensors = {
        tensor.name: TensorInfo(tensor.name, tensor.type, tensor.type, tensor.dims, 0, 0)
        for tensor in tensors_of(SMALL, lambda layer: Q4 if layer == 2 else Q2)
    }
    assert check_tensors(tensors, SMALL) == []
    assert expert_types(tensors, 2) == (TensorType.Q4_K,) * 3
    assert expert_types(tensors, 1) == (TensorType.IQ2_XXS, TensorType.IQ2_XXS, TensorType.Q2_K)


@pytest.mark.parametrize("spec", tensor_table(SMALL), ids=lambda spec: spec.name)
def test_every_tensor_is_needed_with_its_dimensions_and_type(spec) -> None:  # type: ignore[no-untyped-def]
    tensors = directory()
    info = tensors.pop(spec.name)
    problems = check_tensors(tensors, SMALL)
    if spec.optional:
        assert problems == []
    else:
        assert problems == [f"tensor '{spec.name}' is missing"]
    tensors[spec.name] = replace(info, dims=(*info.dims[:-1], info.dims[-1] + 1))
    (problem,) = check_tensors(tensors, SMALL)
    assert problem.startswith(f"tensor '{spec.name}' has the dimensions")
    assert str(list(spec.dims)) in problem
    tensors[spec.name] = replace(info, dims=(*info.dims, 1))
    assert len(check_tensors(tensors, SMALL)) == 1
    tensors[spec.name] = replace(info, type=TensorType.BF16)
    wanted = ", ".join(type.name for type in spec.types)
    (problem,) = check_tensors(tensors, SMALL)
    assert problem.startswith(f"tensor '{spec.name}' is BF16, expected {wanted} (")
    assert "`ds4 pull --list`" in problem
    tensors[spec.name] = replace(info, type=TensorType.UNKNOWN, type_id=77)
    (problem,) = check_tensors(tensors, SMALL)
    assert "of the unknown type 77" in problem


def test_which_types_are_taken() -> None:
    by_type = {}
    for spec in tensor_table(SMALL):
        by_type.setdefault(spec.types, set()).add(spec.name.split(".")[-2])
    assert by_type[TensorType.F16,] == {
        *("token_embd", "output_hc_fn", "hc_attn_fn", "hc_ffn_fn", "ffn_gate_inp", "attn_q_b", "proj"),
        *("attn_compressor_ape", "attn_compressor_kv", "attn_compressor_gate"),
        *("indexer_compressor_ape", "indexer_compressor_kv", "indexer_compressor_gate"),
    }
    assert by_type[TensorType.Q8_0,] == {
        *("output", "attn_q_a", "attn_q_b", "attn_kv", "attn_output_a", "attn_output_b"),
        *("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"),
    }
    assert by_type[TensorType.I32,] == {"ffn_gate_tid2eid"}
    assert by_type[EXPERT_TYPES] == {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}
    assert set(EXPERT_TYPES) == {TensorType.IQ2_XXS, TensorType.Q2_K, TensorType.Q4_K, TensorType.MXFP4}


def test_unlisted_tensors_are_ignored() -> None:
    tensors = directory()
    for name in ("blk.0.exp_probs_b.bias", "blk.0.indexer.proj.weight", "extra", "blk.9.attn_norm.weight"):
        tensors[name] = TensorInfo(name, TensorType.F64, 28, (5,), 0, 40)
    assert check_tensors(tensors, SMALL) == []


def test_gate_and_up_must_be_of_one_type() -> None:
    tensors = directory()
    name = "blk.1.ffn_up_exps.weight"
    tensors[name] = replace(tensors[name], type=TensorType.Q4_K)
    assert check_tensors(tensors, SMALL) == [
        "the routed experts of layer 1 have gate IQ2_XXS but up Q4_K: they must be equal"
    ]


@pytest.mark.parametrize(
    "experts", [(TensorType.MXFP4, TensorType.Q4_K), (TensorType.Q4_K, TensorType.MXFP4)]
)
def test_mxfp4_is_for_all_three_or_none(experts: Expert) -> None:
    problems = check_tensors(directory(experts=experts), SMALL)
    assert len(problems) == SMALL.layer_count
    assert all("together" in problem for problem in problems)


def test_a_renamed_tensor_is_recognised() -> None:
    tensors = directory()
    info = tensors.pop("blk.1.indexer.attn_q_b.weight")
    tensors["blk.1.indexer_attn_q_b.weight"] = replace(info, name="blk.1.indexer_attn_q_b.weight")
    assert check_tensors(tensors, SMALL) == [
        "tensor 'blk.1.indexer.attn_q_b.weight' is missing "
        "(is it 'blk.1.indexer_attn_q_b.weight', which has these dimensions?)"
    ]


def test_swapped_names_are_recognised() -> None:
    tensors = directory()
    first, second = "blk.0.attn_q_a.weight", "blk.0.attn_output_b.weight"
    tensors[first], tensors[second] = (
        replace(tensors[second], name=first),
        replace(tensors[first], name=second),
    )
    problems = check_tensors(tensors, SMALL)
    assert len(problems) == 2
    assert f"(swapped with '{second}'?)" in problems[0]
    assert f"(swapped with '{first}'?)" in problems[1]


def test_every_mismatch_is_listed() -> None:
    tensors = directory()
    del tensors["output.weight"]
    del tensors["blk.3.attn_sinks.weight"]
    tensors["token_embd.weight"] = replace(
        tensors["token_embd.weight"], type=TensorType.Q8_0, dims=(SMALL.embedding_width, 41)
    )
    problems = check_tensors(tensors, SMALL)
    assert [problem.split("'")[1] for problem in problems] == [
        *("token_embd.weight", "token_embd.weight", "output.weight", "blk.3.attn_sinks.weight")
    ]


def test_an_empty_file_misses_everything() -> None:
    needed = [spec for spec in tensor_table(SMALL) if not spec.optional]
    assert len(check_tensors({}, SMALL)) == len(needed)


def test_every_tensor_of_an_admissible_shape_is_whole_blocks() -> None:
    for spec in tensor_table(SMALL):
        for kind in spec.types:
            assert tensor_bytes(kind, spec.dims) > 0
