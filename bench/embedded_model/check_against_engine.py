"""Does the PyTorch model compute what the engine computes? Run it whenever either changes.

`python -m bench.embedded_model.check_against_engine [CHECKPOINT]` writes the weights (of a checkpoint, or
first weights with every zero made random) to a model file, reads them back as the engine sees them, and
compares the logits of both on a long conversation: without rounding, with it, and with the indexer choosing.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from bench.embedded_model import vocabulary
from bench.embedded_model.attention import Manner
from bench.embedded_model.checkpoint import read_weights
from bench.embedded_model.conversation import Mixture, conversation
from bench.embedded_model.first_weights import first_weights
from bench.embedded_model.model import Model
from bench.embedded_model.model_file import write_model
from bench.embedded_model.rendered import tokens_of
from bench.embedded_model.shape import SHAPE
from bench.embedded_model.split import Split
from shared.model.open import ModelFile, open_model
from shared.model.reference import Activation, Reference
from shared.model.reference_state import ReferenceState
from shared.model.reference_weights import ReferenceWeights
from shared.model.routing_table import hash_experts
from shared.model.tensors import EXPERT_TYPES, tensor_table

# Both sides sum in float32, in different orders. A near tie of the router or the indexer may fall either way,
# after which that position differs: hence a share.
LIMIT = 1e-3
SHARE = 0.98


def weights_in_file(file: ModelFile) -> dict[str, torch.Tensor]:
    """The weights of a model file as the engine dequantises them."""
    held = ReferenceWeights(file.gguf, file.shape)
    weights = {}
    for spec in tensor_table(file.shape):
        if spec.name.endswith("tid2eid.weight"):
            layer = int(spec.name.split(".")[1])
            weights[spec.name] = torch.from_numpy(hash_experts(file.gguf, file.shape, layer).astype(np.int64))
        elif spec.types == EXPERT_TYPES:
            _, layer, part = spec.name.split(".")[:3]
            kind = part.split("_")[1]
            experts = [held.expert(int(layer), kind, number) for number in range(file.shape.expert_count)]
            weights[spec.name] = torch.from_numpy(np.stack(experts))
        else:
            weights[spec.name] = torch.from_numpy(held.tensor(spec.name).copy())
    return weights


def engine_logits(file: ModelFile, ids: list[int], activation: Activation) -> npt.NDArray[np.float32]:
    """Logits [n, vocabulary] of the NumPy reference, the whole prompt in one step."""
    reference = Reference(ReferenceWeights(file.gguf, file.shape), file.shape, activation)
    streams, _ = reference.forward(ids, ReferenceState(file.shape, len(ids) + 1))
    return reference.output_head(streams)


def shaken(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Every float weight moved a little, so that no zero or one hides a mistake."""
    torch.manual_seed(5)
    return {
        name: tensor + 0.1 * torch.randn(tensor.shape) if tensor.is_floating_point() else tensor
        for name, tensor in weights.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", nargs="?", type=Path)
    parser.add_argument("--tokens", type=int, default=700)
    options = parser.parse_args()
    weights = read_weights(options.checkpoint) if options.checkpoint else shaken(first_weights(SHAPE, 1))
    sample = conversation(random.Random(3), Split.HELD_OUT, Mixture(0, 0, 1, 0), options.tokens)
    ids = tokens_of(sample, vocabulary.tokenizer()).ids
    worst = 1.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_model(path, {name: tensor.numpy() for name, tensor in weights.items()}, SHAPE)
        print(f"{path.stat().st_size / 1e6:.2f} MB, {len(ids)} tokens")
        with open_model(path) as file, torch.no_grad():
            model = Model(weights_in_file(file), file.shape)
            for activation in ("float", "kv"):
                manner = Manner(rounded=activation == "kv", choosing=True)
                ours = model.logits(model.streams(torch.tensor([ids]), manner)).numpy()
                theirs = engine_logits(file, ids, activation)
                difference = np.abs(ours - theirs).max(axis=1)
                close = float((difference <= LIMIT).mean())
                same = float((ours.argmax(axis=1) == theirs.argmax(axis=1)).mean())
                print(
                    f"{activation}: largest difference of a position: median {np.median(difference):.1e}, "
                    f"{close:.1%} within {LIMIT}; same best token {same:.1%}"
                )
                worst = min(worst, close if activation == "float" else 1.0)
    return 0 if worst >= SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
