"""Scores stand before the delta whose text they are of."""

from __future__ import annotations

from shared.text.events import TextDelta, TextScores, ThinkingDelta, TokenScore, ToolStart
from shared.text_scores import ScoredText

A, B, C = (TokenScore(letter, -1.0) for letter in (b"a", b"b", b"c"))


def test_each_channel_gets_its_own() -> None:
    scored = ScoredText()
    scored.add(A, thinking=True)
    scored.add(B, thinking=False)
    scored.add(C, thinking=False)
    start = ToolStart(0, "id", "name")
    events = scored.attach([TextDelta("b"), ThinkingDelta("a"), TextDelta("c"), start])
    assert events == [
        TextScores(False, (B, C)),
        TextDelta("b"),
        TextScores(True, (A,)),
        ThinkingDelta("a"),
        TextDelta("c"),
        start,
    ]


def test_a_stop_string_takes_its_tokens_along() -> None:
    for length, kept in ((0, (A, B, C)), (1, (A, B)), (2, (A,)), (3, ()), (9, ())):
        scored = ScoredText()
        for token in (A, B, C):
            scored.add(token, thinking=False)
        scored.cut(length, thinking=False)
        scored.cut(length, thinking=True)
        assert scored.attach([TextDelta("x")])[:-1] == ([TextScores(False, kept)] if kept else [])
    scored = ScoredText()
    scored.add(TokenScore(b"oEND", 0.0), thinking=False)
    scored.cut(3, thinking=False)
    assert len(scored.attach([TextDelta("o")])) == 2


def test_what_has_no_text_yet_waits_and_what_never_has_is_dropped() -> None:
    scored = ScoredText()
    scored.add(A, thinking=True)
    scored.add(B, thinking=False)
    assert scored.attach([]) == []
    assert scored.attach([TextDelta("b")]) == [TextScores(False, (B,)), TextDelta("b")]
    scored.drop(thinking=True)
    assert scored.attach([ThinkingDelta("x")]) == [ThinkingDelta("x")]
