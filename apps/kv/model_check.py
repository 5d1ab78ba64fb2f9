"""What a model file adds to the checks of a cache file: the layout it must have, and what its tokens say."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from shared.kv.files.cache_file import CacheFile
from shared.kv.files.header import Extension
from shared.kv.files.payload_outline import PayloadOutline
from shared.kv.payload import payload_size
from shared.model.open import ModelFile, open_model

_VISIBLE = Extension.RESPONSES_VISIBLE | Extension.THINKING_VISIBLE


@dataclass(slots=True)
class ModelFinding:
    """`other_model` says why the file belongs to another model; the rest is as in a verdict."""

    other_model: str | None = None
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class ModelCheck:
    """Compares cache files with an open model file; loads no weights."""

    def __init__(self, model: ModelFile) -> None:
        self._model = model

    @classmethod
    def open(cls, path: Path) -> ModelCheck:
        """Raises ModelFileError."""
        return cls(open_model(path))

    def close(self) -> None:
        self._model.close()

    def compare(self, file: CacheFile, text: bytes, outline: PayloadOutline | None) -> ModelFinding:
        """What the model says to a file whose `text` and `outline` were read."""
        finding = ModelFinding()
        finding.other_model = self._other_model(file, outline)
        if outline is None or finding.other_model is not None:
            return finding
        expected = payload_size(self._model.shape, outline.words.tokens, outline.words.context)
        if expected != file.header.payload_bytes:
            finding.problems.append(
                f"its payload has {file.header.payload_bytes} bytes, the model's {expected}"
            )
        if file.header.quant_bits != self._model.quant_bits:
            finding.notes.append(
                f"it was written by a model of {file.header.quant_bits}-bit experts, this one has "
                f"{self._model.quant_bits} bits"
            )
        if file.header.extensions & _VISIBLE:
            finding.notes.append("its key is what clients see, so its tokens need not render to it")
        elif self._model.tokenizer.decode(outline.tokens.tolist()) != text:
            finding.problems.append("its tokens do not render to its text")
        return finding

    def _other_model(self, file: CacheFile, outline: PayloadOutline | None) -> str | None:
        shape = self._model.shape
        if file.header.model_id != shape.model_id:
            return f"it belongs to model {file.header.model_id}, this is model {shape.model_id}"
        if outline is None:
            return None
        words = outline.words
        mine = (shape.layer_count, shape.head_dim, shape.index_dim, shape.vocabulary_size)
        if (words.layers, words.head_dim, words.index_dim, words.vocabulary) != mine:
            return "it was written for another model layout"
        window = max(1, min(shape.window, words.context))
        if words.window != window:
            return f"it has a window of {words.window} tokens where this model has {window}"
        told = zip(outline.layers, shape.compress_ratios, strict=True)
        if any(layer.ratio not in (None, ratio) for layer, ratio in told):
            return "it was written for a model whose layers have other ratios"
        return None
