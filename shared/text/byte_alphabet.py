"""The printable alphabet in which byte-level vocabularies spell bytes. Knows nothing of tokens.

Bytes 33-126, 161-172 and 174-255 stand for themselves; the other 68, in increasing order, are U+0100,
U+0101 and so on.
"""

from __future__ import annotations


def _alphabet() -> str:
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    letters: list[str] = []
    shifted = 0x100
    for byte in range(256):
        if byte in printable:
            letters.append(chr(byte))
        else:
            letters.append(chr(shifted))
            shifted += 1
    return "".join(letters)


# ALPHABET[byte] is the letter of that byte.
ALPHABET = _alphabet()

# Code points below 256 that are no letters are dropped; higher ones fall to the encoder below.
_TO_BYTE: dict[int, int | None] = dict.fromkeys(range(256)) | {ord(c): b for b, c in enumerate(ALPHABET)}


def spell(data: bytes) -> str:
    """The letters of `data`."""
    return "".join(ALPHABET[byte] for byte in data)


def unspell(text: str) -> bytes:
    """The bytes that `text` spells; characters outside the alphabet are dropped."""
    return text.translate(_TO_BYTE).encode("latin-1", "ignore")
