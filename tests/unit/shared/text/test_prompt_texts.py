"""The constant texts, to the character: the model was trained on them and caches are keyed by them."""

from __future__ import annotations

from hashlib import sha256

import pytest

from shared.text.prompt_texts import (
    DEFAULT_SYSTEM,
    EFFORT_ABSOLUTE_MAXIMUM,
    EFFORT_BEYOND_MAXIMUM,
    TOOLS_AFTER_SCHEMAS,
    TOOLS_BEFORE_SCHEMAS,
)


@pytest.mark.parametrize(
    ("text", "length", "digest"),
    [
        (EFFORT_ABSOLUTE_MAXIMUM, 476, "f7a24f3b3050d4a8"),
        (EFFORT_BEYOND_MAXIMUM, 526, "53fb31b8392ec5b4"),
        (TOOLS_BEFORE_SCHEMAS + "{schemas}" + TOOLS_AFTER_SCHEMAS, 1116, "b0707aa72d57ad8a"),
    ],
)
def test_no_character_changes(text: str, length: int, digest: str) -> None:
    assert len(text) == length
    assert sha256(text.encode()).hexdigest().startswith(digest)


@pytest.mark.parametrize("text", [EFFORT_ABSOLUTE_MAXIMUM, EFFORT_BEYOND_MAXIMUM])
def test_an_effort_text_is_three_lines_and_an_empty_one(text: str) -> None:
    assert text.startswith("Reasoning Effort: ")
    assert text.count("\n") == 4
    assert text.endswith(".\n\n")


def test_the_default_system_text() -> None:
    assert DEFAULT_SYSTEM == "You are a helpful assistant"
