"""Opening whole model files: the golden ones, hollow ones of every published size, and broken ones."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import ModelFileError, UsageError
from shared.gguf.reader import GgufFile
from shared.gguf.types import TensorType, ValueType
from shared.gguf.writer import ArrayValue, MetadataEntry, TensorData, encode_header
from shared.model.known_shapes import FLASH, FLASH_4_EXPERT, PREFIX, PRO
from shared.model.open import open_model, read_tokenizer
from shared.model.shape import ModelShape
from tests.support.golden import GOLDEN, tiny_pro, tiny_q2, tiny_q4
from tests.support.model_files import (
    MXFP4,
    Q2,
    Q4,
    SMALL,
    Expert,
    metadata_of,
    tensors_of,
    write_hollow,
)


def refused(path: Path) -> ModelFileError:
    with pytest.raises(ModelFileError) as caught:
        open_model(path)
    assert "\n" not in str(caught.value)
    assert caught.value.problems
    return caught.value


@pytest.mark.parametrize(
    ("path", "model_id", "bits", "layers"),
    [(tiny_q2, 0, 2, 6), (tiny_q4, 0, 4, 6), (tiny_pro, 1, 2, 5)],
    ids=["q2", "q4", "pro"],
)
def test_the_golden_models(path, model_id: int, bits: int, layers: int) -> None:  # type: ignore[no-untyped-def]
    with open_model(path()) as model:
        assert (model.shape.model_id, model.quant_bits, model.shape.layer_count) == (model_id, bits, layers)
        assert model.name.startswith("DeepSeek V4 Tiny")
        assert model.notes == ["test shape: not a published model"]
        assert model.effort_profile == "preview"
        assert model.tokenizer.vocabulary_size == 1280
        assert model.tokenizer is model.tokenizer
        assert model.tokenizer.decode(model.tokenizer.encode_text("two words")) == b"two words"


def test_a_file_without_weights_lists_what_it_lacks() -> None:
    error = refused(GOLDEN / "tokenizer-only.gguf")
    assert str(error).endswith("(and 29 more problems)")


def test_a_refused_file_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(GgufFile, "close", lambda gguf: closed.append(gguf.path.name))
    refused(GOLDEN / "tokenizer-only.gguf")
    assert closed == ["tokenizer-only.gguf"]


def test_the_summary(tmp_path: Path) -> None:
    path = write_hollow(
        tmp_path / "a.gguf",
        metadata_of(SMALL, name="Two\nlines"),
        tensors_of(SMALL, lambda layer: Q4 if layer == 3 else Q2),
    )
    with open_model(path) as model:
        summary = model.summary()
        size = sum(tensor.nbytes for tensor in tensors_of(SMALL, lambda layer: Q4 if layer == 3 else Q2))
    assert json.loads(json.dumps(summary)) == {
        "name": "Two lines",
        "path": str(path),
        "variant": "test model",
        "test_shape": True,
        "model_id": 0,
        "layers": 4,
        "quant_bits": 2,
        "expert_types": {"IQ2_XXS/Q2_K": [0, 1, 2], "Q4_K/Q4_K": [3]},
        "tensors": len(tensors_of(SMALL)),
        "weight_bytes": size,
        "file_bytes": path.stat().st_size,
        "vocabulary": 40,
        "effort_profile": "preview",
        "context_limit": 1048576,
        "original_context": 65536,
        "notes": ["test shape: not a published model"],
    }


@pytest.mark.parametrize(
    ("gate", "bits"), [(Q2, 2), ((TensorType.Q2_K, TensorType.Q2_K), 2), (Q4, 4), (MXFP4, 4)]
)
def test_quant_bits_are_those_of_the_first_gate(tmp_path: Path, gate: Expert, bits: int) -> None:
    tensors = tensors_of(SMALL, lambda layer: gate if layer == 0 else Q2)
    with open_model(write_hollow(tmp_path / "a.gguf", metadata_of(SMALL), tensors)) as model:
        assert model.quant_bits == bits


@pytest.mark.parametrize(
    ("file_name", "name", "asked", "profile"),
    [
        ("a.gguf", "A model", "auto", "preview"),
        ("DeepSeek-V4-Flash-chat-v2-imatrix-0731.gguf", "A model", "auto", "official"),
        ("a.gguf", "DeepSeek V4 Pro 0813", "auto", "official"),
        ("model-0731.gguf", "A model", "preview", "preview"),
        ("a.gguf", "A model", "official", "official"),
    ],
)
def test_the_effort_profile(tmp_path: Path, file_name: str, name: str, asked: str, profile: str) -> None:
    path = write_hollow(tmp_path / file_name, metadata_of(SMALL, name=name), tensors_of(SMALL))
    with open_model(path, effort_profile=asked) as model:
        assert model.effort_profile == profile


def test_only_general_texts_tell_the_effort_profile(tmp_path: Path) -> None:
    note: MetadataEntry = ("quantize.note", ValueType.STRING, "made on 0801")
    with open_model(
        write_hollow(tmp_path / "a.gguf", [*metadata_of(SMALL), note], tensors_of(SMALL))
    ) as model:
        assert model.effort_profile == "preview"


def test_the_context_limit_is_the_files_or_that_of_the_rope_scaling(tmp_path: Path) -> None:
    key = f"{PREFIX}context_length"
    metadata = without(metadata_of(SMALL), key)
    path = write_hollow(tmp_path / "a.gguf", [*metadata, (key, ValueType.UINT32, 4096)], tensors_of(SMALL))
    with open_model(path) as model:
        assert model.context_limit == 4096
    with open_model(write_hollow(path, metadata, tensors_of(SMALL))) as model:
        assert model.context_limit == 16 * 65536


def test_an_unknown_effort_profile_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="auto, preview or official, not 'newest'"):
        open_model(tiny_q2(), effort_profile="newest")


def without(metadata: Sequence[MetadataEntry], *keys: str) -> list[MetadataEntry]:
    return [entry for entry in metadata if entry[0] not in keys]


def test_another_tokenizer_is_only_noted(tmp_path: Path) -> None:
    metadata = without(metadata_of(SMALL), "tokenizer.ggml.model", "tokenizer.ggml.pre")
    metadata.append(("tokenizer.ggml.pre", ValueType.STRING, "llama-bpe"))
    with open_model(write_hollow(tmp_path / "a.gguf", metadata, tensors_of(SMALL))) as model:
        assert [note.split(":")[0] for note in model.notes if "tokenizer" in note] == [
            "the key 'tokenizer.ggml.model' is missing, expected 'gpt2'",
            "the key 'tokenizer.ggml.pre' is 'llama-bpe', expected 'joyai-llm'",
        ]


def test_the_vocabulary_is_required_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    tokens, merges = "tokenizer.ggml.tokens", "tokenizer.ggml.merges"
    write_hollow(path, without(metadata_of(SMALL), tokens, merges), tensors_of(SMALL))
    assert refused(path).problems == (
        f"the required key '{tokens}' is missing",
        f"the required key '{merges}' is missing",
    )
    metadata: list[MetadataEntry] = [
        *without(metadata_of(SMALL), tokens, merges),
        (tokens, ValueType.ARRAY, ArrayValue(ValueType.STRING, ["a"] * 39)),
        (merges, ValueType.ARRAY, ArrayValue(ValueType.INT32, [1])),
    ]
    write_hollow(path, metadata, tensors_of(SMALL))
    assert refused(path).problems == (
        f"the key '{tokens}' has 39 tokens for a vocabulary of 40",
        f"the key '{merges}' is not an array of strings",
    )


def test_an_unlisted_tensor_of_unknown_type_is_only_noted_but_a_needed_one_is_refused(tmp_path: Path) -> None:
    def with_unknown_type(name: str) -> Path:
        tensors = [*tensors_of(SMALL), TensorData("extra", TensorType.F32, (8,), b"")]
        path = write_hollow(tmp_path / "a.gguf", metadata_of(SMALL), tensors)
        data = bytearray(path.read_bytes())
        length = len(name).to_bytes(8, "little")
        at = data.index(length + name.encode()) + 8 + len(name)
        at += 4 + 8 * int.from_bytes(data[at : at + 4], "little")
        data[at : at + 4] = (77).to_bytes(4, "little")
        path.write_bytes(data)
        return path

    with open_model(with_unknown_type("extra")) as model:
        assert "tensor 'extra' has the unknown type 77" in model.notes
    assert "is of the unknown type 77, expected F32" in str(refused(with_unknown_type("output_norm.weight")))


def test_problems_of_reader_metadata_and_tensors_are_collected(tmp_path: Path) -> None:
    tensors = tensors_of(SMALL)
    metadata = without(metadata_of(SMALL), f"{PREFIX}expert_weights_norm", "tokenizer.ggml.merges")
    header = encode_header(metadata, [tensor for tensor in tensors if tensor.name != "output.weight"])
    path = tmp_path / "a.gguf"
    path.write_bytes(header + bytes(1000))
    problems = refused(path).problems
    for word in (
        "cut off",
        "expert_weights_norm' is missing",
        "merges' is missing",
        "'output.weight' is missing",
    ):
        assert any(word in problem for problem in problems), word


def test_another_architecture_is_told_in_one_problem(tmp_path: Path) -> None:
    metadata = without(metadata_of(SMALL), "general.architecture")
    metadata.append(("general.architecture", ValueType.STRING, "llama"))
    error = refused(write_hollow(tmp_path / "a.gguf", metadata, tensors_of(SMALL)))
    assert error.problems == ("its architecture is 'llama': only DeepSeek V4 ('deepseek4') can be run",)


def test_parts_and_draft_blocks_are_recognised(tmp_path: Path) -> None:
    parts: MetadataEntry = ("split.count", ValueType.UINT16, 5)
    error = refused(write_hollow(tmp_path / "a.gguf", [*metadata_of(SMALL), parts], tensors_of(SMALL)))
    assert error.problems == ("it is one of 5 parts of a split file: merge the parts first",)
    draft = [TensorData("mtp.0.norm.weight", TensorType.F32, (256,), b"")]
    error = refused(write_hollow(tmp_path / "b.gguf", [], draft))
    assert "multi-token prediction block" in str(error)


def test_swapped_names_are_refused_with_a_hint(tmp_path: Path) -> None:
    names = {"blk.1.attn_q_a.weight": "blk.1.attn_kv.weight"}
    names |= {value: key for key, value in names.items()}
    tensors = [replace(tensor, name=names.get(tensor.name, tensor.name)) for tensor in tensors_of(SMALL)]
    error = refused(write_hollow(tmp_path / "a.gguf", metadata_of(SMALL), tensors))
    assert len(error.problems) == 2
    assert "(swapped with" in str(error)


def splice(layer: int) -> Expert:
    return Q4 if layer >= 37 else Q2


@pytest.mark.parametrize(
    ("shape", "experts", "bits"),
    [
        (FLASH, lambda layer: Q2, 2),
        (FLASH, lambda layer: Q4, 4),
        (FLASH, lambda layer: MXFP4, 4),
        (FLASH, splice, 2),
        (FLASH_4_EXPERT, lambda layer: Q2, 2),
        (PRO, lambda layer: Q2, 2),
    ],
    ids=["q2", "q4", "mxfp4", "q2-q4", "4-expert", "pro"],
)
def test_files_of_the_published_sizes_open_without_touching_data(  # type: ignore[no-untyped-def]
    tmp_path: Path, shape: ModelShape, experts, bits: int
) -> None:
    tensors = tensors_of(shape, experts)
    path = write_hollow(tmp_path / "big.gguf", metadata_of(shape, merges=127741), tensors)
    size = sum(tensor.nbytes for tensor in tensors)
    assert path.stat().st_size > size > 80e9
    assert path.stat().st_blocks * 512 < 20e6  # a hole: the weights take no disk space
    with open_model(path) as model:
        assert model.shape == shape
        assert model.quant_bits == bits
        assert model.weight_bytes == size
        assert model.notes == []
        assert model.gguf.data(tensors[-1].name)[-1] == 0  # the last byte lies in the file


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_header_with_wrong_bytes_opens_or_is_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "patched.gguf"
    if not path.exists():
        write_hollow(path, metadata_of(SMALL), tensors_of(SMALL))
    header = bytearray(encode_header(metadata_of(SMALL), tensors_of(SMALL)))
    for _ in range(data.draw(st.integers(1, 3))):
        header[data.draw(st.integers(0, len(header) - 1))] = data.draw(st.integers(0, 255))
    with path.open("r+b") as file:
        file.write(header)
    message = ""
    try:
        with open_model(path) as model:
            json.dumps(model.summary())
    except ModelFileError as error:
        message = str(error)
    assert "\n" not in message
    assert len(message) < 2500


def test_a_vocabulary_without_weights_gives_its_tokenizer() -> None:
    tokenizer = read_tokenizer(GOLDEN / "tokenizer-only.gguf")
    assert tokenizer.vocabulary_size == 1408
    with pytest.raises(ModelFileError, match="required"):
        open_model(GOLDEN / "tokenizer-only.gguf")
