"""The vocabulary of a `tokenizer.json` as a model file keeps it: tokens by id, their kinds, and merges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.errors import ModelFileError
from shared.quantise.safetensors import CheckpointError

# The kinds of tokens in model files.
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens and their kinds by id, and merges ("left right") by rank."""

    tokens: list[str]
    kinds: list[int]
    merges: list[str]


def read_vocabulary(path: Path, held: Mapping[str, Any], size: int) -> Vocabulary:
    """The vocabulary of `size` in the parsed file `held`; `path` is for messages.

    Ids that the file leaves out get a name of their own. Raises CheckpointError, also for a vocabulary that
    the family's prompts cannot be written with.
    """
    from shared.text.tokenizer import Tokenizer

    model = held.get("model")
    added = held.get("added_tokens", [])
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict) or not isinstance(added, list):
        raise _wrong(path, "it holds no vocabulary")
    kinds: dict[int, int] = {}
    names: dict[int, str] = {}
    for token, number in model["vocab"].items():
        _add(path, names, number, token, size)
        kinds[number] = NORMAL
    for entry in added:
        if not isinstance(entry, dict):
            raise _wrong(path, "an added token is not described by an object")
        place, mark = entry.get("id"), entry.get("content")
        if type(place) is not int or names.get(place) != mark:  # some files list them in both places
            place = _add(path, names, place, mark, size)
        kinds[place] = CONTROL if entry.get("special") is True else USER_DEFINED
    tokens = [names.get(number, f"[PAD{number}]") for number in range(size)]
    merges = [_merge(path, entry) for entry in model.get("merges") or ()]
    try:
        Tokenizer.from_vocabulary(tokens, merges)
    except ModelFileError as error:
        raise _wrong(path, error.problems[0] if error.problems else str(error)) from None
    return Vocabulary(tokens, [kinds.get(number, UNUSED) for number in range(size)], merges)


def _add(path: Path, names: dict[int, str], number: object, token: object, size: int) -> int:
    """Enter a token under its number, which is returned."""
    if type(number) is not int or not isinstance(token, str):
        raise _wrong(path, "a token has no text or no number")
    if not 0 <= number < size:
        raise _wrong(path, f"a token has the number {number} in a vocabulary of {size}")
    if number in names:
        raise _wrong(path, f"two tokens have the number {number}")
    names[number] = token
    return number


def _merge(path: Path, entry: object) -> str:
    """Older files write `left right`, newer ones the two in a list."""
    parts = entry.split(" ") if isinstance(entry, str) else entry
    if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
        raise _wrong(path, "a merge is not a pair of tokens")
    return " ".join(parts)


def _wrong(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{path} cannot be used: {reason}")
