"""The board: what keys do to a run, and how it looks, without a terminal."""

import os

import pytest

from apps.eval.board import Board, RunClock
from apps.eval.board_view import board_text
from apps.eval.interactive import InteractiveRun
from apps.eval.keys import parse_keys, terminal_keys
from apps.eval.run import Run
from shared.questions.question import Question
from shared.questions.run import AskSettings, Outcome
from shared.questions.think_budget import ThinkLimits
from shared.sampling import GREEDY
from shared.text.events import TextDelta, ThinkingDelta
from tests.support.clock import FakeClock
from tests.support.consoles import terminal
from tests.support.scripts import scripted, turn

QUESTIONS = [
    Question("own", "one", "First question?", "1", "integer", title="One"),
    Question("own", "two", "Second question?", "2", "integer"),
    Question("own", "three", "Third question?", "3", "integer"),
]
TURNS = [
    turn("h", "m", "</think>", *"Answer: 1", match="First"),
    turn("h", "m", "</think>", *"Answer: 2", match="Second"),
    turn("h", "m", "</think>", *"Answer: 4", match="Third"),
]
SETTINGS = AskSettings(ThinkLimits(60, 20, 10, 3), "high", GREEDY, seed=1)


class Player:
    """An interactive run whose user acts when the board looks as `acts` say: pairs of a condition on the
    board and the keys that are then pressed, once each and in order."""

    def __init__(self, *acts, interrupted=lambda: False):
        self.acts, self.told, self.slept = list(acts), [], []
        self.clock = FakeClock()
        engine = scripted(*TURNS)
        self.run = InteractiveRun(
            Run(engine, QUESTIONS, SETTINGS, 2000),
            keys=self.keys,
            show=lambda board: None,
            told=lambda index, question, outcome: self.told.append((index, outcome.status)),
            interrupted=interrupted,
            pause_seconds=0.35,
            clock=self.clock,
            sleep=self.sleep,
        )
        self.board = self.run.board

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.clock.sleep(seconds)

    def keys(self):
        if self.acts and self.acts[0][0](self.board):
            return self.acts.pop(0)[1]
        return []

    def play(self):
        return [outcome.status for outcome in self.run.play()]


def _running(index, done=1):
    return lambda board: board.current == index and board.phase != "FILL" and board.done >= done


def test_untouched_it_asks_all_and_leaves_time_to_see_each_verdict():
    player = Player()
    assert player.play() == ["PASSED", "PASSED", "FAILED"]
    assert player.told == [(0, "PASSED"), (1, "PASSED"), (2, "FAILED")]
    assert player.slept == [0.35] * 3
    assert player.board.selected == 2


def test_enter_runs_the_selected_question_next_and_puts_the_current_one_back():
    player = Player((_running(0, 3), ["down", "down", "run"]))
    assert player.play() == ["PASSED", "PASSED", "FAILED"]
    assert [index for index, _ in player.told] == [2, 0, 1]


def test_a_finished_question_can_be_run_again():
    player = Player((_running(1), ["up", "run"]))
    assert player.play() == ["PASSED", "PASSED", "FAILED"]
    assert [index for index, _ in player.told] == [0, 0, 1, 2]


def test_quitting_stops_and_keeps_what_was_found():
    player = Player((_running(1, 3), ["quit"]))
    assert player.play() == ["PASSED", "STOPPED", "PENDING"]
    assert player.told == [(0, "PASSED"), (1, "STOPPED")]


def test_an_interrupt_does_the_same():
    wished = []
    player = Player(interrupted=lambda: bool(wished))
    player.acts.append((lambda board: _running(1, 3)(board) and not wished.append(1), []))
    assert player.play() == ["PASSED", "STOPPED", "PENDING"]


def test_a_pause_waits_and_does_not_count():
    player = Player((_running(0, 2), ["pause"]))
    player.acts += [(lambda board: board.clock.paused, []) for _ in range(9)]
    player.acts.append((lambda board: board.clock.paused, ["pause"]))
    before = player.clock()
    assert player.play() == ["PASSED", "PASSED", "FAILED"]
    assert player.slept.count(0.05) == 10
    assert player.clock() - before == pytest.approx(0.5 + 3 * 0.35)
    assert player.run.seconds == pytest.approx(3 * 0.35)


def test_one_can_quit_a_pause():
    player = Player((_running(0, 2), ["pause"]), (lambda board: board.clock.paused, ["quit"]))
    assert player.play() == ["STOPPED", "PENDING", "PENDING"]


def test_the_selection_stays_where_it_was_moved():
    player = Player((_running(0), ["down", "down"]), (_running(1), ["up", "up", "up"]))
    seen = []
    player.acts.append((lambda board: seen.append(board.selected) or False, []))
    assert player.play() == ["PASSED", "PASSED", "FAILED"]
    assert player.board.selected == 0


def _board(clock, count=3):
    questions = QUESTIONS if count == 3 else [QUESTIONS[0]] * count
    return Board(questions, SETTINGS, RunClock(clock))


def _lines(board, width=90, height=18):
    text = board_text(board, terminal(width=width).console, width, height)
    lines = text.plain.split("\n")
    assert [len(line) for line in lines] == [width] * height
    return [(line[:46].rstrip(), line[49:].rstrip()) for line in lines]


def test_how_it_looks_while_a_question_runs():
    clock = FakeClock()
    board = _board(clock)
    board.end(0, Outcome("PASSED", "1"))
    board.begin(1)
    board.prefill(50, 100)
    clock.sleep(5)
    assert _lines(board)[0] == (
        "ds4 eval ↑↓ select  Enter run  p pause  q quit",
        "10.0 t/s FILL  50/100 own/two",
    )
    board.token([ThinkingDelta("let me see\n"), ThinkingDelta("well")], 1, True)
    clock.sleep(2)
    board.token([], 4, True)
    lines = _lines(board)
    assert lines[1][0] == "00:00:07"
    assert lines[2][0] == "passed 1, failed 0 of 3"
    assert [line[0] for line in lines[4:7]] == [
        "   1 PASSED  1/1 own/one One",
        ">  2 RUNNING own/two",
        "   3 PENDING own/three",
    ]
    # Of 60 tokens 10 are no room to think in.
    assert lines[0][1] == "2.0 t/s THINK 4/50 own/two"
    assert lines[1][1] == "Second question?"
    assert [line[1] for line in lines[5:8]] == ["let me see", "well", ""]
    board.token([TextDelta("\x1b[2JAnswer: 2")], 5, False)
    assert _lines(board)[0][1].endswith("ANS   5/60 own/two")
    assert _lines(board)[6][1] == "well[2JAnswer: 2"
    board.clock.switch()
    assert _lines(board)[1][0] == "00:00:07  PAUSED"


def test_long_lists_and_texts_are_cut_to_the_screen():
    board = _board(FakeClock(), count=50)
    board.select(30)
    rows = [line[0] for line in _lines(board)[4:]]
    assert len(rows) == 14
    assert [row for row in rows if row.startswith(">")] == ["> 31 PENDING own/one One"]
    board.select(100)
    assert _lines(board)[-1][0] == "> 50 PENDING own/one One"
    board.begin(49)
    board.token([TextDelta("".join(f"line {n}\n" for n in range(100)) + "x" * 100_000 + " end")], 1, False)
    assert _lines(board)[-1][1].endswith("end")
    board.questions = [Question("own", "q", "word " * 200, "1", "integer")] * 50
    assert _lines(board)[3][1].endswith("…")
    assert _lines(board)[4][1] == ""


def test_what_is_kept_of_a_stream_is_bounded():
    board = _board(FakeClock())
    board.begin(0)
    for number in range(10_000):
        board.token([TextDelta(f"{number:>10}")], number, False)
    assert 8000 <= sum(len(text) for text, _ in board.stream) < 8300
    assert len(board.stream) < 40
    assert board.stream[-1][0].endswith("9999")


def test_keys_of_terminals():
    assert parse_keys(b"\x1b[A\x1bOB\rpQ") == (["up", "down", "run", "pause", "quit"], b"")
    assert parse_keys(b"xyz\x1b[5~p") == (["pause"], b"")
    assert parse_keys(b"p\x1b") == (["pause"], b"\x1b")
    assert parse_keys(b"\x1b[") == ([], b"\x1b[")


def test_keys_are_read_without_waiting():
    ours, theirs = os.pipe()
    try:
        keys = terminal_keys(ours)
        assert keys() == []
        os.write(theirs, b"p\x1b")
        assert keys() == ["pause"]
        os.write(theirs, b"[A")
        assert keys() == ["up"]
        os.close(theirs)
        assert keys() == ["quit"]
    finally:
        os.close(ours)


def test_colours_are_those_of_the_theme():
    board = _board(FakeClock())
    board.end(0, Outcome("FAILED", "7"))
    recorded = terminal(width=90)
    recorded.console.print(board_text(board, recorded.console, 90, 18))
    assert "\x1b[31mFAILED" in recorded.text
