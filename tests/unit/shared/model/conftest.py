"""The reference engine on the small built-in model, for tests of its sessions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared.model.reference_engine import ReferenceEngine, load
from shared.model.reference_session import ReferenceSession
from tests.support.golden import tiny_q2


@pytest.fixture(scope="module")
def engine() -> Iterator[ReferenceEngine]:
    engine = load(tiny_q2(), prefill_chunk=64)
    yield engine
    engine.close()


@pytest.fixture
def session(engine: ReferenceEngine) -> Iterator[ReferenceSession]:
    session = engine.open_session(512)
    yield session
    session.close()
