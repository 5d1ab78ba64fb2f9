"""A conversation on one engine: the transcript, the live session, and what a turn does to both.

Knows no terminal command, no keyboard and no file. Spec: apps §1.3.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from apps.chat.answer import Answer, Answerer
from apps.chat.settings import ChatSettings
from apps.chat.statistics import TurnStatistics
from shared.errors import ContextFullError, SessionInvalid
from shared.session import CancelCheck, Engine, Mark, Progress, Session
from shared.text.effort import Effort
from shared.text.transcript import Transcript

# Puts a session that is about to start from zero into the state after the head of the prompt, if that is of
# use; returns the tokens that it evaluated.
Beginning = Callable[[Session, list[int], CancelCheck], int]


class Conversation:
    """The turns so far. A turn that fails, or is interrupted before its first token, leaves no trace in
    the transcript; what was prefilled for it stays usable if the same message is sent again.

    `first_message` and `began_at` (Unix seconds) are those of the first user message that was kept; empty
    and 0 before, and after `go_on_from`. `unsaved` says that turns were added since somebody cleared it.
    """

    def __init__(
        self,
        engine: Engine,
        settings: ChatSettings,
        answerer: Answerer,
        *,
        begin: Beginning | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.turns = 0
        self.total = TurnStatistics()
        self.last_prompt: list[int] = []
        self.first_message = ""
        self.began_at = 0
        self.unsaved = False
        self._engine = engine
        self._answerer = answerer
        self._begin = begin
        self._clock = clock
        self._transcript = self._new_transcript(settings.effort)
        self._session = engine.open_session(settings.context)
        # Where the last whole turn ended: the state a new message can go on from after an interrupted one.
        self._mark: Mark | None = None

    def __len__(self) -> int:
        """Tokens of the transcript."""
        return len(self._transcript)

    @property
    def tokens(self) -> list[int]:
        """The transcript (a new list)."""
        return self._transcript.tokens

    @property
    def session(self) -> Session:
        """The live session. Whoever changes it calls `go_on_from` or `forget_state` afterwards."""
        return self._session

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
        transcript, sent_at = self._transcript, int(self._clock())
        transcript.add_user(message)
        transcript.begin_answer()
        prompt = transcript.tokens
        kept = False
        try:
            if len(prompt) >= self.context:
                raise ContextFullError(len(prompt), self.context)
            begun = self._begin_anew(cancelled) if self.missing(prompt) == len(prompt) else 0
            answer = self._answerer.answer(
                self._session,
                prompt,
                self.settings,
                thinking=transcript.thinking,
                seed=self.settings.seed_of_turn(self.turns),
                cancelled=cancelled,
            )
            answer = _counting(answer, begun)
            kept = bool(answer.tokens) or answer.cause != "cancelled"
        finally:
            if not kept:
                transcript.rollback()
        self.total = self.total.plus(answer.statistics)
        if kept:
            transcript.add_answer_tokens(answer.tokens)
            transcript.close()
            self._mark = self._session.mark()
            self.last_prompt = prompt
            self._keep(message, sent_at)
        return answer

    def missing(self, tokens: Sequence[int]) -> int:
        """How many of `tokens` the live session would have to evaluate; goes back to the last whole turn
        first if that saves any."""
        wanted = list(tokens)
        self._return_to_shared_past(wanted)
        shared = self._session.common_prefix(wanted)
        return len(wanted) - (shared if self._session.position <= shared else 0)

    def catch_up(
        self, tokens: Sequence[int], progress: Progress | None = None, cancelled: CancelCheck | None = None
    ) -> None:
        """Bring the live session to `tokens`, the transcript or a beginning of it. Raises like
        `Session.sync`."""
        self._return_to_shared_past(list(tokens))
        self._session.sync(tokens, progress, cancelled=cancelled)
        self._mark = self._session.mark()

    def start_over(self) -> None:
        """An empty conversation with the settings' system text and the present effort."""
        self._replace(self._new_transcript(self.effort))

    def go_on_from(self, tokens: Sequence[int]) -> None:
        """The conversation that `tokens` are, which the live session holds. What stands before its first
        user message is kept as it is; an answer that broke off is closed."""
        transcript = Transcript.from_tokens(
            self._engine.tokenizer, tokens, effort=self.effort, profile=self._engine.effort_profile
        )
        transcript.close_open_answer()
        self._replace(transcript)
        self._mark = self._session.mark()

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

    def _new_transcript(self, effort: Effort) -> Transcript:
        return Transcript(
            self._engine.tokenizer,
            effort=effort,
            profile=self._engine.effort_profile,
            system=self.settings.system,
        )

    def _replace(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._mark = None
        self.turns = transcript.user_messages
        self.total = TurnStatistics()
        self.first_message, self.began_at, self.unsaved = "", 0, False

    def _keep(self, message: str, sent_at: int) -> None:
        if self.turns == 0:
            self.first_message, self.began_at = message, sent_at
        self.turns += 1
        self.unsaved = True

    def _begin_anew(self, cancelled: CancelCheck) -> int:
        """Tokens that were evaluated apart from the answer's own prefill."""
        if self._begin is None:
            return 0
        return self._begin(self._session, self._transcript.head, cancelled)

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


def _counting(answer: Answer, evaluated: int) -> Answer:
    """`answer` with `evaluated` tokens counted as computed for it, not as reused."""
    if not evaluated:
        return answer
    figures = answer.statistics
    return replace(
        answer,
        statistics=replace(
            figures, reused=figures.reused - evaluated, prefilled=figures.prefilled + evaluated
        ),
    )
