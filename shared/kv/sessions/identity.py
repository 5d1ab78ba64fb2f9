"""What a saved chat session is called: its file name, and the title that a user knows it by. Spec: kv §10.

Must not know: what files hold, folders, terminals.
"""

from __future__ import annotations

import re
from typing import Final

from shared.kv.files.cache_file import cache_name
from shared.text import marks
from shared.text.utf8 import to_bytes

# The state after the system prompt, beside the sessions.
SYSTEM_PROMPT_NAME: Final = "sysprompt.kv"

EMPTY_TITLE: Final = b"(empty user prompt)"
NO_TITLE: Final = b"(no user prompt)"

# ASCII white space as C has it; all other space is part of the title.
_SPACE: Final = b" \t\n\v\f\r"
_RUN_OF_SPACE: Final = re.compile(rb"[ \t\n\v\f\r]+")
_USER: Final = marks.USER.encode()
_NEXT_TURN: Final = re.compile(re.escape(marks.ASSISTANT.encode()) + b"|" + re.escape(_USER))

# A line of the list needs as many columns for everything but the title.
_OTHER_COLUMNS: Final = 12
_LONGEST_SHOWN: Final = 160
_SHOWN_IN_A_NARROW_TERMINAL: Final = 20
_ELLIPSIS: Final = b"..."


def session_name(title: bytes, created_at: int) -> str:
    """The file name of the session with the whole `title`, begun at `created_at` (Unix seconds). It stays the
    same over all saves. Raises OverflowError for a time outside 64 bits."""
    return cache_name(title + created_at.to_bytes(8, "little"))


def collapse_title(first_user_message: str) -> bytes:
    """The title of a conversation that begins with this message: all of it, in one line."""
    return _collapsed(to_bytes(first_user_message))


def title_of_text(text: bytes) -> bytes:
    """The title of a session that was saved without one, taken from its rendered `text`."""
    _, user, rest = text.partition(_USER)
    if not user:
        return NO_TITLE
    return _collapsed(_NEXT_TURN.split(rest, maxsplit=1)[0])


def shown_title(title: bytes, columns: int) -> str:
    """As much of `title` as a line of a terminal of `columns` has room for, without anything that a terminal
    would obey. Room is counted in bytes, as every writer of these files does; no character is cut."""
    limit = _SHOWN_IN_A_NARROW_TERMINAL
    if columns > _OTHER_COLUMNS + 4:
        limit = min(columns - _OTHER_COLUMNS, _LONGEST_SHOWN)
    text = "".join(c if c.isprintable() else "?" for c in title.decode("utf-8", "replace"))
    shown = text.encode()
    if len(shown) <= limit:
        return text
    return (shown[: limit - len(_ELLIPSIS)]).decode("utf-8", "ignore") + _ELLIPSIS.decode()


def _collapsed(message: bytes) -> bytes:
    return _RUN_OF_SPACE.sub(b" ", message.strip(_SPACE)) or EMPTY_TITLE
