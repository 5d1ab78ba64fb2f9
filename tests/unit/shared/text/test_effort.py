"""Effort levels, their texts, and which generation a checkpoint is of."""

from __future__ import annotations

import pytest

from shared.errors import RequestError
from shared.text.effort import REQUESTABLE, Effort, detect_profile, effort_text, resolve_effort

ENOUGH = 393_216


@pytest.mark.parametrize(
    ("requested", "flash", "pro"),
    [
        (None, "high", "high"),
        ("none", "none", "none"),
        ("minimal", "low", "low"),
        ("low", "low", "low"),
        ("medium", "high", "high"),
        ("high", "high", "high"),
        ("xhigh", "high", "max"),
        ("max", "max", "max"),
    ],
)
@pytest.mark.parametrize("profile", ["preview", "official"])
def test_levels(requested: str | None, flash: Effort, pro: Effort, profile: str) -> None:
    assert resolve_effort(requested, profile, ENOUGH) == (flash, None)
    assert resolve_effort(requested, profile, ENOUGH, pro=True) == (pro, None)


@pytest.mark.parametrize(("requested", "pro"), [("max", False), ("xhigh", True)])
def test_preview_needs_a_large_context_for_max(requested: str, pro: bool) -> None:
    effort, note = resolve_effort(requested, "preview", ENOUGH - 1, pro=pro)
    assert effort == "high"
    assert note is not None
    assert "393216" in note
    assert "\n" not in note
    assert resolve_effort(requested, "official", 4096, pro=pro) == ("max", None)


@pytest.mark.parametrize("requested", ["ultra", "", "MAX"])
def test_an_unknown_level_is_refused(requested: str) -> None:
    with pytest.raises(RequestError, match="xhigh") as refusal:
        resolve_effort(requested, "preview", ENOUGH)
    assert refusal.value.status == 400
    assert refusal.value.param == "reasoning_effort"
    assert requested not in REQUESTABLE


def test_low_and_high_are_the_same_for_preview() -> None:
    assert effort_text("preview", "low") == effort_text("preview", "high") == ""


@pytest.mark.parametrize(
    "name",
    [
        "DeepSeek-V4-Flash-IQ2XXS-w2Q2K-chat-v2-imatrix-0731.gguf",
        "DeepSeek-V4-Pro-0813-Q4.gguf",
        "0731.gguf",
        "DeepSeek V4 Flash (0901)",
        "deepseek_v4_1231_q2",
        "DeepSeek-V4-Flash-0731-00001-of-00004.gguf",
        "DeepSeek-V4-0424-0731",
    ],
)
def test_a_late_date_stamp_means_official(name: str) -> None:
    assert detect_profile({}, name) == "official"
    assert (
        detect_profile({"general.architecture": "deepseek4", "general.basename": name}, "m.gguf")
        == "official"
    )


@pytest.mark.parametrize(
    "name",
    [
        "",
        "ds4flash.gguf",
        "DeepSeek-V4-Flash-0424.gguf",
        "DeepSeek-V4-Flash-0730.gguf",
        "DeepSeek-V4-Flash-2026.gguf",
        "V4-1024x1024",
        "ctx-4096-1024",
        "ctx0901",
        "0901k",
        "v1.0813",
        "0813.5",
        "10813",
        "08131",
        "1332",
        "0800",
        "0832",
        "1305",
        "９９０１",
        "https://example.org/issues/0901",
        "550e8400-e29b-0901-a716-446655440000",
        "2026-08-13",
    ],
)
def test_other_numbers_are_no_late_stamp(name: str) -> None:
    assert detect_profile({"general.name": name}, name) == "preview"
