"""The state after the system prompt, kept for the next conversation that begins with it. Spec: kv §10.

Owns the file `sysprompt.kv`. Must not know: conversations, when to use it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from shared.errors import CacheFileError, PayloadError
from shared.kv.files.cache_reader import open_cache_file
from shared.kv.files.header import Extension, Header, Reason
from shared.kv.sessions.capture import Capture, copy_state, with_payload
from shared.kv.sessions.identity import SYSTEM_PROMPT_NAME
from shared.kv.sessions.loading import take_payload
from shared.kv.store.model_identity import ModelIdentity
from shared.session import Session


class SystemPromptFile:
    """`sysprompt.kv` of a folder. A file that does not fit is as good as none: the next save replaces it."""

    def __init__(self, folder: Path, model: ModelIdentity, *, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives Unix seconds."""
        self.path = folder / SYSTEM_PROMPT_NAME
        self._model = model
        self._clock = clock

    def load(self, session: Session, text: bytes, tokens: list[int]) -> bool:
        """Put `session` into the saved state if it is that of `tokens`, rendered as `text`. False if it is
        not; the session may be invalid then."""
        try:
            with open_cache_file(self.path) as reader:
                header = reader.file.header
                fits = (
                    header.reason == Reason.AGENT_SYSTEM
                    and (header.model_id, header.quant_bits) == (self._model.model_id, self._model.quant_bits)
                    and header.context <= session.context
                    and header.tokens == len(tokens)
                    and reader.file.text_bytes == len(text)
                )
                if not fits or reader.text() != text:
                    return False
                take_payload(reader, session)
        except (CacheFileError, PayloadError, OSError):
            return False
        if session.tokens != tokens:
            session.invalidate()
            return False
        return True

    def capture(self, session: Session, text: bytes) -> Capture:
        """The session's state as the file will hold it; `text` renders its tokens."""
        now = int(self._clock())
        payload = copy_state(session)
        header = Header(
            quant_bits=self._model.quant_bits,
            reason=Reason.AGENT_SYSTEM,
            extensions=Extension(0),
            model_id=self._model.model_id,
            tokens=session.position,
            hits=0,
            context=session.context,
            created_at=now,
            last_used=now,
            payload_bytes=0,
        )
        return Capture(SYSTEM_PROMPT_NAME, with_payload(header, payload), text, payload)
