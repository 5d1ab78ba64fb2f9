"""Opening a model file: every check there is, then one object that holds the file and what it says.

The only place that puts reader, shape, tensor table, tokenizer and effort profile together. Loads no weights.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from shared.errors import UsageError
from shared.gguf.mapping import refusal, shown
from shared.gguf.reader import GgufFile
from shared.gguf.types import TensorType
from shared.gguf.values import StringArray
from shared.model.fingerprint import fingerprint
from shared.model.known_shapes import PREFIX, VARIANT_NAMES
from shared.model.shape import ModelShape
from shared.model.shape_reader import check_architecture, read_shape
from shared.model.tensors import check_tensors, expert_types, tensor_table

if TYPE_CHECKING:
    from shared.text.tokenizer import Tokenizer

_TOKENS = "tokenizer.ggml.tokens"
_MERGES = "tokenizer.ggml.merges"
_EXPECTED_TOKENIZER = (("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "joyai-llm"))
_PROFILES = ("preview", "official")


@dataclass
class ModelFile:
    """A model file that passed every check (spec: model §1.3 and §2). Close it when done."""

    gguf: GgufFile
    shape: ModelShape
    name: str
    quant_bits: int  # 2 or 4
    effort_profile: str  # "preview" or "official"
    notes: list[str] = field(default_factory=list)  # lines for the start of a program

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Built on first use, from the vocabulary in the file. Raises ModelFileError."""
        return _build_tokenizer(self.gguf)

    @cached_property
    def fingerprint(self) -> str:
        """Which weights these are, 64 hex digits; ask before `close`."""
        return fingerprint(self.gguf)

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of the tensors that the model uses."""
        tensors = self.gguf.tensors
        return sum(tensors[spec.name].nbytes for spec in tensor_table(self.shape) if spec.name in tensors)

    @property
    def context_limit(self) -> int:
        """Tokens that the model's positions were trained for."""
        limit = self.gguf.metadata.get(f"{PREFIX}context_length")
        if isinstance(limit, int) and limit > 0:
            return limit
        return round(self.shape.rope_original_context * self.shape.rope_scale)

    def summary(self) -> dict[str, object]:
        """What `--inspect` shows; values are ready for JSON."""
        experts: dict[str, list[int]] = {}
        for layer in range(self.shape.layer_count):
            gate, _, down = expert_types(self.gguf.tensors, layer)
            experts.setdefault(f"{gate.name}/{down.name}", []).append(layer)
        return {
            "name": self.name,
            "path": str(self.gguf.path),
            "variant": VARIANT_NAMES[self.shape.variant],
            "test_shape": self.shape.variant == "test",
            "model_id": self.shape.model_id,
            "layers": self.shape.layer_count,
            "quant_bits": self.quant_bits,
            "expert_types": experts,  # "gate/down" -> layers; up is as gate
            "tensors": len(self.gguf.tensors),
            "weight_bytes": self.weight_bytes,
            "file_bytes": self.gguf.size,
            "vocabulary": self.shape.vocabulary_size,
            "effort_profile": self.effort_profile,
            "context_limit": self.context_limit,
            "original_context": self.shape.rope_original_context,
            "notes": list(self.notes),
        }

    def close(self) -> None:
        self.gguf.close()

    def __enter__(self) -> ModelFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_model(path: str | os.PathLike[str], *, effort_profile: str = "auto") -> ModelFile:
    """Open and check a model file; no tensor data are read.

    `effort_profile` is "auto" (told from the file's texts and its name), "preview" or "official". Raises
    ModelFileError, whose `problems` hold every mismatch of the file.
    """
    if effort_profile not in ("auto", *_PROFILES):
        raise UsageError(f"--effort-profile must be auto, preview or official, not {shown(effort_profile)}")
    problems: list[str] = []
    gguf = GgufFile.open(path, problems=problems)
    try:
        shape = _check(gguf, problems)
        if problems or shape is None:
            raise refusal(gguf.path, problems)
        return _describe(gguf, shape, effort_profile)
    except BaseException:
        gguf.close()
        raise


def read_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of any GGUF file that holds a vocabulary of the family, with or without weights.

    Raises ModelFileError.
    """
    problems: list[str] = []
    with GgufFile.open(path, problems=problems) as gguf:
        _check_vocabulary(gguf, problems)
        if problems:
            raise refusal(gguf.path, problems)
        return _build_tokenizer(gguf)


def _build_tokenizer(gguf: GgufFile) -> Tokenizer:
    from shared.text.tokenizer import Tokenizer

    tokens, merges = gguf.metadata[_TOKENS], gguf.metadata[_MERGES]
    assert isinstance(tokens, StringArray)
    assert isinstance(merges, StringArray)
    return Tokenizer.from_vocabulary(list(tokens), list(merges))


def _check(gguf: GgufFile, problems: list[str]) -> ModelShape | None:
    wrong_file = _other_kind(gguf)
    if wrong_file is not None:
        problems.append(wrong_file)
        return None
    if not check_architecture(gguf, problems):
        return None
    shape = read_shape(gguf, problems)
    _check_vocabulary(gguf, problems)
    if shape is not None:
        problems += check_tensors(gguf.tensors, shape)
    return shape


def _other_kind(gguf: GgufFile) -> str | None:
    """A GGUF file that has to do with V4 but is no whole model."""
    parts = gguf.metadata.get("split.count")
    if isinstance(parts, int) and parts > 1:
        return f"it is one of {parts} parts of a split file: merge the parts first"
    if any(name.startswith("mtp.") for name in gguf.tensors) and "token_embd.weight" not in gguf.tensors:
        return "it holds only the multi-token prediction block: the base model's file is needed"
    return None


def _check_vocabulary(gguf: GgufFile, problems: list[str]) -> None:
    size = gguf.metadata.get(f"{PREFIX}vocab_size")
    for key in (_TOKENS, _MERGES):
        values = gguf.metadata.get(key)
        if values is None:
            problems.append(f"the required key '{key}' is missing")
        elif not isinstance(values, StringArray):
            problems.append(f"the key '{key}' is not an array of strings")
        elif key == _TOKENS and isinstance(size, int) and len(values) != size:
            problems.append(f"the key '{key}' has {len(values)} tokens for a vocabulary of {size}")


def _describe(gguf: GgufFile, shape: ModelShape, effort_profile: str) -> ModelFile:
    name = _one_line(gguf.metadata.get("general.name")) or VARIANT_NAMES[shape.variant]
    notes = list(gguf.notes)
    if shape.variant == "test":
        notes.append("test shape: not a published model")
    for key, expected in _EXPECTED_TOKENIZER:
        found = gguf.metadata.get(key)
        if found != expected:
            held = "missing" if found is None else f"{shown(str(found))}"
            notes.append(f"the key '{key}' is {held}, expected '{expected}': text may be tokenised wrongly")
    if effort_profile == "auto":
        from shared.text.effort import detect_profile

        general = {
            key: value
            for key, value in gguf.metadata.items()
            if key.startswith("general.") and isinstance(value, str)
        }
        effort_profile = detect_profile(general, gguf.path.name)
    gate = expert_types(gguf.tensors, 0)[0]
    bits = 4 if gate in (TensorType.Q4_K, TensorType.MXFP4) else 2
    return ModelFile(gguf, shape, name, bits, effort_profile, notes)


def _one_line(value: object) -> str:
    """A text from the file that is shown to people: one line of bounded length."""
    if not isinstance(value, str):
        return ""
    return "".join(char if char.isprintable() else " " for char in value)[:200].strip()
