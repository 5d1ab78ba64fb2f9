"""Why a prompt can or cannot go on from the live tokens."""

from __future__ import annotations

import pytest

from apps.serve.live_match import LiveMatch, closest_match
from shared.kv.live.slots import Slots
from tests.support.scripted import scripted


@pytest.mark.parametrize(
    ("live", "prompt", "common", "reason"),
    [
        (0, 5, 0, "no-live-checkpoint"),
        (5, 9, 5, "live-prefix-match"),
        (5, 5, 5, "live-prefix-match"),
        (9, 5, 5, "incoming-prompt-shorter-than-live-checkpoint"),
        (9, 5, 4, "token-mismatch"),
        (5, 9, 0, "token-mismatch"),
    ],
)
def test_each_case_has_its_word(live: int, prompt: int, common: int, reason: str) -> None:
    match = LiveMatch(live, prompt, common)
    assert match.reason == reason
    assert match.reusable == (reason == "live-prefix-match")


def test_of_several_sessions_the_one_with_most_in_common_is_compared() -> None:
    engine = scripted(["a"])
    sessions = [engine.open_session(100) for _ in range(4)]
    for session, text in zip(sessions, (b"other", b"same, b", b"same, but longer"), strict=False):
        session.sync(list(text))
    slots = Slots(sessions, engine.tokenizer)
    match, closest = closest_match(slots, list(b"same, c"))
    assert (match, closest) == (LiveMatch(16, 7, 6), sessions[2])
    assert closest_match(Slots(sessions[3:], engine.tokenizer), [1])[0] == LiveMatch(0, 1, 0)
