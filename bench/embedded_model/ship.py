"""From a training state to what is shipped: the checkpoint, and the model file that comes with the program.

`python -m bench.embedded_model.ship STATE` writes both, and prints their sizes and digests. The same state
gives the same bytes. Of several states of one run the mean is shipped; one that is named twice counts twice.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from apps.model_choice import EMBEDDED_MODEL
from bench.embedded_model.export import averaged_weights, export
from bench.embedded_model.shape import SHAPE
from shared.quantise.header import imatrix_entries, template_of_checkpoint
from shared.quantise.imatrix import Imatrix
from shared.quantise.plan import make_plan
from shared.quantise.recipe import Recipe
from shared.quantise.run import Conversion, convert
from shared.quantise.safetensors import Checkpoint

CHECKPOINT = Path(__file__).with_name("checkpoint")
# Of the recipes in use the one that costs no quality here: see docs/embedded-model.md.
RECIPE = "q4"
_MOST_BYTES = 12_000_000  # of the model file: it has to fit the package


def convert_checkpoint(folder: Path, path: Path, recipe: str, imatrix: Imatrix | None = None) -> int:
    """What `ds4 quantize` does, without its command line. Returns the bytes of the new file."""
    with Checkpoint.open(folder) as checkpoint:
        model = template_of_checkpoint(folder)
        plan = make_plan(checkpoint, model.shape, Recipe(recipe))
        metadata = [*model.metadata, *(() if imatrix is None else imatrix_entries(imatrix))]
        convert(Conversion(checkpoint, metadata, plan, imatrix), path, workers=os.cpu_count() or 1)
    return path.stat().st_size


def ship(states: Sequence[Path], folder: Path, path: Path) -> tuple[int, int]:
    """Write the checkpoint of a training state, or of the mean of several, into `folder`, anew, and the model
    file to `path`. Returns the bytes of both. Raises ValueError for a file that is too large to ship."""
    weights = averaged_weights(states)
    shutil.rmtree(folder, ignore_errors=True)
    checkpoint_bytes = export(weights, SHAPE, folder)
    nbytes = convert_checkpoint(folder, path, RECIPE)
    if nbytes > _MOST_BYTES:
        raise ValueError(f"{path} has {nbytes / 1e6:.1f} MB, more than {_MOST_BYTES / 1e6:.0f}")
    return checkpoint_bytes, nbytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("states", type=Path, nargs="+", metavar="STATE", help="a training state")
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    parser.add_argument("--model", type=Path, default=EMBEDDED_MODEL)
    options = parser.parse_args()
    checkpoint_bytes, nbytes = ship(options.states, options.checkpoint, options.model)
    digest = hashlib.sha256(options.model.read_bytes()).hexdigest()
    print(f"{options.checkpoint}: {checkpoint_bytes / 1e6:.2f} MB")
    print(f"{options.model}: {nbytes / 1e6:.2f} MB, recipe {RECIPE}, SHA-256 {digest}")


if __name__ == "__main__":
    main()
