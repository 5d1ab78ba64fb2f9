"""A run on a terminal: keys, frames, and the terminal as it was in the end, however the run ends."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from apps.chat.quiet_terminal import quiet_terminal
from apps.eval.board_view import LEAST_HEIGHT, LEAST_WIDTH, board_text
from apps.eval.interactive import InteractiveRun
from apps.eval.keys import terminal_keys
from apps.eval.run import Run, begin_trace, finish
from apps.trace import TraceFile
from shared.errors import Cancelled
from shared.questions.question import Question
from shared.questions.run import Outcome
from shared.questions.trace import case_text
from shared.session import CancelCheck

if TYPE_CHECKING:
    from rich.console import Console

    from apps.eval.board import Board


def has_room(out: Console) -> bool:
    """Whether the board can be shown: a terminal for keys and frames, large enough."""
    terminals = out.is_terminal and not out.is_dumb_terminal and sys.stdin is not None and sys.stdin.isatty()
    return terminals and out.size.width >= LEAST_WIDTH and out.size.height >= LEAST_HEIGHT


def run_board(
    run: Run, *, out: Console, trace: TraceFile | None, cancelled: CancelCheck, pause_seconds: float
) -> list[Outcome]:
    """Ask the questions under the user's eyes and print the report. Raises Cancelled after the report, if
    the run was interrupted."""
    from rich.live import Live

    begin_trace(run, trace)

    def told(index: int, question: Question, outcome: Outcome) -> None:
        if trace is not None:
            trace.write(case_text(index + 1, len(run.questions), question, outcome))

    # With output of its own in between, a frame would be torn.
    live = Live(console=out, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    with quiet_terminal(), live:

        def show(board: Board) -> None:
            live.update(board_text(board, out, out.size.width, out.size.height), refresh=True)

        player = InteractiveRun(
            run,
            keys=terminal_keys(sys.stdin.fileno()),
            show=show,
            told=told,
            interrupted=cancelled,
            pause_seconds=pause_seconds,
            clock=time.monotonic,
        )
        outcomes = player.play()
    finish(run, outcomes, player.seconds, out=out, trace=trace)
    if cancelled():
        raise Cancelled("stopped: the questions that were not asked are PENDING")
    return outcomes
