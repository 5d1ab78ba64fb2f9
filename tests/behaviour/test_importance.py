"""Importances lower the loss of the smallest recipe: two bits for the experts of the embedded model's own
checkpoint, with and without them."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from apps import cli
from bench.embedded_model import vocabulary
from bench.embedded_model.conversation import Mixture, conversation
from bench.embedded_model.rendered import segments_of, tokens_of
from bench.embedded_model.split import Split
from shared.model.open import open_model
from shared.model.reference import Reference
from shared.model.reference_state import ReferenceState
from shared.model.reference_weights import ReferenceWeights
from shared.quantise.imatrix_reading import MARKER
from shared.text.segments import join
from tests.support.embedded_model import checkpoint_folder

Array = npt.NDArray[np.float64]

_READ, _SCORED = 32, 24  # conversations of training text, and held-out ones
_MIXTURE = Mixture(engine=1, numbers=1, recall=1, tools=1)


def _run(*words: str | Path) -> None:
    assert cli.main([str(word) for word in words]) == 0


def _write_dataset(path: Path) -> None:
    source = random.Random(5)
    with path.open("wb") as file:
        for number in range(_READ):
            talk = conversation(source, Split.TRAIN, _MIXTURE, (256, 1024)[number % 4 == 0])
            file.write(MARKER + b"\n" + join(segments_of(talk)) + b"\n")


def _log_shares(path: Path) -> Array:
    """The logarithms of the shares that a model gives to each token, float64 [n, vocabulary], wherever it has
    to write in held-out talks."""
    tokenizer, source = vocabulary.tokenizer(), random.Random(6)
    found = []
    with open_model(path) as file:
        reference = Reference(ReferenceWeights(file.gguf, file.shape), file.shape)
        for _ in range(_SCORED):
            talk = tokens_of(conversation(source, Split.HELD_OUT, _MIXTURE, 256), tokenizer)
            own = np.nonzero(talk.own)[0]
            streams, _ = reference.forward(talk.ids, ReferenceState(file.shape, len(talk.ids) + 1))
            rows = reference.output_head(streams[own - 1]).astype(np.float64)
            rows -= rows.max(axis=1, keepdims=True)
            found.append(rows - np.log(np.exp(rows).sum(axis=1, keepdims=True)))
    return np.concatenate(found)


@pytest.mark.long
def test_importances_lower_the_loss_of_two_bits(tmp_path: Path) -> None:
    """The loss on what the checkpoint itself would write: every next token counts by the share that the
    checkpoint gives it. On single tokens that were drawn, two bits cost less than the luck of the draw."""
    checkpoint, importance = checkpoint_folder(), tmp_path / "importance.dat"
    full = tmp_path / "full.gguf"
    _run("quantize", "--hf", checkpoint, "--out", full, "--recipe", "mxfp4")
    _write_dataset(tmp_path / "text")
    reading = ["--dataset", tmp_path / "text", "-o", importance, "--ctx", "2048"]
    _run("imatrix", "-m", full, "--backend", "reference", *reading)
    wanted = np.exp(_log_shares(full))
    loss = {}
    for name, more in (("plain", []), ("weighted", ["--imatrix", importance, "--imatrix-strict"])):
        made = tmp_path / f"{name}.gguf"
        _run("quantize", "--hf", checkpoint, "--out", made, "--recipe", "q2", *more)
        loss[name] = float(-(wanted * _log_shares(made)).sum(axis=1).mean())
    least = float(-(wanted * np.log(np.maximum(wanted, 1e-300))).sum(axis=1).mean())
    assert least < loss["weighted"], loss
    assert loss["weighted"] - least < 0.95 * (loss["plain"] - least), (least, loss)
