"""Cuts bytes outside of code and blocks into text and markup that must not be shown.

Owns the rule that removing something never forms a new control string or tag: text that could begin one is
suspended while the next candidate is looked at, and joined with what follows a removal. Knows nothing of
channels.
"""

from __future__ import annotations

from typing import Final

from shared.text.dsml_tags import Need, stray_markup

# No control string and no head of a marked tag is longer.
_LONGEST: Final = 64


class Suspended:
    """Text already read that may still turn out to be the beginning of markup."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    def try_add(self, text: bytes) -> bool:
        """Suspend `text`, which stands right before the next candidate, if all of it may begin markup."""
        if len(text) > _LONGEST:
            return False
        joined = self._parts[-1] + text if self._parts else b""
        if joined and stray_markup(joined, 0) is Need.MORE:
            self._parts[-1] = joined
            return True
        if stray_markup(text, 0) is not Need.MORE:
            return False
        self._parts.append(text)
        return True

    def rejoin(self) -> bytes:
        """Something was removed: the text before it, to be read once more together with what follows."""
        return self._parts.pop() if self._parts else b""

    def release(self) -> bytes:
        """Other text follows: what was suspended is text."""
        text = b"".join(self._parts)
        self._parts.clear()
        return text
