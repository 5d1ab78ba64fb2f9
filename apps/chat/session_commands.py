"""The commands that deal with saved conversations, and the saves that happen by themselves.

Turns are never lost silently: what would lose them saves first, or is refused once. Knows the conversation,
its file and the folder of sessions; nothing of lines and keys. Spec: kv §10.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from apps.chat.background_writer import BackgroundWriter
from apps.chat.conversation import Conversation
from apps.chat.conversation_file import ConversationFile
from apps.chat.interrupt import Interrupt
from apps.chat.prefill_progress import prefill_progress
from apps.chat.replay import last_turns, show_turns
from apps.chat.session_table import session_lines
from apps.chat.slash import BadInput
from apps.console import say
from apps.steering import is_steered
from shared.errors import Ds4Error
from shared.kv.sessions.folder import SessionFolder, check_room
from shared.kv.sessions.stored_session import StoredSession
from shared.session import Engine

if TYPE_CHECKING:
    from rich.console import Console


class SessionCommands:
    """With `autosave` the conversation is saved when the user leaves, waits or goes to another one."""

    def __init__(
        self,
        engine: Engine,
        conversation: Conversation,
        folder: SessionFolder,
        file: ConversationFile,
        writer: BackgroundWriter,
        *,
        autosave: bool,
        err: Console,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` gives Unix seconds."""
        self._engine = engine
        self._conversation = conversation
        self._folder = folder
        self._file = file
        self._writer = writer
        self._autosave = autosave
        self._err = err
        self._clock = clock
        # The command that was refused because turns would be lost, and how many turns there were.
        self._refused: tuple[str, int] | None = None

    def save(self) -> None:
        """Save now, computing what the live state lacks. Raises Ds4Error."""
        self._writer.settle()
        if not self._conversation.turns:
            self._say("there is nothing to save yet", "ds4.muted")
        elif self._file.stored is not None and self._file.is_up_to_date:
            self._say(f"session {self._file.stored.short_id} is saved already", "ds4.ok")
        else:
            with Interrupt() as interrupt:
                self._file.save(interrupt, whole=True)

    def show_list(self) -> None:
        """Show the saved sessions, newest first."""
        self._writer.settle()
        current = self._file.stored
        for line in session_lines(
            self._folder.sessions(),
            current=current.identity if current else None,
            columns=self._err.width,
            now=self._clock(),
        ):
            self._say(line, "ds4.muted")

    def new(self) -> None:
        """Save, then start an empty conversation. Raises BadInput."""
        self._secure("/new")
        self._conversation.start_over()
        self._file.follow(None)
        self._say("new conversation", "ds4.ok")

    def switch(self, prefix: str) -> None:
        """Save, then go on with another session. Raises Ds4Error; this conversation then stays."""
        self._writer.settle()
        stored, current = self._folder.find(prefix), self._file.stored
        if current is not None and stored.identity == current.identity:
            raise BadInput(f"session {stored.short_id} is the one that you are in")
        self._secure(f"/switch {prefix}")
        self._take_up(stored)

    def resume(self, prefix: str | None) -> None:
        """Go on with a session, without a prefix the one that was saved last. Raises Ds4Error."""
        self._take_up(self._folder.newest() if prefix is None else self._folder.find(prefix))

    def delete(self, prefix: str) -> None:
        """Delete a session. Raises Ds4Error."""
        self._writer.settle()
        stored = self._folder.find(prefix)
        self._folder.delete(stored)
        goes_on = ": this conversation goes on as a new session" if self._file.forget(stored) else ""
        self._say(f"session {stored.short_id} is deleted{goes_on}", "ds4.ok")

    def strip(self, prefix: str) -> None:
        """Drop the state of a session; its text stays. Raises Ds4Error."""
        self._writer.settle()
        stored, current = self._folder.find(prefix), self._file.stored
        if not stored.file.header.payload_bytes:
            raise BadInput(f"session {stored.short_id} is stripped already")
        stripped = self._folder.strip(stored, self._engine.tokenizer)
        if current is not None and current.identity == stripped.identity:
            self._file.stored = stripped
        freed = (stored.file.size - stripped.file.size) / 2**20
        self._say(f"session {stored.short_id} is stripped: {freed:.1f} MiB less, its text stays", "ds4.ok")

    def idle(self) -> None:
        """The user has not typed for a while: save in the background. Never raises: what fails now is tried
        again, and said, when the user leaves."""
        if self._autosave and self._conversation.unsaved:
            # Not even a fault of ours may break the prompt that the user types at.
            with contextlib.suppress(Exception):
                self._writer.settle()
                self._file.save_later()

    def leave(self) -> bool:
        """The user leaves: save. False to stay since turns would be lost; leaving again loses them."""
        try:
            self._secure("/quit")
        except (Ds4Error, KeyboardInterrupt) as error:
            self._say(str(error) or "interrupted", "ds4.warning")
            return False
        return True

    def _secure(self, command: str) -> None:
        """Save what `command` would lose; raises BadInput, once, if that cannot be."""
        self._writer.settle()
        conversation = self._conversation
        if not conversation.unsaved or self._refused == (command, conversation.turns):
            return
        reason = "this conversation is not saved: /save keeps it"
        if self._autosave:
            try:
                self._say(f"saving the conversation ({len(conversation)} tokens)", "ds4.muted")
                with Interrupt() as interrupt:
                    self._file.save(interrupt, whole=False)
                return
            except (Ds4Error, KeyboardInterrupt) as error:
                reason = str(error) or "interrupted: the conversation is not saved"
        self._refused = command, conversation.turns
        raise BadInput(f"{reason}; {command} again drops it")

    def _take_up(self, stored: StoredSession) -> None:
        started, from_text = self._clock(), stored.stripped or is_steered(self._engine)
        try:
            tokens = self._prefilled(stored) if from_text else self._loaded(stored)
        except BaseException:
            self._return()
            raise
        self._conversation.go_on_from(tokens)
        self._file.follow(stored)
        kind = "text" if from_text else "state"
        self._say(
            f"session loaded id={stored.short_id} from={kind} tokens={len(tokens)} "
            f"{1000 * (self._clock() - started):.0f} ms",
            "ds4.cache",
        )
        show_turns(last_turns(self._conversation.tokens, self._engine.tokenizer), on=self._err)

    def _loaded(self, stored: StoredSession) -> list[int]:
        """The tokens of a session, with its state."""
        return self._folder.load(stored, self._conversation.session)

    def _prefilled(self, stored: StoredSession) -> list[int]:
        """The tokens of a session that has no state, or one that steering has no use for, prefilled."""
        session = self._conversation.session
        if stored.stripped:
            tokens = self._engine.tokenizer.encode_rendered(self._folder.read(stored))
        else:
            tokens = self._loaded(stored)
            session.invalidate()
        check_room(stored, len(tokens) + 1, session.context)
        with (
            prefill_progress(self._engine, session, len(tokens), on=self._err) as progress,
            Interrupt() as interrupt,
        ):
            session.sync(tokens, progress, cancelled=interrupt)
        return tokens

    def _return(self) -> None:
        """Back to the conversation at hand after another one could not be taken up."""
        tokens = self._conversation.tokens
        if self._conversation.turns and self._conversation.missing(tokens) > 1:
            self._file.restore()

    def _say(self, line: str, style: str) -> None:
        # The terminal may be gone when a save is due.
        with contextlib.suppress(OSError):
            say(line, style, on=self._err)
