"""A JSON string that comes in pieces, decoded as it comes. Knows no dialect."""

from __future__ import annotations

import json
import re
from typing import Final

# Characters and whole escapes; the two halves of a character that takes two escapes stay together.
_WHOLE: Final = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)


class MemberText:
    """The text of the first member of an object, if that is a string with the name `key`: `feed` the object's
    compact JSON and get the text as far as it is certain."""

    def __init__(self, key: str) -> None:
        self._start = "{" + json.dumps(key) + ':"'
        self._waiting = ""
        self._inside = False
        self._over = False

    def feed(self, fragment: str) -> str:
        """More of the text; empty if nothing more is certain."""
        if self._over:
            return ""
        self._waiting += fragment
        if not self._inside:
            if len(self._waiting) < len(self._start):
                return ""
            if not self._waiting.startswith(self._start):
                self._over = True
                return ""
            self._inside = True
            self._waiting = self._waiting[len(self._start) :]
        return self._decoded()

    def _decoded(self) -> str:
        whole = _WHOLE.match(self._waiting)
        assert whole is not None
        self._over = self._waiting.startswith('"', whole.end())
        self._waiting = self._waiting[whole.end() :]
        text: str = json.loads(f'"{whole[0]}"')
        return text
