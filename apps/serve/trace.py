"""`ds4 serve --trace FILE`: what each turn was sent, what of it was reused, and what the model wrote.

Runs on the inference thread and writes as things happen, so that the file tells how far a turn came that
never ended; of several in work, the one that began first. Spec: chat §7.2. Knows no dialect and no HTTP.
"""

from __future__ import annotations

import codecs
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

from apps.serve import trace_sections as sections
from apps.serve.live_match import LiveMatch
from apps.serve.trace_pages import Page, Pages
from apps.serve.turn_request import TurnRequest
from apps.trace import TraceFile
from shared.generate import Generation
from shared.kv.live.start import Start
from shared.session import Session, Synced
from shared.text.segments import Segment, join
from shared.text.tokenizer import Tokenizer
from shared.text.turn import DecodeState, Turn

_TOKENS_PER_NOTE: Final = 128


def local_time() -> datetime:
    """Now, with the offset of the local time zone."""
    return datetime.now().astimezone()


class ServerTrace:
    """The trace of a server: numbers its turns. `now` stamps them, `clock` gives seconds."""

    def __init__(
        self,
        file: TraceFile,
        *,
        now: Callable[[], datetime] = local_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = file
        self._now = now
        self._clock = clock
        self._numbers = itertools.count(1)
        self._pages = Pages(file)

    @property
    def active(self) -> bool:
        """False once the file could not be written."""
        return self._file.open

    def begin(self, request: TurnRequest, tokenizer: Tokenizer) -> TurnTrace | None:
        """A turn starts; None once the file could not be written."""
        if not self.active:
            return None
        number = next(self._numbers)
        return TurnTrace(self._pages.open(), number, request, tokenizer, self._now(), self._clock)


class _Block(Enum):
    """Where the generated text stands with its tool block."""

    NONE = "none"
    OPEN = "open"
    CLOSED = "closed"


@dataclass(slots=True)
class _Attempt:
    """How far one attempt at an answer is traced."""

    tokens: int = 0
    block: _Block = _Block.NONE
    tool_start: bool = False
    tool_end: bool = False


class TurnTrace:
    """The entry of one turn; `finished` or `ended` closes it."""

    def __init__(
        self,
        page: Page,
        number: int,
        request: TurnRequest,
        tokenizer: Tokenizer,
        now: datetime,
        clock: Callable[[], float],
    ) -> None:
        self._page = page
        self._number = number
        self._request = request
        self._tokenizer = tokenizer
        self._clock = clock
        self._started = clock()
        self._with_tools = request.ask.tools is not None
        self._attempt = _Attempt()
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._line_open = False
        stamp = now.isoformat(sep=" ", timespec="milliseconds")
        page.write(f"===== request {number} {stamp} req={request.id} =====\n{sections.settings(request)}")

    def compared(self, match: LiveMatch, session: Session) -> None:
        """The prompt was compared with the live state, which is still as it was."""
        self._page.write("--- cache decision ---\n" + sections.live_match(match, self._request))
        if match.reason == "token-mismatch":
            prompt = self._request.prompt.tokens
            self._page.write(sections.windows(session.tokens, prompt, match.common, self._tokenizer))

    def planned(self, start: Start) -> None:
        """It is decided what the turn goes on from."""
        self._page.write(sections.reuse(start) + sections.prompts(self._request))
        self._page.write("--- generated ---\n")

    def prefilled(self, synced: Synced) -> None:
        self._note(f"prefill done: {synced.reused} tokens reused, {synced.evaluated} computed")

    def token(self, generation: Generation, turn: Turn) -> None:
        """After each step of decoding: the text as it was sampled."""
        before, count = self._attempt.tokens, len(generation.tokens)
        self._attempt.tokens = count
        if count > before:
            self._sampled(generation.tokens[before:])
        if not self._with_tools:
            return
        if count // _TOKENS_PER_NOTE > before // _TOKENS_PER_NOTE:
            self._note(f"{count} tokens")
        # At the end the turn closes every block by itself.
        if not generation.finished or generation.cause == "tool":
            self._watch_block(turn, self._attempt)

    def retried(self, suffix: Sequence[Segment]) -> None:
        """The attempt failed; the model is told so by `suffix` and tries again."""
        self._end_line()
        self._note("recovery: the tool call could not be read, the model is asked again")
        self._page.write(sections.block("told", join(suffix)) + "--- generated again ---\n")
        self._attempt = _Attempt()

    def finished(self, turn: Turn, generation: Generation) -> None:
        """The turn ended well."""
        self._end_line()
        self._page.write(
            sections.parsed(
                turn,
                generation,
                tool_start=self._attempt.tool_start,
                tool_end=self._attempt.tool_end,
                seconds=self._clock() - self._started,
            )
        )
        self.ended("finished")

    def ended(self, how: str) -> None:
        """The turn is over: the end mark."""
        self._end_line()
        seconds = self._clock() - self._started
        self._page.write(f"===== end of request {self._number}: {how}, {seconds:.3f} s =====\n\n")
        self._page.close()

    def _sampled(self, tokens: Sequence[int]) -> None:
        """A character that tokens share is written when it is whole."""
        text = self._decoder.decode(self._tokenizer.decode(tokens))
        if text:
            self._page.write(text)
            self._line_open = not text.endswith("\n")

    def _watch_block(self, turn: Turn, attempt: _Attempt) -> None:
        inside = turn.decode_state is not DecodeState.OUTSIDE
        closed = turn.should_stop or turn.held_call
        if attempt.block is _Block.NONE and (inside or closed):
            self._note("tool block entered")
            attempt.block, attempt.tool_start = _Block.OPEN, True
        if attempt.block is _Block.OPEN and closed:
            self._note("tool block closed")
            attempt.block, attempt.tool_end = _Block.CLOSED, True
        if attempt.block is not _Block.NONE and not inside and not closed:
            self._note("tool block taken back: it is part of the reasoning")
            attempt.block = _Block.NONE

    def _note(self, text: str) -> None:
        """Something happened: on a line of its own among what the model writes."""
        start = "\n" if self._line_open else ""
        self._page.write(f"{start}[{self._clock() - self._started:.3f} s: {text}]\n")
        self._line_open = False

    def _end_line(self) -> None:
        tail = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        if tail or self._line_open:
            self._page.write(tail + "\n")
        self._line_open = False
