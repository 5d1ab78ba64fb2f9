"""Why a prompt can or cannot go on from the live tokens."""

from __future__ import annotations

import pytest

from apps.serve.live_match import LiveMatch


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
