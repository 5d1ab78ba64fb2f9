"""A conversation on one engine: the transcript, the live session, and what a turn does to both.

Knows no terminal command and no keyboard. Spec: apps §1.3.
"""

from __future__ import annotations

from apps.chat.answer import Answer, Answerer
from apps.chat.settings import ChatSettings
from apps.chat.statistics import TurnStatistics
from shared.errors import ContextFullError, SessionInvalid
from shared.session import CancelCheck, Engine, Mark
from shared.text.effort import Effort
from shared.text.transcript import Transcript


class Conversation:
    """The turns so far. A turn that fails, or is interrupted before its first token, leaves no trace in
    the transcript; what was prefilled for it stays usable if the same message is sent again."""

    def __init__(self, engine: Engine, settings: ChatSettings, answerer: Answerer) -> None:
        self.settings = settings
        self.turns = 0
        self.total = TurnStatistics()
        self.last_prompt: list[int] = []
        self._engine = engine
        self._answerer = answerer
        self._transcript = Transcript(
            engine.tokenizer,
            effort=settings.effort,
            profile=engine.effort_profile,
            system=settings.system,
        )
        self._session = engine.open_session(settings.context)
        # Where the last whole turn ended: the state a new message can go on from after an interrupted one.
        self._mark: Mark | None = None

    def __len__(self) -> int:
        """Tokens of the transcript."""
        return len(self._transcript)

    @property
    def context(self) -> int:
        return self._session.context

    @property
    def effort(self) -> Effort:
        return self._transcript.effort

    def set_effort(self, effort: Effort) -> None:
        """Think so hard from the next turn on. The session keeps what still matches."""
        self._transcript.set_effort(effort)

    def send(self, message: str, cancelled: CancelCheck) -> Answer:
        """Add a user message and let the model answer; the answer ends with the end token in the
        transcript, a partial one too.

        Raises Cancelled (during prefill), ContextFullError, EngineFault; the transcript is then as before.
        """
        transcript = self._transcript
        transcript.add_user(message)
        transcript.begin_answer()
        prompt = transcript.tokens
        kept = False
        try:
            if len(prompt) >= self.context:
                raise ContextFullError(len(prompt), self.context)
            self._return_to_shared_past(prompt)
            answer = self._answerer.answer(
                self._session,
                prompt,
                self.settings,
                thinking=transcript.thinking,
                seed=self.settings.seed_of_turn(self.turns),
                cancelled=cancelled,
            )
            kept = bool(answer.tokens) or answer.cause != "cancelled"
        finally:
            if not kept:
                transcript.rollback()
        self.total = self.total.plus(answer.statistics)
        if kept:
            transcript.add_answer_tokens(answer.tokens)
            transcript.close()
            self._mark = self._session.mark()
            self.turns += 1
            self.last_prompt = prompt
        return answer

    def resize(self, context: int) -> None:
        """Another context size; the transcript stays and the next turn prefills all of it. Raises
        ContextFullError, changing nothing, if the transcript does not fit."""
        if len(self) >= context:
            raise ContextFullError(len(self), context)
        self._mark = None
        before = self.context
        # Both sizes at once may not fit in memory.
        self._session.close()
        try:
            self._session = self._engine.open_session(context)
        except Exception:
            self._session = self._engine.open_session(before)
            raise

    def forget_state(self) -> None:
        """Drop the live state after work was torn off in the middle; the transcript stays."""
        self._mark = None
        self._session.invalidate()

    def close(self) -> None:
        self._session.close()

    def _return_to_shared_past(self, prompt: list[int]) -> None:
        """If the live state ran past what `prompt` shares with it (an interrupted message), go back to the
        last mark: without it everything would be computed again."""
        shared = self._session.common_prefix(prompt)
        if self._mark is None or self._session.position <= shared or self._mark.position > shared:
            return
        try:
            self._session.rewind(self._mark)
        except SessionInvalid:
            self._mark = None
