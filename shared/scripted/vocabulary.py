"""The scripted engine's vocabulary: the 256 bytes, one token each, and the protocol's control tokens."""

from __future__ import annotations

import functools

from shared.text import marks
from shared.text.byte_alphabet import ALPHABET
from shared.text.tokenizer import Tokenizer

# Ids 0-255 are the bytes themselves; the control tokens follow.
TOKENS: tuple[str, ...] = (*ALPHABET, *marks.ALL)
CONTROL: dict[str, int] = {mark: 256 + index for index, mark in enumerate(marks.ALL)}
END_OF_TURN = CONTROL[marks.EOS]
SPACE = ord(" ")


@functools.cache
def tokenizer() -> Tokenizer:
    """The tokenizer over this vocabulary; without merges every byte stays a token of its own."""
    return Tokenizer.from_vocabulary(TOKENS, ())


def tokens_of(text: str) -> tuple[int, ...]:
    """The tokens of a script's text: one control token if it is exactly one, its bytes otherwise."""
    control = CONTROL.get(text)
    return tuple(text.encode()) if control is None else (control,)
