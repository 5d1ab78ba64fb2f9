"""Controls of the reference: what each leaves out, that nothing else changes, that lots are repeatable."""

import numpy as np
import pytest

from shared.model.reference import Reference
from shared.model.reference_engine import load
from tests.support.golden import tiny_q2
from tests.support.reference_sessions import TOKENS

# More than 16 finished rows of four tokens: the indexer of the tiny model has to choose.
PROMPT = TOKENS[:90]


@pytest.fixture(scope="module")
def engine():
    return load(tiny_q2())


def _plain(engine, tokens=PROMPT):
    session = engine.open_session(128)
    session.sync(tokens)
    return session.logits()


def _controlled(engine, control, tokens=PROMPT, quantum=None):
    session = engine.open_controlled_session(128, control)
    session.sync(tokens, quantum=quantum)
    return session.logits()


def test_masked_compression_reads_no_compressed_row(engine, monkeypatch):
    masked = _controlled(engine, "masked-compression")
    assert np.abs(masked - _plain(engine)).max() > 0.01
    # The first row is finished with the fourth token.
    np.testing.assert_array_equal(
        _controlled(engine, "masked-compression", PROMPT[:3]), _plain(engine, PROMPT[:3])
    )
    compress = Reference.compress

    def other_rows(self, *arguments):
        rows, frontier = compress(self, *arguments)
        return -3 * rows, frontier

    monkeypatch.setattr(Reference, "compress", other_rows)
    np.testing.assert_array_equal(_controlled(engine, "masked-compression"), masked)


def test_a_random_indexer_does_not_look_at_its_rows(engine, monkeypatch):
    by_lot = _controlled(engine, "random-indexer")
    assert np.abs(by_lot - _plain(engine)).max() > 0.01
    # With 16 rows there is nothing to choose.
    few = PROMPT[:64]
    np.testing.assert_array_equal(_controlled(engine, "random-indexer", few), _plain(engine, few))
    monkeypatch.setattr(Reference, "_round_index", lambda self, rows: np.zeros_like(rows))
    np.testing.assert_array_equal(_controlled(engine, "random-indexer"), by_lot)


def test_lots_are_the_same_in_every_run_and_in_steps_of_any_size():
    """Without the model's own rounding, in which the last bits of another step size make whole steps."""
    engine = load(tiny_q2(), activation="float")
    by_lot = _controlled(engine, "random-indexer")
    np.testing.assert_array_equal(_controlled(engine, "random-indexer"), by_lot)
    np.testing.assert_allclose(_controlled(engine, "random-indexer", quantum=7), by_lot, rtol=0, atol=1e-4)
