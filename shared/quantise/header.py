"""The metadata of the new file: from the checkpoint or a template, and a note of the importances used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from shared.errors import ModelFileError
from shared.gguf.mapping import refusal
from shared.gguf.reader import GgufFile
from shared.gguf.types import ValueType
from shared.gguf.values import StringArray
from shared.gguf.writer import ArrayValue, MetadataEntry, write_gguf
from shared.model.shape import ModelShape
from shared.model.shape_reader import check_architecture, read_shape
from shared.quantise.hf_config import CONFIG, checkpoint_metadata
from shared.quantise.imatrix import Imatrix
from shared.quantise.safetensors import CheckpointError

# Notes of how the template's own weights were made.
_OF_ITS_WEIGHTS = ("quantize.imatrix.", "general.file_type")


@dataclass(frozen=True, slots=True)
class Template:
    """A model's shape and the metadata that its file carries, the vocabulary among them."""

    shape: ModelShape
    metadata: tuple[MetadataEntry, ...]


def read_template(path: Path) -> Template:
    """Shape and metadata of a model file; its tensors do not matter, and need not be there. Raises
    ModelFileError."""
    problems: list[str] = []
    with GgufFile.open(path, problems=problems) as gguf:
        shape = read_shape(gguf, problems) if check_architecture(gguf, problems) else None
        if problems or shape is None:
            raise refusal(path, problems)
        kept = [key for key in gguf.metadata if not key.startswith(_OF_ITS_WEIGHTS)]
        return Template(shape, tuple(_entry(gguf, key) for key in kept))


def template_of_checkpoint(folder: Path) -> Template:
    """The same from the `config.json` and `tokenizer.json` of a checkpoint. Raises CheckpointError.

    They are judged as every model file is: by writing one, without tensors, and reading it.
    """
    metadata = checkpoint_metadata(folder)
    with TemporaryDirectory() as temporary:
        path = Path(temporary) / "header.gguf"
        write_gguf(path, metadata, [])
        try:
            return read_template(path)
        except ModelFileError as error:
            reason = error.problems[0] if error.problems else str(error)
            raise CheckpointError(f"{folder / CONFIG} describes no model that can be run: {reason}") from None


def imatrix_entries(imatrix: Imatrix) -> Sequence[MetadataEntry]:
    """What a file says about the importances it was made with. Spec: model §8."""
    prefix = "quantize.imatrix."
    return (
        (prefix + "file", ValueType.STRING, imatrix.path.name),
        (prefix + "dataset", ValueType.STRING, imatrix.dataset),
        (prefix + "entries_count", ValueType.INT32, len(imatrix.entries)),
        (prefix + "chunks_count", ValueType.INT32, imatrix.chunks),
    )


def _entry(gguf: GgufFile, key: str) -> MetadataEntry:
    value, kind, element = gguf.metadata[key], gguf.metadata_type(key), gguf.element_type(key)
    if element is None:
        return key, kind, value
    if isinstance(value, StringArray):
        return key, kind, ArrayValue(element, list(value))
    if isinstance(value, np.ndarray):
        return key, kind, ArrayValue(element, value.tolist())
    raise ModelFileError(f"the template's key {key!r} holds arrays of arrays, which cannot be copied")
