"""Cache files of the C engine in a directory of ours: found by their text, loaded, continued like there."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from shared.kv.files.header import Reason
from shared.model.reference_engine import load
from shared.session import Engine
from tests.support.cache_files import cache_file
from tests.support.golden import cache_folder, golden_arrays, golden_json, tiny_q2
from tests.support.limits import LONG_LIMITS, assert_kv, assert_same_best
from tests.support.restore_run import load_mlx, open_store, restored

CONTEXT = 2048


@pytest.fixture(scope="module", params=["reference", "mlx"])
def engine(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    if request.param == "mlx":
        pytest.importorskip("mlx.core")
    engine = load(tiny_q2()) if request.param == "reference" else load_mlx("tiny-q2")
    yield engine
    engine.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Both files as the other engine left them: nothing beside them."""
    for entry in golden_json("kv/kv.json")["files"]:
        shutil.copy(cache_folder() / entry["file"], tmp_path)
    return tmp_path


@pytest.mark.parametrize("reason", ["cold", "shutdown"])
def test_continues_like_the_engine_that_wrote_it(reason: str, directory: Path, engine: Engine) -> None:
    stored = cache_file(reason)
    golden = golden_arrays(f"kv/{stored.continue_file}")
    store = open_store(directory, engine)
    session = restored(store, stored.text + b" and more", engine.open_session(CONTEXT))
    kept = int(golden["n_loaded"])
    assert session.tokens == golden["tokens"][:kept].tolist()
    rows = [session.logits()]
    for token in golden["tokens"][kept:].tolist():
        session.submit(token)
        rows.append(session.logits())
    logits = np.array(rows)
    np.testing.assert_array_equal(logits[0], golden["logits_kv"][0])
    assert_kv(logits, golden["logits_kv"], LONG_LIMITS)
    assert_same_best(logits.argmax(axis=1), golden["logits_kv"].argmax(axis=1), LONG_LIMITS.same_best)
    session.close()
    store.close()


def test_the_longest_of_them_comes_first_and_both_stay(directory: Path, engine: Engine) -> None:
    prompt = cache_file("shutdown").text + b"more"
    before = {path.name: path.read_bytes()[48:] for path in directory.glob("*.kv")}
    store = open_store(directory, engine)
    found = store.find(prompt, CONTEXT)
    assert [file.header.reason for file in found] == [Reason.SHUTDOWN, Reason.COLD]
    restored(store, prompt, engine.open_session(CONTEXT)).close()
    again = store.find(prompt, CONTEXT)[0]
    assert again.header.hits == found[0].header.hits + 1
    store.close()
    assert {path.name: path.read_bytes()[48:] for path in directory.glob("*.kv")} == before
