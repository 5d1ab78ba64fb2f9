"""A state that a new process reads from a cache file goes on bit for bit as if it had never been saved."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from shared.kv.files.header import Reason
from shared.kv.store.store import Key
from shared.session import Session
from tests.support.golden import golden_logits

pytest.importorskip("mlx.core")

from tests.support.mlx_models import engine
from tests.support.restore_run import STEPS, Order, continuation, open_store

# Around the ends of a window of 4, of 128, of the raw window and of a whole number of windows.
LENGTHS = [1, 3, 4, 5, 127, 128, 129, 511, 512, 513]


def prompt(length: int) -> list[int]:
    golden: list[int] = golden_logits("tiny-q2", "random")["tokens"].tolist()
    more = np.random.default_rng(9).integers(0, 1280, max(0, length - len(golden)))
    return (golden + more.tolist())[:length]


def synced(name: str, length: int, context: int) -> Session:
    session = engine(name).open_session(context)
    session.sync(prompt(length))
    return session


def check_restores(name: str, lengths: Sequence[int], folder: Path) -> None:
    context = max(lengths) + STEPS + 10
    texts = [engine(name).tokenizer.decode(prompt(length)) for length in lengths]
    store = open_store(folder / "kv", engine(name))
    for length, text in zip(lengths, texts, strict=True):
        session = synced(name, length, context)
        assert store.save(session, Key(text), Reason.COLD).stored
        session.close()
    store.close()
    order = Order(
        str(folder / "kv"), name, context, [text.hex() for text in texts], str(folder / "results.npz")
    )
    subprocess.run(
        [sys.executable, "-m", "tests.support.restore_run", json.dumps(asdict(order))],
        check=True,
        cwd=Path(__file__).parents[2],
    )
    with np.load(order.results) as results:
        for number, length in enumerate(lengths):
            session = synced(name, length, context)
            tokens, logits = continuation(session)
            session.close()
            assert results[f"kept_{number}"] == length
            assert results[f"tokens_{number}"].tolist() == tokens, length
            np.testing.assert_array_equal(results[f"logits_{number}"], logits, err_msg=str(length))


def test_restores_around_every_window(tmp_path: Path) -> None:
    check_restores("tiny-q2", LENGTHS, tmp_path)


@pytest.mark.long
def test_restores_a_model_without_plain_layers(tmp_path: Path) -> None:
    check_restores("tiny-pro-q2", [3, 130], tmp_path)


@pytest.mark.long
def test_restores_beyond_a_whole_chunk(tmp_path: Path) -> None:
    check_restores("tiny-q2", [4097], tmp_path)
