"""From metadata to a shape: published shapes as a whole, test shapes by rule, every fault named."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from shared.gguf.reader import GgufFile
from shared.gguf.types import ValueType
from shared.gguf.writer import ArrayValue, MetadataEntry, encode_header
from shared.model.known_shapes import (
    FLASH,
    FLASH_4_EXPERT,
    FLOAT_KEYS,
    INTEGER_KEYS,
    KNOWN_SHAPES,
    PREFIX,
    PRO,
)
from shared.model.shape import ModelShape
from shared.model.shape_reader import check_architecture, read_shape
from tests.support.golden import tiny_pro, tiny_q2
from tests.support.model_files import SMALL, shape_metadata

Reading = Callable[[list[MetadataEntry]], tuple[ModelShape | None, list[str]]]


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    def read(metadata: list[MetadataEntry]) -> tuple[ModelShape | None, list[str]]:
        path = tmp_path / "a.gguf"
        path.write_bytes(encode_header(metadata, []))
        problems: list[str] = []
        with GgufFile.open(path) as gguf:
            return read_shape(gguf, problems), problems

    return read


def changed(
    metadata: list[MetadataEntry], key: str, value: object, type: ValueType | None = None
) -> list[MetadataEntry]:
    """The metadata with one value replaced (None: left out)."""
    name = PREFIX + key
    assert any(entry[0] == name for entry in metadata)
    return [
        (entry[0], entry[1] if type is None else type, value) if entry[0] == name else entry
        for entry in metadata
        if not (entry[0] == name and value is None)
    ]


@pytest.mark.parametrize("shape", [*KNOWN_SHAPES, SMALL], ids=lambda shape: shape.variant)
def test_a_shape_is_read_back(reading: Reading, shape: ModelShape) -> None:
    assert reading(shape_metadata(shape)) == (shape, [])


def test_the_layer_patterns() -> None:
    assert [FLASH.compress_ratios.count(ratio) for ratio in (0, 4, 128)] == [2, 21, 20]
    assert [PRO.compress_ratios.count(ratio) for ratio in (0, 4, 128)] == [0, 30, 31]
    assert FLASH.compress_ratios[:5] == (0, 0, 4, 128, 4)
    assert PRO.compress_ratios[:5] == (128, 128, 4, 128, 4)
    assert (FLASH.model_id, FLASH_4_EXPERT.model_id, PRO.model_id) == (0, 0, 1)
    assert len(INTEGER_KEYS) == 22


def test_the_golden_models() -> None:
    for path, model_id, ratios in (
        (tiny_q2(), 0, (0, 0, 4, 128, 4, 128)),
        (tiny_pro(), 1, (128, 128, 4, 128, 4)),
    ):
        with GgufFile.open(path) as gguf:
            problems: list[str] = []
            shape = read_shape(gguf, problems)
        assert problems == []
        assert shape is not None
        assert (shape.variant, shape.model_id, shape.compress_ratios) == ("test", model_id, ratios)
        assert shape.rms_epsilon == 1e-6


@pytest.mark.parametrize("entry", INTEGER_KEYS, ids=lambda entry: entry.key)
def test_each_number_is_required_as_uint32_and_matched(reading: Reading, entry) -> None:  # type: ignore[no-untyped-def]
    for shape in (FLASH, SMALL):
        metadata = shape_metadata(shape)
        _, problems = reading(changed(metadata, entry.key, None))
        assert f"the required key '{PREFIX}{entry.key}' is missing" in problems
        _, problems = reading(changed(metadata, entry.key, entry.of(shape), ValueType.UINT64))
        assert f"the key '{PREFIX}{entry.key}' is UINT64, expected UINT32" in problems
    found, problems = reading(changed(shape_metadata(FLASH), entry.key, entry.of(FLASH) + 1))
    if entry.key == "embedding_length":
        assert "nearest to DeepSeek V4 Flash, but embedding_length is 4097, expected 4096" in problems[0]
    assert found is None
    assert any("unsupported shape" in problem and entry.key in problem for problem in problems)


def test_a_published_shape_with_one_number_missing_is_still_known(reading: Reading) -> None:
    found, problems = reading(changed(shape_metadata(PRO), "attention.head_count", None))
    assert found == PRO
    assert len(problems) == 1
    found, _ = reading(changed(shape_metadata(FLASH), "expert_used_count", None))  # 6 or 4 experts
    assert found is None


def test_four_experts_is_a_shape_but_five_is_not(reading: Reading) -> None:
    assert reading(changed(shape_metadata(FLASH), "expert_used_count", 4))[0] == FLASH_4_EXPERT
    found, problems = reading(changed(shape_metadata(FLASH), "expert_used_count", 5))
    assert found is None
    assert "expert_used_count is 5, expected 6" in problems[0]


@pytest.mark.parametrize("entry", FLOAT_KEYS, ids=lambda entry: entry.key)
def test_each_float_is_compared(reading: Reading, entry) -> None:  # type: ignore[no-untyped-def]
    metadata = shape_metadata(PRO)
    want = getattr(PRO, entry.field)
    margin = 1e-6 * max(1.0, want)
    for value in (want - 0.99 * margin, want + 0.99 * margin):
        assert reading(changed(metadata, entry.key, value, ValueType.FLOAT64)) == (PRO, [])
    for value in (want - 1.01 * margin, want + 1.01 * margin, float("nan"), float("inf")):
        _, problems = reading(changed(metadata, entry.key, value, ValueType.FLOAT64))
        assert len(problems) == 1
        assert entry.key in problems[0]
    if want == int(want):
        for kind in (ValueType.UINT32, ValueType.INT32):
            assert reading(changed(metadata, entry.key, int(want), kind))[1] == []
    _, problems = reading(changed(metadata, entry.key, int(want), ValueType.UINT64))
    assert "is UINT64, expected FLOAT32 or FLOAT64" in problems[0]
    _, problems = reading(changed(metadata, entry.key, None))
    assert problems == ([] if entry.optional else [f"the required key '{PREFIX}{entry.key}' is missing"])


def test_the_weight_scale_belongs_to_the_variant(reading: Reading) -> None:
    _, problems = reading(changed(shape_metadata(FLASH), "expert_weights_scale", 2.5))
    assert problems == [f"the key '{PREFIX}expert_weights_scale' is 2.5, expected 1.5"]
    _, problems = reading(changed(shape_metadata(PRO), "expert_weights_scale", 1.5))
    assert problems == [f"the key '{PREFIX}expert_weights_scale' is 1.5, expected 2.5"]


RATIOS = "attention.compress_ratios"


def test_compress_ratios(reading: Reading) -> None:
    metadata = shape_metadata(FLASH)
    ratios = list(FLASH.compress_ratios)

    def faults(items: list[int], element: ValueType = ValueType.INT32) -> list[str]:
        return reading(changed(metadata, RATIOS, ArrayValue(element, items)))[1]

    assert faults(ratios) == []
    assert faults(ratios, ValueType.UINT32) == []
    assert faults([*ratios, 77, -5]) == []  # entries past the layers are not looked at
    assert "array of INT64, expected INT32 or UINT32" in faults(ratios, ValueType.INT64)[0]
    assert "has 42 entries for 43 layers" in faults(ratios[:-1])[0]
    assert "layer 7 has -128 instead of 128" in faults([*ratios[:7], -128, *ratios[8:]])[0]
    assert "layer 0 has 128 instead of 0, layer 1 has 128 instead of 0" in faults([128, 128, *ratios[2:]])[0]
    assert "and 40 more" in faults([9] * 43)[0]
    assert "is missing" in reading(changed(metadata, RATIOS, None))[1][0]
    assert "is UINT32, expected ARRAY" in reading(changed(metadata, RATIOS, 4, ValueType.UINT32))[1][0]


def test_swiglu_clamp(reading: Reading) -> None:
    metadata = shape_metadata(SMALL)

    def faults(items: list[object], element: ValueType = ValueType.FLOAT32) -> list[str]:
        return reading(changed(metadata, "swiglu_clamp_exp", ArrayValue(element, items)))[1]

    assert faults([10.0] * 4) == []
    assert faults([10.0] * 4, ValueType.FLOAT64) == []
    assert faults([10.0] * 4 + [3.0]) == []
    assert "array of INT32, expected FLOAT32 or FLOAT64" in faults([10] * 4, ValueType.INT32)[0]
    assert "array of STRING" in faults(["10"] * 4, ValueType.STRING)[0]
    assert "has 3 entries for 4 layers" in faults([10.0] * 3)[0]
    assert [fault.split(" is ")[1] for fault in faults([10.0, 7.0, 10.0, float("nan")])] == [
        "7 for layer 1, expected 10",
        "nan for layer 3, expected 10",
    ]


def test_groups_norm_and_original_context(reading: Reading) -> None:
    metadata = shape_metadata(FLASH)
    assert "is 4, expected 0" in reading(changed(metadata, "expert_group_count", 4))[1][0]
    assert reading(changed(metadata, "expert_group_count", None))[1] == []
    assert "is false, expected true" in reading(changed(metadata, "expert_weights_norm", False))[1][0]
    assert (
        "is UINT8, expected BOOL"
        in reading(changed(metadata, "expert_weights_norm", 1, ValueType.UINT8))[1][0]
    )
    assert "is missing" in reading(changed(metadata, "expert_weights_norm", None))[1][0]
    context = "rope.scaling.original_context_length"
    assert reading(changed(metadata, context, 65536, ValueType.UINT64))[1] == []
    assert reading(changed(metadata, context, None))[1] == []
    assert "is 4096, expected 65536" in reading(changed(metadata, context, 4096))[1][0]
    assert "is FLOAT32" in reading(changed(metadata, context, 65536.0, ValueType.FLOAT32))[1][0]


BROKEN_TEST_SHAPES: dict[str, tuple[dict[str, object], str]] = {
    "wide": ({"embedding_width": 1280}, "nearest to"),
    "width": ({"embedding_width": 320}, "embedding_length must be a multiple of 256, not 320"),
    "expert width": ({"expert_width": 320}, "expert_feed_forward_length must be a multiple of 256"),
    "rotary tail": ({"head_dim": 200}, "minus rope.dimension_count must be a multiple of 64, not 136"),
    "all rotary": ({"head_dim": 64}, "must be less than attention.key_length"),
    "odd rotary": ({"rotary_dim": 65, "head_dim": 193}, "must be a multiple of 2"),
    "index dim": ({"index_dim": 64}, "attention.indexer.key_length must be 128, not 64"),
    "groups": ({"output_groups": 3}, "must divide by the 3 output groups"),
    "shared": ({"shared_experts": 2}, "expert_shared_count must be 1"),
    "used": ({"experts_used": 9}, "must be at most expert_count 8"),
    "hash layers": ({"hash_layers": 5}, "must be at most block_count 4"),
    "query rank": ({"query_rank": 40}, "attention.q_lora_rank must be a multiple of 32"),
    "output rank": ({"output_rank": 8}, "output groups times output rank must be a multiple of 32"),
    "ratio": ({"compress_ratios": (0, 4, 64, -1)}, "may hold 0, 4 and 128, not [-1, 64]"),
    "no heads": ({"head_count": 0}, "attention.head_count must be at least 1"),
    "no groups": ({"output_groups": 0}, "attention.output_group_count must be at least 1"),
    "layers": ({"layer_count": 257, "compress_ratios": (0,) * 257}, "block_count must be at most 256"),
}


@pytest.mark.parametrize("case", BROKEN_TEST_SHAPES)
def test_inadmissible_test_shapes(reading: Reading, case: str) -> None:
    changes, expected = BROKEN_TEST_SHAPES[case]
    found, problems = reading(shape_metadata(replace(SMALL, **changes)))  # type: ignore[arg-type]
    assert found is None
    assert any(expected in problem for problem in problems), problems


def test_absurd_layer_counts_cost_nothing(reading: Reading) -> None:
    found, problems = reading(changed(shape_metadata(SMALL), "block_count", 2**32 - 1))
    assert found is None
    (problem,) = problems  # nothing about the arrays, whose lengths cannot be judged
    assert "block_count must be at most 256" in problem


def test_a_test_shape_may_do_without_hash_layers(reading: Reading) -> None:
    shape = replace(SMALL, hash_layers=0)
    assert reading(shape_metadata(shape)) == (shape, [])


def test_all_rules_broken_are_named(reading: Reading) -> None:
    _, problems = reading(shape_metadata(replace(SMALL, index_dim=64, shared_experts=2, output_groups=3)))
    assert len(problems) == 3
    metadata = changed(shape_metadata(SMALL), "attention.value_length", 128)
    _, problems = reading(changed(metadata, "attention.head_count_kv", 2))
    assert any("value_length must be 192, not 128" in problem for problem in problems)
    assert any("head_count_kv must be 1, not 2" in problem for problem in problems)


@pytest.mark.parametrize(
    ("ratios", "scale", "model_id"),
    [
        ((128, 128, 4, 4), 2.5, 1),
        ((128, 128, 4, 4), 1.5, 0),
        ((0, 128, 4, 4), 2.5, 0),
        ((0, 0, 4, 128), 1.5, 0),
    ],
)
def test_the_model_id_of_a_test_shape(
    reading: Reading, ratios: tuple[int, ...], scale: float, model_id: int
) -> None:
    shape = replace(SMALL, compress_ratios=ratios, expert_weight_scale=scale, model_id=model_id)
    assert reading(shape_metadata(shape)) == (shape, [])


def test_a_test_shape_has_one_of_the_published_scales(reading: Reading) -> None:
    _, problems = reading(shape_metadata(replace(SMALL, expert_weight_scale=2.0)))
    assert problems == [f"the key '{PREFIX}expert_weights_scale' is 2, expected 1.5"]


def test_architecture(tmp_path: Path) -> None:
    def check(metadata: list[MetadataEntry]) -> tuple[bool, list[str]]:
        path = tmp_path / "a.gguf"
        path.write_bytes(encode_header(metadata, []))
        problems: list[str] = []
        with GgufFile.open(path) as gguf:
            return check_architecture(gguf, problems), problems

    good = shape_metadata(SMALL)
    assert check(good) == (True, [])
    llama: MetadataEntry = ("general.architecture", ValueType.STRING, "llama")
    assert check([llama, *good[1:]]) == (
        False,
        ["its architecture is 'llama': only DeepSeek V4 ('deepseek4') can be run"],
    )
    missing = ["the required key 'general.architecture' is missing or not a string"]
    assert check(good[1:]) == (True, missing)
    assert check([]) == (False, missing)
