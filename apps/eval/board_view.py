"""How the board looks: the list on the left, the running question on the right. Spec: apps §3.6.

Knows a board and a size in cells; nothing of keys and of how a screen is refreshed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from apps.chat.reply_printer import printable
from apps.eval.board import Board

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

LEAST_WIDTH, LEAST_HEIGHT = 90, 18
_LIST_WIDTH = 46
_HEAD_LINES = 4  # above the list
_QUESTION_LINES = 3
_STYLES: Final = {
    "PASSED": "ds4.ok",
    "FAILED": "ds4.error",
    "SKIPPED": "ds4.warning",
    "STOPPED": "ds4.warning",
    "PREFILL": "ds4.timing",
    "RUNNING": "ds4.timing",
    "PENDING": "ds4.muted",
}
_PHASE_STYLES: Final = {"PASS": "ds4.ok", "FAIL": "ds4.error", "THINK": "ds4.thinking"}


def board_text(board: Board, console: Console, width: int, height: int) -> Text:
    """The whole screen: `height` lines of `width` cells."""
    from rich.text import Text

    left = _left(board, height)
    right = _right(board, console, width - _LIST_WIDTH - 3, height)
    lines = []
    for row in range(height):
        line = left[row] if row < len(left) else Text()
        line.truncate(_LIST_WIDTH, overflow="ellipsis", pad=True)
        line.append(" │ ", "ds4.muted")
        if row < len(right):
            line.append_text(right[row])
        line.truncate(width, overflow="ellipsis", pad=True)
        lines.append(line)
    return Text("\n", no_wrap=True, end="").join(lines)


def _left(board: Board, height: int) -> list[Text]:
    from rich.text import Text

    seconds = int(board.clock())
    time = Text(f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}")
    if board.clock.paused:
        time.append("  PAUSED", "ds4.warning")
    score = f"passed {board.count('PASSED')}, failed {board.count('FAILED')} of {len(board.questions)}"
    head = [Text("ds4 eval ↑↓ select  Enter run  p pause  q quit", "ds4.prompt"), time, Text(score), Text()]
    room = height - _HEAD_LINES
    first = min(max(0, board.selected - room // 2), max(0, len(board.questions) - room))
    return head + [_row(board, index) for index in range(first, min(first + room, len(board.questions)))]


def _row(board: Board, index: int) -> Text:
    from rich.text import Text

    question, outcome = board.questions[index], board.outcomes[index]
    line = Text(">" if index == board.selected else " ")
    line.append(f"{index + 1:>3} ")
    line.append(f"{outcome.status:<8}", _STYLES[outcome.status])
    if outcome.status in ("PASSED", "FAILED"):
        line.append(f"{outcome.picked}/{question.answer} ")
    line.append(question.name)
    if question.title:
        line.append(f" {question.title}", "ds4.muted")
    return line


def _right(board: Board, console: Console, width: int, height: int) -> list[Text]:
    from rich.text import Text

    question = board.questions[board.shown]
    top = Text(f"{board.speed:.1f} t/s ")
    top.append(f"{board.phase:<5}", _PHASE_STYLES.get(board.phase, "ds4.timing"))
    top.append(f" {board.done}/{board.total} {question.name}")
    asked = list(Text(printable(question.question), "blue").wrap(console, width))
    if len(asked) > _QUESTION_LINES:
        asked = asked[:_QUESTION_LINES]
        asked[-1].truncate(width - 1)
        asked[-1].append("…")
    asked += [Text()] * (_QUESTION_LINES + 1 - len(asked))
    stream = Text()
    for text, thinking in board.stream:
        stream.append(printable(text), "ds4.thinking" if thinking else None)
    stream.expand_tabs(4)
    room = height - 1 - len(asked)
    return [top, *asked, *list(stream.wrap(console, width))[-room:]]
