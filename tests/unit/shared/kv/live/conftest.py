"""Talks over scripted sessions, closed when a test ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shared.model.reference_engine import ReferenceEngine, load
from tests.support.golden import tiny_q2
from tests.support.live_talk import LiveTalk, TalkMaker, scripted_sessions


@pytest.fixture
def talks() -> Iterator[TalkMaker]:
    """Makes a `LiveTalk`; `script` and the sizes go to the scripted engine."""
    opened: list[LiveTalk] = []

    def make(
        slots: int = 1, *, context: int = 16384, script: dict[str, Any] | None = None, **options: Any
    ) -> LiveTalk:
        sessions, tokenizer = scripted_sessions(slots, context, **(script or {}))
        opened.append(LiveTalk(sessions, tokenizer, **options))
        return opened[-1]

    yield make
    for talk in opened:
        talk.close()


@pytest.fixture
def talk(talks: TalkMaker) -> LiveTalk:
    """One slot, no disk."""
    return talks()


@pytest.fixture(scope="package")
def reference() -> Iterator[ReferenceEngine]:
    """The reference engine on the small built-in model."""
    engine = load(tiny_q2(), prefill_chunk=64)
    yield engine
    engine.close()
