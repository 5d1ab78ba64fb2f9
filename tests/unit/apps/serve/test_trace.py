"""The entry of one turn: text as it was sampled, notes between, escapes, blocks that were none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.serve.trace import ServerTrace, local_time
from apps.serve.trace_sections import escaped, windows
from apps.serve.turn_request import Ask, TurnRequest
from apps.trace import TraceFile
from shared.generate import Generation, GenerationSettings
from shared.kv.live.prompt import Prompt
from shared.sampling import Sampling
from shared.scripted.vocabulary import tokenizer, tokens_of
from shared.text.events import EndCause
from shared.text.messages import Message
from shared.text.segments import Segment, SegmentKind
from shared.text.template import render_chat
from shared.text.turn import Turn
from tests.support.clock import FakeClock
from tests.support.turns import ANY_TOOLS, BASH, new_turn


def _request(*, tools: bool = True) -> TurnRequest:
    messages = [Message("user", "u")]
    generation = GenerationSettings(Sampling(), 100, stop=("é",))
    ask = Ask("chat", "m", True, messages, ANY_TOOLS if tools else None, "high", generation)
    segments = render_chat(messages, None, effort="high", profile="official")
    return TurnRequest(ask, "req", Prompt(segments, []))


def _generation(tokens: Sequence[int], cause: EndCause | None = None) -> Generation:
    """As much of a generation as a trace looks at."""
    return cast("Generation", SimpleNamespace(tokens=[*tokens], finished=cause is not None, cause=cause))


class _Entry:
    """The trace of one turn after its header."""

    def __init__(self, path: Path, *, tools: bool = True) -> None:
        self.clock = FakeClock()
        self._path = path
        self.file = TraceFile(path, say=pytest.fail)
        turn = ServerTrace(self.file, now=_noon, clock=self.clock).begin(_request(tools=tools), tokenizer())
        assert turn is not None
        self.trace = turn
        self._header = path.stat().st_size

    @property
    def text(self) -> str:
        return self._path.read_bytes()[self._header :].decode()

    @property
    def notes(self) -> list[str]:
        """What happened, but for the counts of tokens."""
        notes = [line.split(" s: ")[1][:-1] for line in self.text.splitlines() if line.startswith("[")]
        return [note for note in notes if not note.endswith(" tokens")]


def _noon() -> datetime:
    return datetime(2026, 1, 2, 12, 0, 0, 6000, UTC)


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., _Entry]]:
    """Begins the entry of a turn."""
    entries: list[_Entry] = []

    def make(**options: Any) -> _Entry:
        entries.append(_Entry(tmp_path / str(len(entries)), **options))
        return entries[-1]

    yield make
    for entry in entries:
        entry.file.close()


Begin = Callable[..., _Entry]


def _play(entry: _Entry, pieces: Sequence[str | bytes], turn: Turn, cause: EndCause = "eos") -> None:
    """Feed a turn piece by piece, as a generation does."""
    tokens: list[int] = []
    for piece in pieces:
        tokens += tokens_of(piece) if isinstance(piece, str) else list(piece)
        turn.feed(piece.encode() if isinstance(piece, str) else piece)
        entry.trace.token(_generation(tokens), turn)
    turn.finish(cause)
    entry.trace.token(_generation(tokens, cause), turn)


def test_a_character_is_written_whole_and_a_broken_one_escaped(begin: Begin) -> None:
    entry = begin()
    _play(entry, [b"a\xc3", b"\xa9 ", b"\xff\xf0\x9f"], new_turn(tools=None))
    assert entry.text == "aé \\xff"
    entry.trace.ended("x")
    assert entry.text == "aé \\xff\\xf0\\x9f\n===== end of request 1: x, 0.000 s =====\n\n"


def test_notes_stand_on_lines_of_their_own_with_the_time(begin: Begin) -> None:
    entry = begin()
    entry.clock.now = 1.5
    _play(entry, ["x" * 127, "y", "\n", "z" * 126, "\n"], new_turn())
    assert entry.text == f"{'x' * 127}y\n[1.500 s: 128 tokens]\n\n{'z' * 126}\n[1.500 s: 256 tokens]\n"


def test_without_tools_there_are_no_notes_of_progress(begin: Begin) -> None:
    entry = begin(tools=False)
    _play(entry, ["x" * 300, BASH], new_turn(tools=None))
    assert entry.text == "x" * 300 + BASH


@pytest.mark.parametrize("cut", [1, 7, len(BASH)])
def test_a_block_is_entered_and_closed_however_it_comes(begin: Begin, cut: int) -> None:
    entry = begin()
    _play(entry, [BASH[at : at + cut] for at in range(0, len(BASH), cut)], new_turn(), "tool")
    assert entry.notes == ["tool block entered", "tool block closed"]


def test_a_block_whose_end_is_known_only_at_the_end_is_closed_too(begin: Begin) -> None:
    """Stop strings may hold the closing tag back until nothing more comes."""
    entry, turn = begin(), new_turn()
    turn.feed(BASH.encode())
    turn.finish("tool")
    entry.trace.token(_generation(tokens_of(BASH), "tool"), turn)
    assert entry.notes == ["tool block entered", "tool block closed"]


@pytest.mark.parametrize("cause", ["eos", "length"])
def test_a_block_that_the_end_cuts_was_never_closed(begin: Begin, cause: EndCause) -> None:
    entry = begin()
    _play(entry, [BASH[: len(BASH) // 2]], new_turn(), cause)
    assert entry.notes == ["tool block entered"]


def test_a_block_that_thinking_takes_back_was_none(begin: Begin) -> None:
    entry = begin()
    _play(entry, ["plan\n\n", BASH, " no", "</think>", "ok"], new_turn(thinking=True))
    assert entry.notes == [
        "tool block entered",
        "tool block closed",
        "tool block taken back: it is part of the reasoning",
    ]


def test_a_second_attempt_starts_with_nothing_of_the_first(begin: Begin) -> None:
    entry = begin()
    _play(entry, [BASH, "x\xe4".encode("latin-1")], new_turn())
    entry.trace.retried([Segment(b"again", SegmentKind.TEXT)])
    _play(entry, [b"\xb8y"], new_turn())
    _, _, rest = entry.text.partition("x\\xe4\n")
    assert rest == (
        "[0.000 s: recovery: the tool call could not be read, the model is asked again]\n"
        "--- told: 5 bytes ---\nagain\n--- generated again ---\n\\xb8y"
    )


def test_turns_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    with TraceFile(path, say=pytest.fail) as file:
        trace = ServerTrace(file, now=_noon)
        for _ in range(2):
            turn = trace.begin(_request(), tokenizer())
            assert turn is not None
            turn.ended("finished")
    lines = path.read_text().splitlines()
    stamp = "2026-01-02 12:00:00.006+00:00"
    headers = [line for line in lines if line.startswith("===== request")]
    assert headers == [f"===== request {number} {stamp} req=req =====" for number in (1, 2)]
    assert lines[1] == 'kind=chat model="m" stream=yes include_usage=no tools=0 think=high'
    assert lines[2].endswith('seed=random stop=["é"]')


def test_a_file_that_cannot_be_written_ends_the_work_too() -> None:
    said: list[str] = []
    with TraceFile(Path("/dev/full"), say=said.append) as file:
        trace = ServerTrace(file)
        assert trace.begin(_request(), tokenizer()) is not None
        assert trace.begin(_request(), tokenizer()) is None
    assert len(said) == 1


def test_the_time_is_local_and_says_so() -> None:
    assert local_time().utcoffset() is not None


def test_escapes() -> None:
    assert escaped(b"plain \xc3\xa9") == '"plain é"'
    assert escaped(b'a"b\\c\nd\x1b\x7f') == '"a\\"b\\\\c\\nd\\x1b\\x7f"'
    assert escaped(b"\xe4\xb8") == '"\\xe4\\xb8"'
    assert escaped("\u200b\U000e0001".encode()) == '"\\u200b\\U000e0001"'


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_escapes_are_one_printable_line_and_keep_differences(left: bytes, right: bytes) -> None:
    assert escaped(left).isprintable()
    assert (escaped(left) == escaped(right)) == (left == right)


def test_a_window_ends_where_the_tokens_end() -> None:
    live, prompt = list(b"abcdefghijklmnopqrstuvwxyz"), list(b"abX")
    assert windows(live, prompt, 2, tokenizer()) == (
        'live around 2:\n  0 97 "a"\n  1 98 "b"\n> 2 99 "c"\n  3 100 "d"\n  4 101 "e"\n  5 102 "f"\n'
        '  6 103 "g"\n  7 104 "h"\n  8 105 "i"\n  9 106 "j"\n'
        'prompt around 2:\n  0 97 "a"\n  1 98 "b"\n> 2 88 "X"\n'
    )
