"""Cache files of the C engine: loaded, continued, written again, and one part of them recomputed."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator

import numpy as np
import pytest

from shared.kv.payload import PayloadLayout, read_payload, write_payload
from shared.model.reference_engine import ReferenceEngine, load
from tests.support.cache_files import cache_file
from tests.support.golden import golden_arrays, tiny_q2
from tests.support.limits import LONG_LIMITS, assert_kv, assert_same_best

REASONS = ["cold", "shutdown"]


@pytest.fixture(scope="module")
def engine() -> Iterator[ReferenceEngine]:
    engine = load(tiny_q2())
    yield engine
    engine.close()


@pytest.mark.parametrize("reason", REASONS)
def test_continues_a_loaded_file(reason: str, engine: ReferenceEngine) -> None:
    file = cache_file(reason)
    golden = golden_arrays(f"kv/{file.continue_file}")
    session = engine.open_session(2048)
    session.load(file.open_payload(), len(file.payload))
    loaded = int(golden["n_loaded"])
    assert session.tokens == golden["tokens"][:loaded].tolist()
    rows = [session.logits()]
    for token in golden["tokens"][loaded:].tolist():
        session.submit(token)
        rows.append(session.logits())
    logits = np.array(rows)
    np.testing.assert_array_equal(logits[0], golden["logits_kv"][0])
    assert_kv(logits, golden["logits_kv"], LONG_LIMITS)
    assert_same_best(logits.argmax(axis=1), golden["logits_kv"].argmax(axis=1), LONG_LIMITS.same_best)


@pytest.mark.parametrize("reason", REASONS)
def test_a_prompt_that_extends_the_file_evaluates_the_rest_only(reason: str, engine: ReferenceEngine) -> None:
    file = cache_file(reason)
    golden = golden_arrays(f"kv/{file.continue_file}")
    session = engine.open_session(2048)
    session.load(file.open_payload(), len(file.payload))
    tokens = golden["tokens"].tolist()
    assert session.sync(tokens) == (int(golden["n_loaded"]), len(tokens) - int(golden["n_loaded"]))
    assert_kv(session.logits()[None], golden["logits_kv"][-1:], LONG_LIMITS)


@pytest.mark.parametrize("reason", REASONS)
def test_is_written_again_byte_for_byte(reason: str, engine: ReferenceEngine) -> None:
    file = cache_file(reason)
    assert list(struct.unpack_from("<13I", file.payload)) == file.header_words
    layout = PayloadLayout(engine.shape, file.context, 128, 2048)
    state = read_payload(file.open_payload(), len(file.payload), layout)
    again = io.BytesIO()
    write_payload(again, state, layout)
    assert again.getvalue() == file.payload
    session = engine.open_session(2048)
    session.load(file.open_payload(), len(file.payload))
    assert session.snapshot() == file.payload
    assert session.payload_bytes() == len(file.payload)


def test_layer_0_rows_are_those_of_eight_bit_activations(engine: ReferenceEngine) -> None:
    """The files were filled by 8-bit arithmetic; before any rounding error can spread it is exact."""
    file = cache_file("cold")
    session = engine.open_session(2048)
    session.load(file.open_payload(), len(file.payload))
    stored = read_payload(
        file.open_payload(), len(file.payload), PayloadLayout(engine.shape, 2048, 128, 2048)
    ).layers[0]
    plain = engine.shape.head_dim - engine.shape.rotary_dim
    for activation, differing in (("actq", 0.0), ("kv", 0.1)):
        run = load(tiny_q2(), activation=activation)  # type: ignore[arg-type]
        ours = run.open_session(2048)
        ours.sync(session.tokens)
        raw = read_payload(
            io.BytesIO(ours.snapshot()), ours.payload_bytes(), PayloadLayout(run.shape, 2048, 128, 2048)
        ).layers[0]
        share = float((raw.raw[:, :plain] != stored.raw[:, :plain]).mean())
        assert share == differing if differing == 0 else share > differing
        run.close()
