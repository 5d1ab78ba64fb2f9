"""The shipped model means the same to every engine: logits of a held-out conversation, MLX beside NumPy."""

from __future__ import annotations

import random

import numpy as np
import pytest

from apps.model_choice import EMBEDDED_MODEL
from bench.embedded_model.conversation import Mixture, conversation
from bench.embedded_model.rendered import tokens_of
from bench.embedded_model.shape import SHAPE
from bench.embedded_model.split import Split
from shared.model.reference_engine import load as load_reference
from shared.session import Engine

# Of logits that reach 20; both sides sum in float32, in different orders.
LIMIT = 1e-3


def rows(engine: Engine, ids: list[int]) -> np.ndarray:
    """Logits behind a prompt, and behind each of its last tokens, which are decoded one by one."""
    session = engine.open_session(len(ids) + 1)
    found = []
    session.sync(ids[:-4])
    for token in ids[-4:]:
        found.append(session.logits())
        session.submit(token)
    found.append(session.logits())
    session.close()
    return np.stack(found)


def test_mlx_and_the_reference_agree() -> None:
    pytest.importorskip("mlx.core")
    from ds4mlx.engine import load

    reference = load_reference(EMBEDDED_MODEL, activation="float")
    talk = conversation(random.Random(4), Split.HELD_OUT, Mixture(0, 0, 1, 0), 700)
    ids = tokens_of(talk, reference.tokenizer).ids
    assert len(ids) > 4 * SHAPE.index_top_k  # so that the indexer chooses
    mlx = load(EMBEDDED_MODEL, activation="float")
    ours, theirs = rows(mlx, ids), rows(reference, ids)
    mlx.close()
    reference.close()
    assert np.abs(ours - theirs).max() <= LIMIT
    assert (ours.argmax(axis=1) == theirs.argmax(axis=1)).all()
