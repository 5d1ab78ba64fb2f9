"""The metadata of the new file: those of a template, and a note of the importances that were used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shared.errors import ModelFileError
from shared.gguf.mapping import refusal
from shared.gguf.reader import GgufFile
from shared.gguf.types import ValueType
from shared.gguf.values import StringArray
from shared.gguf.writer import ArrayValue, MetadataEntry
from shared.model.shape import ModelShape
from shared.model.shape_reader import check_architecture, read_shape
from shared.quantise.imatrix import Imatrix

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
