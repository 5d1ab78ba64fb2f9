"""Undo, marks, snapshots: going back on the MLX session leaves no trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shared.errors import PayloadError, SessionInvalid
from shared.kv.payload import HEADER_WORDS
from tests.support.golden import cache_folder, golden_arrays, golden_json, golden_logits
from tests.support.limits import LONG_LIMITS, differences

mx = pytest.importorskip("mlx.core")

from tests.support.mlx_models import engine  # noqa: E402

LONG = pytest.mark.long
TOKENS: list[int] = golden_logits("tiny-q2", "random")["tokens"].tolist()


def open_session(context: int = 400, **settings: Any) -> Any:
    return engine(**settings).open_session(context)


def synced(length: int, context: int = 400) -> Any:
    session = open_session(context)
    session.sync(TOKENS[:length])
    return session


@pytest.mark.parametrize("position", [1, 3, 4, 5, 7, 8, 63, 126, 127, 128, 129, 131, 132, 255, 256])
def test_undo_is_bit_exact(position: int) -> None:
    session = synced(position)
    before = session.snapshot()
    session.submit(TOKENS[position])
    after = session.snapshot()
    session.undo()
    assert session.tokens == TOKENS[:position]
    assert session.snapshot() == before
    session.submit((TOKENS[position] + 1) % 1280)
    session.undo()
    session.submit(TOKENS[position])
    assert session.snapshot() == after


def test_undo_works_once_and_only_after_a_submit() -> None:
    session = synced(5)
    with pytest.raises(SessionInvalid):
        session.undo()
    session.submit(1)
    session.undo()
    with pytest.raises(SessionInvalid):
        session.undo()
    session.submit(1)
    session.sync([*TOKENS[:5], 1, 2])
    with pytest.raises(SessionInvalid):
        session.undo()


@pytest.mark.parametrize("position", [2, 6, 127, *(pytest.param(p, marks=LONG) for p in (4, 129, 133, 256))])
def test_rewind_is_bit_exact(position: int) -> None:
    session = synced(position)
    before, mark = session.snapshot(), session.mark()
    assert mark.position == position
    session.sync(TOKENS[: position + 140])
    session.submit(3)
    session.rewind(mark)
    assert session.tokens == TOKENS[:position]
    assert session.snapshot() == before
    other = [7] * 9
    session.sync([*TOKENS[:position], *other])
    session.rewind(mark)
    session.sync(TOKENS[: position + 140])
    fresh = synced(position)
    fresh.sync(TOKENS[: position + 140])
    assert session.snapshot() == fresh.snapshot()


def test_a_mark_tells_what_it_holds() -> None:
    session = synced(3)
    ids_and_counts = 4 * (HEADER_WORDS + 3) + 8 * engine().shape.layer_count
    # Three tokens have no compressed row yet: all else of a payload is what later steps overwrite.
    assert session.mark().nbytes == session.payload_bytes() - ids_and_counts


def test_marks_end_with_their_past() -> None:
    session = synced(10)
    early = session.mark()
    session.submit(1)
    late = session.mark()
    session.rewind(early)
    with pytest.raises(SessionInvalid):
        session.rewind(late)
    session.submit(1)
    undone = session.mark()
    session.undo()
    with pytest.raises(SessionInvalid):
        session.rewind(undone)
    session.sync(TOKENS[1:5])
    with pytest.raises(SessionInvalid):
        session.rewind(early)
    with pytest.raises(SessionInvalid):
        session.rewind(synced(3).mark())


@pytest.mark.parametrize("position", [1, 4, 6, 127, 130, 260])
def test_a_snapshot_continues_bit_exactly(position: int) -> None:
    session, other = synced(position), synced(30, context=500)
    snapshot = session.snapshot()
    assert len(snapshot) == session.payload_bytes()
    other.restore(snapshot)
    assert other.tokens == TOKENS[:position]
    for token in (5, 6, 7, 8, 9):
        session.submit(token)
        other.submit(token)
        assert np.array_equal(session.logits(), other.logits())


def test_a_damaged_snapshot_leaves_an_invalid_session_that_recovers() -> None:
    session = synced(30)
    snapshot = session.snapshot()
    with pytest.raises(PayloadError):
        session.restore(snapshot[:-1])
    assert session.position == 0
    with pytest.raises(SessionInvalid):
        session.logits()
    session.sync(TOKENS[:30])
    assert session.snapshot() == snapshot


@pytest.mark.parametrize("kind", ["cold", "shutdown"])
def test_cache_files_of_the_original_engine_continue(kind: str) -> None:
    golden = golden_arrays(f"kv/continue-{kind}.npz")
    entry = next(e for e in golden_json("kv/kv.json")["files"] if e["tokens"] == int(golden["n_loaded"]))
    content = (cache_folder() / entry["file"]).read_bytes()
    text_bytes = int.from_bytes(content[48:52], "little")
    payload = int.from_bytes(content[40:48], "little")
    start = 52 + text_bytes
    session = open_session(2048)
    session.restore(content[start : start + payload])
    rows = [session.logits()]
    for token in golden["tokens"][int(golden["n_loaded"]) :].tolist():
        session.submit(token)
        rows.append(session.logits())
    found = differences(np.stack(rows), golden["logits_kv"])
    assert found[0] == 0
    assert np.median(found) <= LONG_LIMITS.median
    assert found.max() <= LONG_LIMITS.largest
