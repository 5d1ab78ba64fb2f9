"""A `.kv` file that one backend writes loads in the other, which goes on alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shared.kv.files.header import Reason
from shared.kv.payload import HEADER_WORDS
from shared.kv.store.store import Key
from shared.session import Engine, Session
from tests.cuda.models import engine as cuda_engine
from tests.cuda.models import needs_simulator
from tests.support.golden import golden_logits
from tests.support.restore_run import open_store, restored

pytest.importorskip("mlx.core")

from tests.support.mlx_models import engine as mlx_engine

pytestmark = [needs_simulator, pytest.mark.long]
# Windows of ratio 4 have ended and one is unfinished. With the tokens after it that of ratio 128 ends, and
# the raw window is full.
PROMPT = golden_logits("tiny-q2", "medium")["tokens"].tolist()[:122]
WINDOW_ENDS = [5, 6, 7, 8, 11]
CONTEXT = 300
HEADER = 4 * HEADER_WORDS  # bytes that also tell the sizes of a writer's own buffers


def handed_over(session: Session, writer: Engine, reader: Engine, folder: Path) -> Session:
    """A session of `reader` in the state that the store of `writer` kept of `session`."""
    text = writer.tokenizer.decode(session.tokens)
    store = open_store(folder / "kv", writer)
    assert store.save(session, Key(text), Reason.COLD).stored
    store.close()
    store = open_store(folder / "kv", reader)
    taken = restored(store, text, reader.open_session(CONTEXT))
    store.close()
    return taken


def check_alike(session: Session, other: Session) -> None:
    assert other.tokens == session.tokens
    assert other.snapshot()[HEADER:] == session.snapshot()[HEADER:]
    for token in (9, 700, 3):
        session.submit(token)
        other.submit(token)
        np.testing.assert_allclose(other.logits(), session.logits(), rtol=0, atol=2e-3)


def test_files_go_from_mlx_to_cuda_and_back(tmp_path: Path) -> None:
    begun = mlx_engine().open_session(CONTEXT)
    begun.sync(PROMPT)
    taken = handed_over(begun, mlx_engine(), cuda_engine(), tmp_path / "to-cuda")
    check_alike(begun, taken)
    for token in WINDOW_ENDS:
        taken.submit(token)
    check_alike(taken, handed_over(taken, cuda_engine(), mlx_engine(), tmp_path / "to-mlx"))
