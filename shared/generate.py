"""The decode loop: one turn of the model, from a synced session to the events of its text.

Owns look-ahead, the budget, stop strings and the reasons to end. Knows no backend, no prompt format and no
front end. The thinking override of the sampling settings is the caller's: `effective_sampling`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shared.power import PowerGovernor
from shared.sampling import GREEDY, RandomStream, Sampling
from shared.session import CancelCheck, Picked, Session
from shared.stop_strings import StopStrings
from shared.text import marks
from shared.text.events import EndCause, FinishReason, TokenScore, TurnEvent
from shared.text.tokenizer import Tokenizer
from shared.text.turn import DecodeState, Turn
from shared.text_scores import ScoredText
from shared.token_choice import NO_PENALTIES, KnownToken, Penalties, TokenChooser, TokenMasks

# How far the model may go on after a complete call in thinking that is still open: it may close the
# thinking, or take the call back.
HELD_CALL_TOKENS = 256

_SYNTAX = (DecodeState.STRUCTURAL, DecodeState.JSON_STRUCTURAL)


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """`max_tokens` below 0 means 0. A `seed` above 0 fixes the random stream; any other is drawn anew.

    `look_ahead` submits each token before it is known, which hides the host's time on a GPU and changes
    nothing else. `greedy_syntax` forces temperature 0 on the syntax of tool calls (spec: chat §3.5), and
    `penalties` spare it. With `top_logprobs` the tokens of a text go before it as `TextScores`, each with so
    many of the best tokens at its place.
    """

    sampling: Sampling
    max_tokens: int
    stop: tuple[str, ...] = ()
    seed: int | None = None
    look_ahead: bool = True
    greedy_syntax: bool = True
    penalties: Penalties = NO_PENALTIES
    top_logprobs: int | None = None


class Generation:
    """Iterate once; each item is the list of events, perhaps empty, that one token brought, and a last
    one what the end brought. Callers poll and keep connections alive between items.

    However a turn ends, the session then holds every sampled token but the end token: a stop string's tail
    and what was held back stay in it, and the caller decides what to reuse. Raises EngineFault.
    """

    def __init__(
        self,
        session: Session,
        tokenizer: Tokenizer,
        turn: Turn,
        settings: GenerationSettings,
        *,
        cancelled: CancelCheck | None = None,
        clock: Callable[[], float] = time.monotonic,
        power: PowerGovernor | None = None,
        masks: TokenMasks | None = None,
    ) -> None:
        self.tokens: list[int] = []
        self.reasoning_tokens = 0
        self.seconds = 0.0
        self._session = session
        self._tokenizer = tokenizer
        self._turn = turn
        self._settings = settings
        self._cancelled = cancelled or _never
        self._clock = clock
        self._power = power or PowerGovernor()
        seed = settings.seed if settings.seed is not None and settings.seed > 0 else secrets.randbits(63) + 1
        self._chooser = TokenChooser(
            session,
            tokenizer.vocabulary_size,
            RandomStream(seed),
            penalties=settings.penalties,
            masks=masks,
            top_logprobs=settings.top_logprobs,
        )
        self._scored = None if settings.top_logprobs is None else ScoredText()
        self._withheld = 0  # bytes that the stop strings hold back
        self._stops = StopStrings(settings.stop)
        self._call_tokens = 0  # the last ones, of a call in thinking that is still open
        self._held_since: int | None = None  # completion tokens when a call came to be held in thinking
        self._cause: EndCause | None = None

    @property
    def completion_tokens(self) -> int:
        """Tokens sampled, the end token not counted."""
        return len(self.tokens)

    @property
    def finished(self) -> bool:
        return self._cause is not None

    @property
    def cause(self) -> EndCause:
        """Why generation ended; only after the iteration."""
        if self._cause is None:
            raise RuntimeError("the generation has not ended yet")
        return self._cause

    @property
    def finish_reason(self) -> FinishReason:
        """What a client is told; only after the iteration."""
        if self._cause is None:
            raise RuntimeError("the generation has not ended yet")
        return self._turn.finish_reason

    @property
    def matched_stop(self) -> str | None:
        """The stop string that ended the turn."""
        return self._stops.matched if self._cause == "stop" else None

    def __iter__(self) -> Iterator[list[TurnEvent]]:
        started = self._clock()
        cause = self._limit()
        while cause is None:
            events, cause = self._step()
            self.seconds = self._clock() - started
            yield from events
            cause = cause or self._limit()
        yield self._finish(cause)

    def _limit(self) -> EndCause | None:
        """Why no further step may be made, if so."""
        if self._cancelled():
            return "cancelled"
        if len(self.tokens) >= self._settings.max_tokens or self._session.position >= self._session.context:
            return "length"
        return None

    def _step(self) -> tuple[list[list[TurnEvent]], EndCause | None]:
        """One decode step: the events of each token kept of it, and why the turn ends with it, if so."""
        started = self._power.start()
        sampling = self._sampling()
        syntax = self._turn.decode_state in _SYNTAX
        picked = self._chooser.choose(sampling, self._turn, penalised=not syntax)
        ahead = self._settings.look_ahead and not isinstance(picked, KnownToken)
        if ahead:
            self._session.submit(picked)
        events: list[list[TurnEvent]] = []
        cause: EndCause | None = None
        for token in picked.tokens():
            if token == self._tokenizer.specials.eos:
                cause = "eos"
            elif len(self.tokens) >= self._settings.max_tokens:
                cause = "length"
            else:
                more, cause = self._take(token)
                events.append(more)
            if cause is not None:
                break
        self._keep(picked, len(events), ahead)
        self._power.rest("decode", started, self._cancelled)
        return events, cause

    def _sampling(self) -> Sampling:
        if self._settings.greedy_syntax and self._turn.decode_state in _SYNTAX:
            return GREEDY
        return self._settings.sampling

    def _take(self, token: int) -> tuple[list[TurnEvent], EndCause | None]:
        self.tokens.append(token)
        self._chooser.take(token)
        thinking = not self._turn.thinking_closed
        self.reasoning_tokens += thinking
        if self._scored is not None:
            self._score(self._scored, token, thinking)
        data = self._tokenizer.token_bytes(token)
        self._withheld += len(data)
        events = self._feed(self._stops.feed(data))
        if thinking:
            self._call_tokens = self._call_tokens + 1 if self._in_call() else 0
        if self._turn.should_stop or self._held_too_long():
            return events, "tool"
        return events, None if self._stops.matched is None else "stop"

    def _feed(self, data: bytes) -> list[TurnEvent]:
        self._withheld -= len(data)
        events = self._turn.feed(data) if data else []
        if self._scored is None:
            return events
        if self._stops.matched is not None:
            self._scored.cut(self._withheld, thinking=not self._turn.thinking_closed)
        events = self._scored.attach(events)
        closed = self._turn.thinking_closed
        in_call = self._turn.decode_state is not DecodeState.OUTSIDE or self._turn.should_stop
        if closed or in_call:
            self._scored.drop(thinking=True)
        if closed and in_call:
            self._scored.drop(thinking=False)
        return events

    def _score(self, scored: ScoredText, token: int, thinking: bool) -> None:
        if self._tokenizer.piece(token) in marks.ALL:
            return
        bytes_of = self._tokenizer.token_bytes
        logprob, best = self._chooser.scores(token)
        top = tuple((bytes_of(other.token), other.logprob) for other in best)
        scored.add(TokenScore(bytes_of(token), logprob, top), thinking=thinking)

    def _in_call(self) -> bool:
        """Whether what was sampled last belongs to a call, or stands behind one that is whole."""
        turn = self._turn
        return turn.decode_state is not DecodeState.OUTSIDE or turn.held_call or turn.should_stop

    def _held_too_long(self) -> bool:
        if not self._turn.held_call:
            self._held_since = None
            return False
        if self._held_since is None:
            self._held_since = len(self.tokens)
        return len(self.tokens) - self._held_since >= HELD_CALL_TOKENS

    def _keep(self, picked: Picked, kept: int, ahead: bool) -> None:
        """Leave the session with the first `kept` tokens of the step, whether it was submitted `ahead` of
        being known or not."""
        step = picked.tokens()
        if kept == len(step) and ahead:
            return
        if kept == len(step) and not isinstance(picked, KnownToken):
            self._session.submit(picked)
            return
        if ahead:
            self._session.undo()
        for token in step[:kept]:
            self._session.submit(token)

    def _finish(self, cause: EndCause) -> list[TurnEvent]:
        events = self._feed(self._stops.flush())
        # What the stop strings held back may itself have been the end.
        if self._turn.should_stop:
            cause = "tool"
        elif self._stops.matched is not None:
            cause = "stop"
        self._cause = cause
        last = self._turn.finish(cause)
        if self._turn.calls:
            # The call ended the thinking before it.
            self.reasoning_tokens -= self._call_tokens
        return events + (last if self._scored is None else self._scored.attach(last))


def _never() -> bool:
    return False
