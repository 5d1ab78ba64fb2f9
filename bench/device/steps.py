"""The steps of a run, each in a process of its own: `python -m bench.device.steps NAME --to FILE.json`.

A step that fails, or is stopped, takes no other along, and its file holds what it had found until then. Must
not know: how anything is measured.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import cast

from bench.device.lengths import ON_A_GPU, SIMULATED, Lengths
from bench.device.results import Results
from shared.model.reference import Activation

# In order, and seconds that each may take: together nine minutes.
SECONDS = {"copy": 25, "contracts": 150, "model-actq": 170, "model-kv": 140, "load": 45}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=SECONDS)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--files", nargs="*", default=[])
    given = parser.parse_args()
    results = Results(given.to)
    if given.name == "contracts":
        from bench.device import contracts

        files = given.files or contracts.test_files()
        contracts.run(files, SECONDS["contracts"] - 10, results, simulate=given.simulate)
        return
    run(given.name, results, simulate=given.simulate, layers=given.layers)


def run(name: str, results: Results, *, simulate: bool, layers: int) -> None:
    """One of the steps that use the GPU themselves. Of `layers` 0 is as many as fit."""
    from bench.device import loading, synthetic
    from bench.device.gpu import Gpu, copy_speed
    from bench.device.recipe import with_layers
    from shared.model.known_shapes import FLASH
    from shared.model.open import open_model
    from tests.support.golden import tiny_q2

    lengths: Lengths = SIMULATED if simulate else ON_A_GPU
    gpu = Gpu.open(simulate=simulate)
    shape = FLASH
    if simulate:
        with open_model(tiny_q2()) as file:
            shape = file.shape
    if name == "copy":
        results.put("gpu", value=gpu.name)
        results.put("GB/s", value=round(copy_speed(gpu, lengths.copy_bytes) / 1e9, 1))
    elif name == "load":
        loading.run(gpu, shape, lengths.loaded_layers, results)
    else:
        count = layers or (shape.layer_count if simulate else synthetic.fitting(gpu, shape, lengths))
        activation = cast("Activation", name.removeprefix("model-"))
        synthetic.run(gpu, with_layers(shape, count), activation, lengths, results)


if __name__ == "__main__":
    main()
