"""The file that the conversation at hand is saved in: made at the first save, written anew at each one.

Knows the conversation, the folder of sessions and the writer; nothing of commands. Spec: kv §10.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from apps.chat.background_writer import BackgroundWriter
from apps.chat.conversation import Conversation
from apps.chat.prefill_progress import prefill_progress
from apps.console import say
from apps.steering import is_steered
from shared.errors import Ds4Error
from shared.kv.sessions.capture import Capture, NotSaved, copy_state
from shared.kv.sessions.folder import Origin, SessionFolder
from shared.kv.sessions.identity import collapse_title
from shared.kv.sessions.stored_session import StoredSession
from shared.kv.sessions.strip import same_controls
from shared.session import CancelCheck, Engine

if TYPE_CHECKING:
    from rich.console import Console

# A live state that lacks no more than this is completed even when nobody asked for a save.
_CHEAP_TOKENS = 256


class ConversationFile:
    """Saves one conversation. `stored` is its file as it is now, None before the first save.

    States under steering are not saved, the text is: whoever resumes it may steer otherwise, or not at all.
    """

    def __init__(
        self,
        engine: Engine,
        conversation: Conversation,
        folder: SessionFolder,
        writer: BackgroundWriter,
        *,
        err: Console,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` gives seconds, for what the user is told of durations."""
        self.stored: StoredSession | None = None
        self._engine = engine
        self._conversation = conversation
        self._folder = folder
        self._writer = writer
        self._err = err
        self._clock = clock
        self._origin: Origin | None = None

    def follow(self, stored: StoredSession | None) -> None:
        """The conversation is now the one in `stored`, or a new one."""
        self.stored = stored
        self._origin = Origin(stored.title, stored.created_at) if stored else None

    def forget(self, stored: StoredSession) -> bool:
        """`stored` was deleted. If it was this conversation, that goes on as another one, with a name of its
        own: what was deleted does not come back. Returns whether it was."""
        if self.stored is None or self.stored.identity != stored.identity:
            return False
        self.stored = None
        self._origin = Origin(stored.title, stored.created_at + 1)
        return True

    @property
    def is_up_to_date(self) -> bool:
        """Whether another save would add nothing."""
        stored = self.stored
        return (
            not self._conversation.unsaved and stored is not None and stored.writable and not stored.stripped
        )

    def save(self, cancelled: CancelCheck, *, whole: bool) -> None:
        """Write the conversation. What the live state lacks is computed if it is little, or if `whole`;
        else, and under steering, only the text is kept. Raises Cancelled, EngineFault, NotSaved."""
        started, before = self._clock(), self.stored
        capture = self._capture(cancelled, whole=whole)
        self._write(capture)
        self._conversation.unsaved = False
        # The terminal may be gone when a save is due.
        with contextlib.suppress(OSError):
            say(self._saved_line(started), "ds4.cache", on=self._err)
            if before is not None and self.stored is not None and self.stored.file.name != capture.name:
                say(
                    f"session {before.short_id} was changed by another program: it stays as it is, and this "
                    "conversation is a session of its own",
                    "ds4.warning",
                    on=self._err,
                )

    def save_later(self) -> None:
        """Copy the conversation out of the engine and write it in the background. Raises like `save`; what
        fails in the background is said when the writer settles, and the conversation is unsaved again."""
        capture = self._capture(lambda: False, whole=False)
        self._conversation.unsaved = False
        self._writer.start(lambda: self._write(capture), self._write_failed)

    def restore(self) -> None:
        """Bring the live session back to the conversation after another one could not be loaded: from the
        file if it is there, else by the next turn's prefill."""
        self._conversation.forget_state()
        if self.stored is not None and not self.stored.stripped and not is_steered(self._engine):
            with contextlib.suppress(Ds4Error):
                self._folder.load(self.stored, self._conversation.session)

    def _capture(self, cancelled: CancelCheck, *, whole: bool) -> Capture:
        conversation, tokenizer = self._conversation, self._engine.tokenizer
        tokens = conversation.tokens
        if len(tokens) >= conversation.context:
            # A full context has no room for the end token: whoever reads the file closes the answer.
            tokens = tokens[: conversation.context - 1]
        text = tokenizer.decode(tokens)
        missing = conversation.missing(tokens)
        steered = is_steered(self._engine)
        as_text = None if whole and not steered else tokenizer.encode_rendered(text)
        text_is_enough = as_text is not None and same_controls(tokens, as_text, tokenizer)
        payload: tuple[memoryview, ...] = ()
        if steered:
            if not text_is_enough:
                raise NotSaved(
                    "not saved: some text reads like a control mark, which only a state can tell apart, and "
                    "states under steering are not saved (/steer 0 first)"
                )
        elif missing <= _CHEAP_TOKENS or not text_is_enough:
            try:
                payload = self._state(tokens, missing, cancelled)
            except (Ds4Error, MemoryError) as error:
                if not text_is_enough:
                    raise (
                        error if isinstance(error, Ds4Error) else NotSaved("not saved: out of memory")
                    ) from None
        return self._folder.capture(
            self._its_origin(),
            text,
            tokens=len(tokens) if payload or as_text is None else len(as_text),
            context=conversation.context,
            payload=payload,
        )

    def _state(self, tokens: list[int], missing: int, cancelled: CancelCheck) -> tuple[memoryview, ...]:
        """The state of `tokens`, of which the live session lacks `missing`, copied."""
        session = self._conversation.session
        if missing <= _CHEAP_TOKENS:
            self._conversation.catch_up(tokens, cancelled=cancelled)
            return copy_state(session)
        with prefill_progress(self._engine, session, len(tokens), on=self._err) as progress:
            self._conversation.catch_up(tokens, progress, cancelled)
        return copy_state(session)

    def _its_origin(self) -> Origin:
        if self._origin is None:
            conversation = self._conversation
            self._origin = Origin(collapse_title(conversation.first_message), conversation.began_at)
        return self._origin

    def _write(self, capture: Capture) -> None:
        self.stored = self._folder.write(capture, instead_of=self.stored)
        # Another program may have saved under the same name: then it has got a new one.
        self._origin = Origin(self.stored.title, self.stored.created_at)

    def _write_failed(self, error: Exception) -> None:
        self._conversation.unsaved = True
        say(str(error), "ds4.warning", on=self._err)

    def _saved_line(self, started: float) -> str:
        assert self.stored is not None
        header = self.stored.file.header
        return (
            f"session saved id={self.stored.short_id} tokens={header.tokens} "
            f"size={self.stored.file.size / 2**20:.1f} MiB {1000 * (self._clock() - started):.0f} ms"
            + (f" (text only: {self._why_text_only()})" if self.stored.stripped else "")
        )

    def _why_text_only(self) -> str:
        return "it is steered" if is_steered(self._engine) else "its state is not there"
