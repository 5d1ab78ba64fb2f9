"""The shipped model file is what the product's own converter makes of the shipped checkpoint."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from apps import cli
from apps.model_choice import EMBEDDED_MODEL
from bench.embedded_model.shape import SHAPE
from bench.embedded_model.ship import CHECKPOINT, RECIPE
from shared.model.open import open_model


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="the bytes are promised for Linux x86-64",
)
def test_the_shipped_file_is_made_from_the_shipped_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "made.gguf"
    arguments = ["quantize", "--hf", str(CHECKPOINT), "--recipe", RECIPE, "--out", str(path), "-t", "3"]
    assert cli.main(arguments) == 0
    assert path.read_bytes() == EMBEDDED_MODEL.read_bytes()


def test_it_fits_the_package_and_has_the_shape_of_the_recipe() -> None:
    assert EMBEDDED_MODEL.stat().st_size <= 12_000_000
    with open_model(EMBEDDED_MODEL) as file:
        assert file.shape == SHAPE
        assert file.effort_profile == "preview"
