"""The controls of thinking, in every spelling that clients use."""

from __future__ import annotations

from typing import Any

import pytest

from apps.serve.thinking import ThinkingControls, ThinkingDefaults, choose_effort
from shared.errors import RequestError

_ON = ThinkingDefaults(thinking=True, effort="high", profile="official", context=32768, pro=False)


def _effort(body: dict[str, Any], defaults: ThinkingDefaults = _ON) -> str:
    controls = ThinkingControls.of(body, body.get("reasoning_effort"))
    return choose_effort(controls, body.get("model"), defaults)[0]


@pytest.mark.parametrize(
    ("body", "effort"),
    [
        ({}, "high"),
        ({"thinking": True}, "high"),
        ({"thinking": False}, "none"),
        ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "high"),
        ({"thinking": {"type": "disabled"}}, "none"),
        ({"thinking": {"type": "adaptive"}}, "high"),
        ({"thinking": {"type": 7}}, "high"),
        ({"thinking": "yes"}, "high"),
        ({"think": False}, "none"),
        ({"think": False, "thinking": True}, "high"),
        ({"thinking": True, "think": False}, "none"),
        ({"reasoning_effort": "none"}, "none"),
        ({"reasoning_effort": None}, "high"),
        ({"reasoning_effort": "minimal"}, "low"),
        ({"reasoning_effort": "medium"}, "high"),
        ({"reasoning_effort": "max"}, "max"),
        ({"model": "deepseek-chat"}, "none"),
        ({"model": "deepseek-reasoner"}, "high"),
        ({"model": "deepseek-chat", "reasoning_effort": "high"}, "none"),
        ({"model": "deepseek-chat", "thinking": None}, "high"),
        ({"model": "deepseek-chat", "think": None}, "high"),
        ({"model": "deepseek-reasoner", "thinking": {"type": "disabled"}, "reasoning_effort": "max"}, "none"),
    ],
)
def test_requests_choose_their_effort(body: dict[str, Any], effort: str) -> None:
    assert _effort(body) == effort


def test_the_server_default_can_be_off_and_a_request_turns_it_on() -> None:
    off = ThinkingDefaults(thinking=False, effort="low", profile="official", context=32768, pro=False)
    assert _effort({}, off) == "none"
    assert _effort({"thinking": True}, off) == "low"
    assert _effort({"model": "deepseek-reasoner"}, off) == "low"


def test_an_unknown_effort_is_refused_even_when_thinking_is_off() -> None:
    with pytest.raises(RequestError, match="ultra"):
        _effort({"reasoning_effort": "ultra", "thinking": False})


def test_preview_checkpoints_get_max_only_with_a_large_context() -> None:
    small = ThinkingDefaults(thinking=True, effort="high", profile="preview", context=32768, pro=False)
    controls = ThinkingControls.of({}, "max")
    effort, note = choose_effort(controls, None, small)
    assert effort == "high"
    assert note is not None


def test_a_dialect_names_its_own_switches() -> None:
    controls = ThinkingControls.of({"think": False, "thinking": True}, None, switches=("thinking",))
    assert controls == ThinkingControls(True, True, None)
    assert ThinkingControls.of({"think": False}, None, switches=("thinking",)).enabled is None


@pytest.mark.parametrize(("effort", "chosen"), [("high", "high"), ("minimal", "low"), (None, "none")])
def test_an_effort_alone_cancels_the_meaning_of_a_name(effort: str | None, chosen: str) -> None:
    controls = ThinkingControls.of_effort(effort)
    assert choose_effort(controls, "deepseek-chat", _ON) == (chosen, None)
