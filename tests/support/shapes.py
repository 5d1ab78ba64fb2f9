"""Model shapes built by hand for tests that need no weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shared.model.known_shapes import FLASH
from shared.model.shape import ModelShape


def toy_shape(**changes: Any) -> ModelShape:
    """A very small shape; `changes` replace fields. The layer count follows the ratios."""
    small: dict[str, Any] = {
        "variant": "test",
        "embedding_width": 64,
        "vocabulary_size": 32,
        "head_count": 2,
        "head_dim": 128,
        "compress_ratios": (0, 4, 128),
    }
    small.update(changes)
    small.setdefault("layer_count", len(small["compress_ratios"]))
    return replace(FLASH, **small)
