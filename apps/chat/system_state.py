"""Spares a new conversation the prefill of a long system prompt: its state is on disk from the first time on.

Knows the session, the file of that state and a writer; nothing of turns. Spec: kv §10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from apps.chat.background_writer import BackgroundWriter
from apps.chat.prefill_progress import prefill_progress
from apps.console import say
from apps.steering import is_steered
from shared.kv.sessions.system_prompt import SystemPromptFile
from shared.session import CancelCheck, Engine, Session

if TYPE_CHECKING:
    from rich.console import Console

# Below this a file costs more than computing the state again.
LEAST_TOKENS: Final = 512


class SystemState:
    """What `Conversation` calls before a session starts from zero. Saves nothing unless `save`."""

    def __init__(
        self, engine: Engine, file: SystemPromptFile, writer: BackgroundWriter, *, save: bool, err: Console
    ) -> None:
        self._engine = engine
        self._file = file
        self._writer = writer
        self._save = save
        self._err = err

    def __call__(self, session: Session, head: list[int], cancelled: CancelCheck) -> int:
        """Bring `session` to `head`, the tokens before the first user message, if they are many: from the
        file, or by a prefill whose state is then saved. Returns the tokens evaluated. Raises like
        `Session.sync`."""
        if len(head) < LEAST_TOKENS or len(head) >= session.context:
            return 0
        if is_steered(self._engine):  # the file's state is that of the model alone
            return 0
        text = self._engine.tokenizer.decode(head)
        if self._file.load(session, text, head):
            say(f"system prompt: {len(head)} tokens taken from disk", "ds4.cache", on=self._err)
            return 0
        if not self._save:
            return 0
        with prefill_progress(
            self._engine, session, len(head), on=self._err, verb="system prompt"
        ) as progress:
            evaluated = session.sync(head, progress, cancelled=cancelled).evaluated
        capture = self._file.capture(session, text)
        self._writer.start(lambda: capture.write(self._file.path.parent), self._not_saved)
        return evaluated

    def _not_saved(self, error: Exception) -> None:
        say(f"the system prompt's state was not saved: {error}", "ds4.warning", on=self._err)
