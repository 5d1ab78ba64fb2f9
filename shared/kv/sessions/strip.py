"""What becomes of a conversation that loses its state: the tokens that its text alone stands for.

Control tokens are told by their strings there, so text that only reads like one would turn into one.
Must not know: folders, live sessions. Spec: kv §10.
"""

from __future__ import annotations

from collections.abc import Sequence

from shared.errors import PayloadError
from shared.kv.files.cache_reader import CacheReader
from shared.kv.files.payload_outline import read_outline
from shared.kv.sessions.stored_session import StoredSession, UnusableSession
from shared.text.tokenizer import Tokenizer


def stripped_tokens(
    stored: StoredSession, reader: CacheReader, text: bytes, tokenizer: Tokenizer
) -> list[int]:
    """The tokens of `text`, which is that of the session `stored`, open in `reader`.

    Raises UnusableSession when the state in the file shows that some text only reads like a control mark:
    without the state it could not be told from a real one.
    """
    tokens = tokenizer.encode_rendered(text)
    saved = _saved_tokens(stored, reader)
    if saved is not None and not same_controls(saved, tokens, tokenizer):
        raise UnusableSession(
            f"session {stored.short_id} has text that reads like a control mark: without its state that "
            "could not be told from a real one, so it stays as it is"
        )
    return tokens


def same_controls(left: Sequence[int], right: Sequence[int], tokenizer: Tokenizer) -> bool:
    """Whether both token lists, of the same text, hold the same control tokens."""
    marks = tokenizer.specials
    controls = {marks.bos, marks.eos, marks.user, marks.assistant, marks.think, marks.think_end, marks.dsml}
    # All real ones are marks in the text, so equally many are the same ones.
    return sum(token in controls for token in left) == sum(token in controls for token in right)


def _saved_tokens(stored: StoredSession, reader: CacheReader) -> list[int] | None:
    """The token ids of the state in the file; None if it has none that can be read."""
    if stored.stripped:
        return None
    try:
        outline = read_outline(reader.payload(), stored.file.header.payload_bytes)
    except PayloadError:
        return None
    return [int(token) for token in outline.tokens]
