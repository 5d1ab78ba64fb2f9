"""Reasoning effort: which level a request gets, and which text each checkpoint generation wants for it.

An effort text stands right after the begin mark, in thinking mode only. Knows nothing of models beyond the
name of a profile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, cast, get_args

from shared.errors import RequestError
from shared.text.prompt_texts import EFFORT_ABSOLUTE_MAXIMUM, EFFORT_BEYOND_MAXIMUM

Effort = Literal["none", "low", "high", "max"]
EffortProfile = Literal["preview", "official"]

DEFAULT_EFFORT: Final[Effort] = "high"
# Below this context the preview checkpoints do not get the maximum effort.
MAX_EFFORT_CONTEXT: Final = 393_216

_TEXTS: Final[Mapping[EffortProfile, Mapping[Effort, str]]] = {
    "preview": {"max": EFFORT_ABSOLUTE_MAXIMUM},
    "official": {"high": EFFORT_ABSOLUTE_MAXIMUM, "max": EFFORT_BEYOND_MAXIMUM},
}

_LEVELS: Final[Mapping[str, Effort]] = {
    "none": "none",
    "minimal": "low",
    "low": "low",
    "medium": "high",
    "high": "high",
    "xhigh": "high",
    "max": "max",
}
REQUESTABLE: Final = tuple(_LEVELS)

# Month and day of the first checkpoints with the official texts.
_OFFICIAL_SINCE: Final = 731
# Four digits on their own: no part of a size (1024x1024, 4096k), a version (v1.0813) or a longer number.
_STAMP: Final = re.compile(r"(?<![^\W_])(?<![0-9]\.)([0-9]{4})(?![^\W_])(?!\.[0-9])")
# Numbers in addresses and in UUIDs are no dates.
_NO_TEXT: Final = re.compile(r"\S+://\S+|\b[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b")
# Powers of two are sizes; this is the only one that also reads as a date.
_NOT_A_DATE: Final = 1024


def effort_text(profile: str, effort: Effort) -> str:
    """The text that `profile` puts right after the begin mark for `effort`; empty if none."""
    return _TEXTS[_known_profile(profile)].get(effort, "")


def resolve_effort(
    requested: str | None, profile: str, context: int, *, pro: bool = False
) -> tuple[Effort, str | None]:
    """The level that a request gets, and a note for the user if it is not the one asked for.

    `requested` is a level of `REQUESTABLE` or None for the default; `context` counts tokens; `pro` says that
    the model is V4 PRO, whose `xhigh` is the maximum. Raises RequestError for another level.
    """
    if requested is None:
        return DEFAULT_EFFORT, None
    level = _LEVELS.get(requested)
    if level is None:
        known = ", ".join(REQUESTABLE)
        message = f"unknown reasoning effort {requested[:50]!r}: use {known}"
        raise RequestError(message, param="reasoning_effort")
    if requested == "xhigh" and pro:
        level = "max"
    if level == "max" and _known_profile(profile) == "preview" and context < MAX_EFFORT_CONTEXT:
        note = (
            f"effort max needs a context of {MAX_EFFORT_CONTEXT} tokens with this checkpoint and this one has"
            f" {context}: using high (raise --ctx for max)"
        )
        return "high", note
    return level, None


def detect_profile(general: Mapping[str, str], file_name: str) -> EffortProfile:
    """`official` if a `general.*` string or the file name carries a date stamp (MMDD) of 0731 or later."""
    texts = (file_name, *general.values())
    return "official" if any(_has_official_stamp(text) for text in texts) else "preview"


def _has_official_stamp(text: str) -> bool:
    stamps = (int(digits) for digits in _STAMP.findall(_NO_TEXT.sub(" ", text)))
    return any(
        stamp >= _OFFICIAL_SINCE
        and stamp != _NOT_A_DATE
        and 1 <= stamp // 100 <= 12
        and 1 <= stamp % 100 <= 31
        for stamp in stamps
    )


def _known_profile(profile: str) -> EffortProfile:
    assert profile in get_args(EffortProfile), profile
    return cast(EffortProfile, profile)
