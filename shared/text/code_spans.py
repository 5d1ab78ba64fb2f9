"""Follows Markdown code in one channel: fences and inline spans, decided as early as the bytes allow.

Told about line breaks, blanks, text and runs of backticks or tildes; answers whether the current place is in
code. Knows nothing of tags, and never sees the bytes themselves.

A fence opens at a line start with three or more backticks (none further on its line) or tildes and counts
only if it closes at a line start with at least as many. An inline span runs from n backticks to the next n on
the same line; a line break ends it unclosed, and then it was none.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import Final

_FENCE: Final = 3
# A fence may be indented by this many blanks, as in Markdown.
_INDENT: Final = 3
_TICK: Final = ord("`")


class Code(Enum):
    """NONE: not in code. SURE: in code that is known to close. SPAN, FENCE: in code that may prove none."""

    NONE = "none"
    SURE = "sure"
    SPAN = "span"
    FENCE = "fence"


class CodeSpans:
    """The code state of one channel."""

    def __init__(self) -> None:
        self.line_blank = True
        self._indent = 0
        self._reset()

    def _reset(self) -> None:
        self._code = Code.NONE
        self._opener = 0  # length of the opening run
        self._fence_byte = _TICK
        self._maybe_fence = False  # the opening run stands at a line start and no tick followed on its line
        self._runs: list[int] = []  # ticks after the opening run of an undecided span, on its line
        self._runs_before_hold: int | None = None
        self._ahead: Counter[int] | None = None  # a line read before: the runs that are still to come on it
        self._run = 0
        self._run_byte = _TICK
        self._run_at_start = False

    @property
    def state(self) -> Code:
        return Code.FENCE if self._maybe_fence else self._code

    def blanks(self, count: int) -> None:
        """Blanks that stand before anything else on their line."""
        self._end_run()
        self._indent += count

    def text(self) -> None:
        """Anything that is no blank, tick or line break."""
        self._end_run()
        self.line_blank = False

    def run(self, byte: int, count: int) -> None:
        """`count` backticks or tildes; a run may arrive in pieces. Another byte's run must be settled."""
        if not self._run:
            self._run_at_start = self.line_blank and self._indent <= _INDENT
            self._run_byte = byte
        self._run += count
        self.line_blank = False

    def settle(self, next_byte: int = 0) -> None:
        """Unless `next_byte` continues it, the current run has ended."""
        if next_byte != self._run_byte:
            self._end_run()

    def line_break(self) -> None:
        """A line ends. An undecided span must have been given up before."""
        self._end_run()
        if self._maybe_fence:
            self._maybe_fence = False
            self._code = Code.FENCE
        self._ahead = None
        self.line_blank = True
        self._indent = 0

    def hold(self) -> None:
        """Output is held from here until the code closes."""
        self._runs_before_hold = len(self._runs)

    def fail(self) -> None:
        """The undecided span was none. The state becomes that of the place where the hold began.

        The runs behind it are known now, so reading the held bytes again decides every span at once.
        """
        ahead = Counter(self._runs)
        inside = 0
        for length in self._runs[: self._runs_before_hold]:
            ahead[length] -= 1
            if inside:
                inside = 0 if length == inside else inside
            elif ahead[length]:
                inside = length
        self._reset()
        self._ahead = ahead
        self._opener = inside
        self._code = Code.SURE if inside else Code.NONE

    def leave(self) -> None:
        """Something opaque stood here: no code is open behind it, and no line starts there."""
        self._reset()
        self.line_blank = False

    def _end_run(self) -> None:
        length, self._run = self._run, 0
        if not length:
            return
        if self._run_byte != _TICK:
            self._tildes(length)
        elif self._ahead is not None:
            self._known_ticks(length, self._ahead)
        else:
            self._ticks(length)

    def _tildes(self, length: int) -> None:
        if not self._run_at_start or length < _FENCE:
            return
        if self._code is Code.NONE:
            self._code, self._opener, self._fence_byte = Code.FENCE, length, self._run_byte
        else:
            self._close_fence(length)

    def _ticks(self, length: int) -> None:
        if self._code is Code.FENCE:
            self._close_fence(length)
        elif self._code is Code.NONE:
            self._code, self._opener, self._fence_byte = Code.SPAN, length, _TICK
            self._maybe_fence = self._run_at_start and length >= _FENCE
        elif length == self._opener:
            self._reset()
        else:
            self._maybe_fence = False
            self._runs.append(length)

    def _known_ticks(self, length: int, ahead: Counter[int]) -> None:
        ahead[length] -= 1
        if self._code is Code.SURE:
            if length == self._opener:
                self._code = Code.NONE
        elif ahead[length]:
            self._code, self._opener = Code.SURE, length

    def _close_fence(self, length: int) -> None:
        if self._run_at_start and self._run_byte == self._fence_byte and length >= self._opener:
            self._reset()
