"""What the script makes the engine do: turns, delays, faults, the journal."""

from __future__ import annotations

import io
import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from shared.errors import Cancelled, EngineFault, PayloadError, UsageError
from shared.sampling import GREEDY
from shared.scripted import ScriptedEngine, load
from shared.scripted.pauses import Pauses, hold_interpreter
from shared.scripted.session import ScriptedSession
from shared.scripted.vocabulary import CONTROL, END_OF_TURN
from tests.support.clock import FakeClock
from tests.support.scripted import scripted

PROMPT = list(b"some prompt")
USER, ASSISTANT, THINK = CONTROL["<｜User｜>"], CONTROL["<｜Assistant｜>"], CONTROL["<think>"]


def said(live: ScriptedSession) -> str:
    """Decode the whole turn; returns its text."""
    text = b""
    while (tokens := (picked := live.pick(GREEDY)).tokens()) != [END_OF_TURN]:
        live.submit(picked)
        text += bytes(tokens)
    return text.decode()


def ask(live: ScriptedSession, message: str = "hello") -> str:
    live.sync([*live.tokens, USER, *message.encode(), ASSISTANT, THINK])
    return said(live)


# -- which turn --------------------------------------------------------------------------------------------


def test_turns_serve_in_order_and_the_last_repeats() -> None:
    live = scripted(["one"], ["two"]).open_session(1000)
    assert [ask(live) for _ in range(4)] == ["one", "two", "two", "two"]


@pytest.mark.parametrize(
    ("after", "expected"),
    [("cycle", ["one", "two", "one", "two", "one"]), ("eos", ["one", "two", "", "", ""])],
)
def test_after_the_last_turn(after: str, expected: list[str]) -> None:
    live = scripted(["one"], ["two"], after=after).open_session(1000)
    assert [ask(live) for _ in range(5)] == expected


def test_no_turns_at_all() -> None:
    assert ask(scripted(after="eos").open_session(100)) == ""


def test_sessions_share_the_turns() -> None:
    engine = scripted(["one"], ["two"], ["three"])
    first, second = engine.open_session(1000), engine.open_session(1000)
    assert [ask(first), ask(second), ask(first)] == ["one", "two", "three"]


def test_match_looks_at_the_last_message() -> None:
    live = scripted(["one"], {"pieces": ["title!"], "match": "title"}, ["two"]).open_session(1000)
    assert ask(live, "hello") == "one"
    assert ask(live, "make a title of it") == "title!"
    assert ask(live, "hello") == "two"  # the word stands only in an earlier message
    assert ask(live, "a title again") == "title!"  # nothing unused is left: what fits repeats


def test_match_ignores_earlier_messages_and_answers() -> None:
    live = scripted(["plain"], {"pieces": ["matched"], "match": "word"}).open_session(1000)
    live.sync([*b"word", USER, *b"word", ASSISTANT, *b"so", USER, *b"hello", ASSISTANT, *b"word", THINK])
    assert said(live) == "plain"


def test_match_that_never_occurs_is_not_served() -> None:
    live = scripted({"pieces": ["secret"], "match": "xyz"}).open_session(1000)
    assert ask(live) == ""
    assert ask(live, "now xyz") == "secret"


def test_a_prompt_synced_in_parts_is_one_request() -> None:
    live = scripted(["one"], {"pieces": ["matched"], "match": "word"}, ["two"]).open_session(1000)
    prompt = [USER, *b"first", ASSISTANT, THINK]
    for end in (3, 6, len(prompt), len(prompt)):
        live.sync(prompt[:end])
    assert said(live) == "one"
    more = [*live.tokens, USER, *b"a word", ASSISTANT, THINK]
    live.sync(more[:-5])
    live.sync(more)
    assert said(live) == "matched"
    assert ask(live) == "two"


def test_a_cancelled_prefill_has_taken_its_turn() -> None:
    live = scripted(["one"], ["two"]).open_session(1000)
    with pytest.raises(Cancelled):
        live.sync(PROMPT, cancelled=lambda: True)
    assert ask(live) == "two"


def test_a_request_that_is_too_long_takes_no_turn() -> None:
    live = scripted(["one"], ["two"]).open_session(20)
    with pytest.raises(Exception, match="context"):
        live.sync(PROMPT * 2)
    live.sync(PROMPT)
    assert said(live) == "one"


def test_a_rewound_session_takes_the_next_turn() -> None:
    live = scripted(["one"], ["two"]).open_session(1000)
    live.sync(PROMPT)
    mark = live.mark()
    live.rewind(mark)
    live.sync([*PROMPT, 1])
    assert said(live) == "two"


# -- slowness ----------------------------------------------------------------------------------------------


def test_delays_of_pieces() -> None:
    clock = FakeClock()
    turn = {
        "pieces": ["ab", {"text": "c", "delay_s": 3.0}, {"hex": "64", "delay_s": 0}],
        "piece_delay_s": 0.5,
    }
    live = scripted(turn, clock=clock).open_session(100)
    live.sync(PROMPT)
    picked = live.pick(GREEDY)
    live.submit(picked)
    assert clock.now == 0  # neither blocks
    assert picked.value() == picked.tokens()[0] == ord("a")
    assert clock.now == 0.5
    assert said(live) == "cd"
    assert clock.now == 3.5


def test_a_submitted_pick_is_waited_for_before_the_next_work() -> None:
    clock = FakeClock()
    live = scripted({"pieces": ["ab", "c"], "piece_delay_s": 1.0}, clock=clock).open_session(100)
    live.sync(PROMPT)
    live.submit(live.pick(GREEDY))
    assert (live.position, clock.now) == (len(PROMPT) + 2, 0)
    assert (live.tokens, clock.now) == ([*PROMPT, *b"ab"], 1.0)
    live.submit(live.pick(GREEDY))
    live.logits()
    assert clock.now == 2.0


def test_prefill_speed_and_stalls() -> None:
    clock = FakeClock()
    held: list[float] = []
    turn = {"pieces": [], "prefill_s_per_1000_tokens": 2.0, "prefill_block_s": 7.0, "prefill_spin_s": 5.0}
    engine = scripted(turn, prefill_chunk=500, clock=clock)
    engine.pauses = Pauses(clock.sleep, held.append)
    times: list[tuple[int, float]] = []
    live = engine.open_session(5000)
    live.sync([1] * 1500, lambda done, total: times.append((done, round(clock.now, 6))))
    assert times == [(0, 0), (500, 8.0), (1000, 9.0), (1500, 10.0)]
    assert held == [5.0]
    live.sync([1] * 2000)
    assert clock.slept.count(7.0) == 1


def test_a_slow_prefill_step_can_be_cancelled() -> None:
    clock = FakeClock()
    turn = {"pieces": [], "prefill_s_per_1000_tokens": 1000.0}
    live = scripted(turn, prefill_chunk=100, clock=clock).open_session(5000)
    with pytest.raises(Cancelled):
        live.sync([1] * 200, cancelled=lambda: clock.now > 150)
    assert live.position == 100
    assert clock.now < 151


def test_a_prefill_cancelled_at_once_does_not_stall() -> None:
    clock = FakeClock()
    live = scripted({"pieces": [], "prefill_block_s": 9.0}, clock=clock).open_session(100)
    with pytest.raises(Cancelled):
        live.sync(PROMPT, cancelled=lambda: True)
    assert clock.slept == []


def test_a_piece_taken_token_by_token_is_delayed_once() -> None:
    clock = FakeClock()
    live = scripted({"pieces": ["abc"], "piece_delay_s": 1.0}, clock=clock).open_session(100)
    live.sync(PROMPT)
    everything = np.ones(live.logits().size, dtype=bool)
    for letter in b"abc":
        picked = live.pick(GREEDY, allowed=everything)
        assert picked.tokens() == [letter]
        live.submit(picked)
    assert clock.now == 1.0


def test_slow_saves() -> None:
    clock = FakeClock()
    snapshot = {"fixed_bytes": 4_000_000, "save_s_per_mb": 0.5}
    live = scripted([], snapshot=snapshot, clock=clock).open_session(100)
    live.sync(PROMPT)
    live.save(io.BytesIO())
    assert clock.now == pytest.approx(2.0)


def test_holding_the_interpreter_stops_other_threads() -> None:
    ticks: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.monotonic())
            done.wait(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        while not ticks:
            time.sleep(0.001)
        started = time.monotonic()
        hold_interpreter(0.2)
        ended = time.monotonic()
    finally:
        done.set()
        thread.join()
    assert ended - started >= 0.2
    # The other thread may get in before the call and after it, never in between.
    assert not [tick for tick in ticks if started + 0.05 < tick < started + 0.195]


# -- faults ------------------------------------------------------------------------------------------------


def failing(at: str, after: int = 0) -> dict[str, object]:
    return {"pieces": ["a", "b", "c"], "fail": {"at": at, "after": after}}


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_decode_fails_instead_of_a_piece(after: int) -> None:
    live = scripted(failing("decode", after), ["next"]).open_session(100)
    live.sync(PROMPT)
    for _ in range(after):
        live.submit(live.pick(GREEDY))
    picked = live.pick(GREEDY)
    live.submit(picked)
    with pytest.raises(EngineFault):
        picked.tokens()
    assert live.position == 0
    assert ask(live) == "next"


def test_prefill_fails_instead_of_a_step() -> None:
    live = scripted(failing("prefill", 2), ["next"], prefill_chunk=4).open_session(100)
    seen: list[int] = []
    with pytest.raises(EngineFault):
        live.sync([1] * 20, lambda done, total: seen.append(done))
    assert (seen, live.position) == ([0, 4, 8], 0)
    assert ask(live) == "next"


def test_save_fails_once() -> None:
    live = scripted(failing("save", 1), ["next"]).open_session(100)
    live.sync(PROMPT)
    assert live.save(io.BytesIO()) > 0
    with pytest.raises(EngineFault):
        live.save(io.BytesIO())
    live.sync(PROMPT)
    assert live.save(io.BytesIO()) > 0


def test_load_fails_for_the_turn_that_comes_next() -> None:
    live = scripted(["one"], failing("load"), ["three"]).open_session(100)
    assert ask(live) == "one"
    payload = live.snapshot()
    with pytest.raises(PayloadError):
        live.load(io.BytesIO(payload), len(payload))
    assert live.position == 0
    live.load(io.BytesIO(payload), len(payload))
    assert ask(live) == "abc"


def test_sync_after_a_load_fails() -> None:
    live = scripted(["one"], failing("sync-after-load"), ["three"]).open_session(100)
    assert ask(live) == "one"
    payload = live.snapshot()
    live.load(io.BytesIO(payload), len(payload))
    with pytest.raises(EngineFault):
        live.sync([*live.tokens, 1])
    live.sync(PROMPT)
    assert said(live) == "three"


# -- what it says of itself, and what it notes -------------------------------------------------------------


def test_engine_properties() -> None:
    engine = scripted([], engine={"name": "Toy", "model_id": 1, "quant_bits": 4}, prefill_chunk=64)
    assert (engine.backend, engine.name, engine.model_id, engine.quant_bits) == ("scripted", "Toy", 1, 4)
    assert engine.shape.vocabulary_size == engine.tokenizer.vocabulary_size
    assert (engine.shape.variant, engine.prefill_chunk) == ("test", 64)
    assert engine.memory_plan(1000).total == 4000
    assert engine.notes
    with pytest.raises(ValueError, match="at least one token"):
        engine.open_session(0)


def test_journal_file(tmp_path: Path) -> None:
    file, journal = tmp_path / "script.json", tmp_path / "journal.jsonl"
    file.write_text(json.dumps({"turns": [{"pieces": ["ab"]}], "journal": str(journal)}))
    engine = load(file, power=50)
    assert isinstance(engine, ScriptedEngine)
    assert engine.power.percent == 50
    live = engine.open_session(100)
    live.sync(PROMPT)
    live.submit(live.pick(GREEDY))
    live.sync([*PROMPT, *b"ab", 1, 2])
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [set(line) for line in lines] == [{"t", "turn", "call", "tokens", "reused", "evaluated"}] * 4
    assert [
        (line["call"], line["turn"], line["tokens"], line["reused"], line["evaluated"]) for line in lines
    ] == [
        ("sync", 0, 11, 0, 11),
        ("pick", 0, 2, 0, 0),
        ("submit", 0, 2, 0, 0),
        ("sync", 0, 15, 13, 2),
    ]
    assert [entry.call for entry in engine.journal.entries] == [line["call"] for line in lines]
    engine.close()


def test_journal_notes_every_call_and_failure() -> None:
    engine = scripted(failing("prefill", 1), failing("load"), prefill_chunk=8)
    live = engine.open_session(100)
    with pytest.raises(EngineFault):
        live.sync(PROMPT)
    live.sync([1])
    mark = live.mark()
    live.submit(1)
    live.undo()
    payload = live.snapshot()
    live.save(io.BytesIO())
    live.rewind(mark)
    live.restore(payload)
    live.invalidate()
    live.close()
    entries = [(e.call, e.turn, e.tokens, e.evaluated) for e in engine.journal.entries]
    assert entries == [
        ("sync", 0, 11, 0),
        ("sync", 1, 1, 1),
        ("mark", 1, 1, 0),
        ("submit", 1, 1, 0),
        ("undo", 1, 1, 0),
        ("snapshot", 1, 1, 0),
        ("save", 1, 1, 0),
        ("rewind", 1, 1, 0),
        ("restore", 1, 1, 0),
        ("invalidate", None, 0, 0),
        ("close", None, 0, 0),
    ]


def test_journal_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write the journal"):
        scripted([], journal=str(tmp_path / "missing" / "journal"))
