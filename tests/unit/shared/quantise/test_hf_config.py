"""Metadata from `config.json` and `tokenizer.json`: all that a template would give, and clear refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared.gguf.types import ValueType
from shared.model.known_shapes import PRO
from shared.quantise.header import template_of_checkpoint
from shared.quantise.hf_config import CONFIG, VOCABULARY
from shared.quantise.safetensors import CheckpointError
from shared.text import marks
from shared.text.byte_alphabet import ALPHABET
from tests.support.model_files import metadata_of
from tests.support.tiny_checkpoints import SHAPE, config_of, vocabulary_of


def write(folder: Path, config: object = None, vocabulary: object = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / CONFIG).write_text(json.dumps(config_of(SHAPE) if config is None else config))
    (folder / VOCABULARY).write_text(json.dumps(vocabulary_of(SHAPE) if vocabulary is None else vocabulary))
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        template_of_checkpoint(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("shape", [SHAPE, PRO])
def test_shapes(tmp_path: Path, shape) -> None:
    scale = {"routed_scaling_factor": shape.expert_weight_scale}
    template = template_of_checkpoint(
        write(tmp_path / "V4-0731", config_of(shape) | scale, vocabulary_of(shape))
    )
    assert template.shape == shape
    keys = [key for key, _, _ in template.metadata]
    assert set(keys) > {key for key, _, _ in metadata_of(SHAPE)}
    assert len(set(keys)) == len(keys)
    assert ("general.name", ValueType.STRING, "V4-0731") in template.metadata


def test_the_vocabulary(tmp_path: Path) -> None:
    metadata = {key: value for key, _, value in template_of_checkpoint(write(tmp_path / "m")).metadata}
    tokens, kinds = (metadata[f"tokenizer.ggml.{key}"].items for key in ("tokens", "token_type"))
    assert len(tokens) == len(kinds) == SHAPE.vocabulary_size
    assert tokens[:3] == [marks.BOS, marks.EOS, marks.PAD]
    assert tokens[3:259] == list(ALPHABET)
    assert tokens[261] == "[PAD261]"
    assert kinds[:4] == [3, 3, 3, 1]
    assert kinds[261] == 5
    assert kinds[tokens.index(marks.THINK)] == 4
    assert kinds[tokens.index(marks.USER)] == 3
    assert list(metadata["tokenizer.ggml.merges"].items) == ["t h", "th e"]
    assert [metadata[f"tokenizer.ggml.{key}_token_id"] for key in ("bos", "eos", "padding")] == [0, 1, 2]


def test_a_name_in_the_configuration_comes_first(tmp_path: Path) -> None:
    config = config_of(SHAPE) | {"_name_or_path": "deepseek-ai/DeepSeek-V4-Flash"}
    metadata = template_of_checkpoint(write(tmp_path / "m", config)).metadata
    assert metadata[1][2] == "deepseek-ai/DeepSeek-V4-Flash"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "llama"}, "not of the model type deepseek_v4"),
        ({"scoring_func": "sigmoid"}, "not of the model type deepseek_v4"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": "x"}, "hidden_size is 'x', not a whole number"),
        ({"hidden_size": True}, "not a whole number"),
        ({"hidden_size": -1}, "not a whole number"),
        ({"hidden_size": 255}, "describes no model that can be run: unsupported shape"),
        ({"hidden_size": 4096}, "nearest to DeepSeek V4 Flash"),
        ({"norm_topk_prob": False}, "expert_weights_norm' is false"),
        ({"rope_scaling": 3}, "rope_scaling.factor is missing"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is 'nan', not a number"),
        ({"rms_norm_eps": 1e-5}, "expected 1e-06"),
        ({"compress_ratios": [0, 4.5]}, "compress_ratios is not a list of whole numbers"),
        ({"compress_ratios": [0, 4]}, "has 2 entries for 3 layers"),
        ({"num_hidden_layers": 4000000000}, "describes no model that can be run"),
    ],
)
def test_wrong_configurations(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    assert reason in refusal(write(tmp_path / "m", config_of(SHAPE) | change))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda held: held.pop("model"), "it holds no vocabulary"),
        (lambda held: held.update(added_tokens=3), "it holds no vocabulary"),
        (lambda held: held["added_tokens"].append(3), "not described by an object"),
        (lambda held: held["added_tokens"].append({"id": 5, "content": "x"}), "two tokens have the number 5"),
        (lambda held: held["added_tokens"].append({"id": [1], "content": "x"}), "no text or no number"),
        (
            lambda held: held["added_tokens"].append({"id": 320, "content": "x"}),
            "number 320 in a vocabulary of 320",
        ),
        (lambda held: held["model"]["vocab"].update(x="y"), "no text or no number"),
        (lambda held: held["model"]["merges"].append("abc"), "a merge is not a pair"),
        (lambda held: held["model"]["merges"].append(["q", "q"]), "merge"),
        (lambda held: held.update(added_tokens=held["added_tokens"][:3]), "lacks the token"),
        (lambda held: held["model"]["vocab"].pop("a"), "lacks byte 0x61"),
    ],
)
def test_wrong_vocabularies(tmp_path: Path, change, reason: str) -> None:
    vocabulary = vocabulary_of(SHAPE)
    change(vocabulary)
    assert reason in refusal(write(tmp_path / "m", None, vocabulary))


@pytest.mark.parametrize("name", [CONFIG, VOCABULARY])
@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "--template"), (b"{", "is damaged"), (b"[]", "no object"), (b"[" * 99999, "damaged")],
)
def test_files_that_are_missing_or_damaged(
    tmp_path: Path, name: str, content: bytes | None, reason: str
) -> None:
    folder = write(tmp_path / "m")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    assert reason in refusal(folder)
