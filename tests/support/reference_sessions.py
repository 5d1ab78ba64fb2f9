"""Tokens and synced sessions for tests of the reference engine."""

from __future__ import annotations

from shared.model.reference_engine import ReferenceEngine
from shared.model.reference_session import ReferenceSession
from tests.support.golden import golden_json

TOKENS: list[int] = golden_json("prompts.json")["random"]["ids"]


def sync(engine: ReferenceEngine, tokens: list[int], context: int = 512) -> ReferenceSession:
    session = engine.open_session(context)
    session.sync(tokens)
    return session
