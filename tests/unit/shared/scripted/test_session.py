"""The scripted session's timeline: sync, marks, undo, snapshots, saved payloads."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import Cancelled, ContextFullError, PayloadError, SessionInvalid
from shared.sampling import GREEDY, Sampling, choose
from shared.scripted.session import ScriptedSession
from shared.scripted.vocabulary import CONTROL, END_OF_TURN, TOKENS, tokenizer
from tests.support.scripted import scripted

PROMPT = list(b"some prompt")


def session(*turns, context: int = 256, **script) -> ScriptedSession:
    return scripted(*(turns or (["abc", "de"],)), **script).open_session(context)


def step(live: ScriptedSession, **choice) -> list[int]:
    picked = live.pick(GREEDY, **choice)
    live.submit(picked)
    return picked.tokens()


# -- vocabulary and pieces ---------------------------------------------------------------------------------


def test_vocabulary_is_the_bytes_and_the_control_tokens() -> None:
    assert [tokenizer().token_bytes(i) for i in range(256)] == [bytes([i]) for i in range(256)]
    assert all(tokenizer().token_bytes(token) == mark.encode() for mark, token in CONTROL.items())
    assert tokenizer().vocabulary_size == len(TOKENS) == 256 + len(CONTROL)
    assert tokenizer().specials.eos == END_OF_TURN


def test_pieces_as_steps() -> None:
    live = session(
        [
            "hé",
            "</think>",
            "a</think>",
            {"plain": "</think>"},
            {"hex": "F09F"},
            {"tokens": ["x", "｜DSML｜", "yz"]},
            {"text": "<think>"},
        ]
    )
    live.sync(PROMPT)
    assert [step(live) for _ in range(9)] == [
        list("hé".encode()),
        [CONTROL["</think>"]],
        list(b"a</think>"),
        list(b"</think>"),
        [0xF0, 0x9F],
        [ord("x"), CONTROL["｜DSML｜"], ord("y"), ord("z")],
        [CONTROL["<think>"]],
        [END_OF_TURN],
        [END_OF_TURN],
    ]


def test_without_end_token_spaces_follow() -> None:
    live = session({"pieces": ["a"], "eos": False})
    live.sync(PROMPT)
    assert [step(live) for _ in range(3)] == [[97], [32], [32]]


def test_single_submits_walk_through_a_piece() -> None:
    live = session(["abc", "d"])
    live.sync(PROMPT)
    live.submit(ord("a"))
    assert step(live) == list(b"bc")
    live.submit(ord("X"))  # nothing that the script expects: it goes on where it was
    assert step(live) == [ord("d")]


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(), Sampling(temperature=100.0, min_p=0.0)])
def test_logits_choose_the_scripted_piece(sampling: Sampling) -> None:
    live = session(["ab", "</think>"])
    live.sync(PROMPT)
    for expected in (ord("a"), ord("b"), CONTROL["</think>"], END_OF_TURN):
        logits = live.logits()
        assert (logits.shape, logits.dtype) == ((len(TOKENS),), np.float32)
        assert choose(logits, sampling, 0.5) == expected
        live.submit(expected)


# -- masks and distributions -------------------------------------------------------------------------------


def allow(text: str) -> np.ndarray:
    mask = np.zeros(len(TOKENS), dtype=bool)
    mask[list(text.encode())] = True
    return mask


def test_mask_takes_the_first_allowed_alternative_token_by_token() -> None:
    live = session([{"text": "Sure", "else": ['{"b"}', '{"a"}']}, "!"])
    live.sync(PROMPT)
    assert choose(live.logits(), GREEDY, 0.0, allow("{}")) == ord("{")
    assert step(live, allowed=allow("{}")) == [ord("{")]
    assert step(live, allowed=allow('"')) == [ord('"')]
    assert step(live, allowed=allow("ab")) == [ord("b")]
    assert step(live) == list(b'"}')
    assert step(live) == [ord("!")]


def test_mask_narrows_to_the_alternative_that_fits_what_was_emitted() -> None:
    live = session([{"text": '{"b"}', "else": ["Sure", '{"a"}']}])
    live.sync(PROMPT)
    for allowed in ("S{", '"', "a", '"', "}"):
        (token,) = step(live, allowed=allow(allowed))
        assert chr(token) in allowed
    assert bytes(live.tokens[len(PROMPT) :]) == b'{"a"}' or bytes(live.tokens[len(PROMPT) :]) == b"Sure"


def test_logits_rank_alternatives_in_their_order() -> None:
    live = session([{"text": "ab", "else": ["x", "ac"]}])
    live.sync(PROMPT)
    assert choose(live.logits(), GREEDY) == ord("a")
    assert choose(live.logits(), GREEDY, 0.0, allow("xz")) == ord("x")


def test_mask_without_an_allowed_alternative_fails_the_turn() -> None:
    live = session([{"text": "a", "else": ["b"]}])
    live.sync(PROMPT)
    picked = live.pick(GREEDY, allowed=allow("xyz"))
    for _ in range(2):
        with pytest.raises(Exception, match="mask allows nothing"):
            picked.tokens()
    assert live.position == 0


def test_distribution_is_sampled() -> None:
    live = session([{"logits": {"a": 1.0, "yes": 2.0, "</think>": 0.0}}, "z"])
    live.sync(PROMPT)
    mark = live.mark()
    hot = Sampling(min_p=0.0)
    outcomes = []
    # In vocabulary order: a, the y of yes, the control token.
    for uniform in (0.1, 0.5, 0.99):
        live.rewind(mark)
        picked = live.pick(hot, uniform)
        live.submit(picked)
        outcomes.append((picked.tokens(), step(live)))
    assert outcomes == [
        ([97], [ord("z")]),
        (list(b"yes"), [ord("z")]),
        ([CONTROL["</think>"]], [ord("z")]),
    ]
    live.rewind(mark)
    assert live.pick(GREEDY).tokens() == list(b"yes")
    assert live.pick(hot, 0.5, allow("a</")).tokens() == [97]
    assert live.pick(GREEDY, allowed=allow("q")).tokens() == [ord("q")]


# -- the timeline ------------------------------------------------------------------------------------------


def test_sync_reuses_a_prefix_only() -> None:
    live = session()
    assert live.sync(PROMPT) == (0, len(PROMPT))
    assert live.sync(PROMPT) == (len(PROMPT), 0)
    step(live)
    assert live.sync([*PROMPT, *b"abc", 1]) == (len(PROMPT) + 3, 1)
    assert live.sync(PROMPT) == (0, len(PROMPT))
    assert live.common_prefix([*PROMPT[:4], 0]) == 4
    live.invalidate()
    assert (live.position, live.common_prefix(PROMPT)) == (0, 0)


@given(st.lists(st.integers(0, 1), min_size=1, max_size=8), st.lists(st.integers(0, 1), max_size=8))
def test_common_prefix_counts_equal_leading_tokens(first: list[int], second: list[int]) -> None:
    live = session()
    live.sync(first)
    equal = [a == b for a, b in zip(first, second, strict=False)]
    assert live.common_prefix(second) == (equal.index(False) if False in equal else len(equal))


def test_sync_refuses_bad_prompts_and_changes_nothing() -> None:
    live = session(context=12)
    live.sync(PROMPT)
    for prompt, error in (
        ([], ValueError),
        ([len(TOKENS)], ValueError),
        ([-1, 5], ValueError),
        (PROMPT + PROMPT, ContextFullError),
        (list(range(12)), ContextFullError),
    ):
        with pytest.raises(error):
            live.sync(prompt)
    with pytest.raises(ValueError, match="prefill step"):
        live.sync(PROMPT, quantum=0)
    assert live.tokens == PROMPT


def test_prefill_steps_and_progress() -> None:
    live = session(prefill_chunk=8)
    calls: list[tuple[int, int]] = []
    live.sync(list(range(20)), lambda *done: calls.append(done))
    assert calls == [(0, 20), (8, 20), (16, 20), (20, 20)]
    calls.clear()
    live.sync(list(range(30)), lambda *done: calls.append(done), quantum=4)
    assert calls == [(0, 10), (4, 10), (8, 10), (10, 10)]
    calls.clear()
    live.sync(list(range(50)), lambda *done: calls.append(done), quantum=100)
    assert calls == [(0, 20), (8, 20), (16, 20), (20, 20)]


def test_cancelled_prefill_keeps_whole_steps() -> None:
    live = session(prefill_chunk=8)
    with pytest.raises(Cancelled):
        live.sync(list(range(20)), cancelled=lambda: live.position >= 8)
    assert live.tokens == list(range(8))

    def stop(done: int, total: int) -> None:
        if done == 8:
            raise Cancelled

    with pytest.raises(Cancelled):
        live.sync(list(range(30)), stop)
    assert live.tokens == list(range(16))
    assert live.sync(list(range(30))) == (16, 14)


def test_full_context() -> None:
    live = session(["abcdef"], context=len(PROMPT) + 2)
    live.sync(PROMPT)
    assert step(live) == list(b"ab")
    assert live.position == live.context
    with pytest.raises(ContextFullError):
        live.submit(ord("c"))
    with pytest.raises(ContextFullError):
        live.submit(live.pick(GREEDY))
    assert live.tokens == [*PROMPT, *b"ab"]


def test_undo_takes_back_exactly_one_submit() -> None:
    live = session(["abc", "de"])
    live.sync(PROMPT)
    step(live)
    before = live.logits(), live.snapshot()
    step(live)
    live.undo()
    assert live.tokens == [*PROMPT, *b"abc"]
    assert (live.logits() == before[0]).all()
    assert live.snapshot() == before[1]
    with pytest.raises(SessionInvalid):
        live.undo()
    live.submit(ord("x"))
    live.sync([*live.tokens, 1])
    with pytest.raises(SessionInvalid):
        live.undo()


def test_rewind_returns_to_marks_of_this_timeline_only() -> None:
    live = session(["abc", "de", "f"])
    live.sync(PROMPT)
    start, state = live.mark(), live.snapshot()
    step(live)
    later = live.mark()
    step(live)
    live.rewind(later)
    assert step(live) == list(b"de")
    live.rewind(start)
    assert (start.position, live.tokens, live.snapshot()) == (len(PROMPT), PROMPT, state)
    with pytest.raises(SessionInvalid):
        live.rewind(later)
    live.rewind(start)
    live.sync([1, 2, 3])
    with pytest.raises(SessionInvalid):
        live.rewind(start)
    other = session()
    other.sync(PROMPT)
    with pytest.raises(SessionInvalid):
        live.rewind(other.mark())


def test_a_mark_holds_what_a_snapshot_holds_beside_its_tokens() -> None:
    live = session(snapshot={"fixed_bytes": 700, "bytes_per_token": 3})
    live.sync(PROMPT)
    assert live.mark().nbytes == 700


def test_undo_behind_a_mark_ends_it() -> None:
    live = session(["a"])
    live.sync(PROMPT)
    step(live)
    mark = live.mark()
    live.undo()
    with pytest.raises(SessionInvalid):
        live.rewind(mark)


def test_nothing_works_without_state() -> None:
    live = session()
    for call in (live.logits, live.mark, live.snapshot, lambda: live.pick(GREEDY), lambda: live.submit(1)):
        with pytest.raises(SessionInvalid):
            call()


# -- payloads ----------------------------------------------------------------------------------------------


def test_snapshot_carries_tokens_and_place_to_another_session() -> None:
    engine = scripted(["abc", "de"], ["other"])
    live, other = engine.open_session(64), engine.open_session(64)
    live.sync(PROMPT)
    live.submit(ord("a"))
    other.restore(live.snapshot())
    assert other.tokens == live.tokens
    assert (other.logits() == live.logits()).all()
    assert step(other) == step(live) == list(b"bc")
    # A new prompt is a new turn, however the session got its state.
    other.sync([*other.tokens, 1])
    assert step(other) == list(b"other")


@pytest.mark.parametrize(
    "cost", [{}, {"fixed_bytes": 3_000_000, "bytes_per_token": 100}, {"fixed_bytes": 50}]
)
def test_saved_size_is_what_the_script_says(cost: dict[str, int]) -> None:
    live = session(snapshot=cost)
    live.sync(PROMPT)
    file = io.BytesIO()
    written = live.save(file)
    assert written == len(file.getvalue()) == live.payload_bytes() == len(live.snapshot())
    needed = 40 + 4 * len(PROMPT)
    assert written == max(needed, cost.get("fixed_bytes", 0) + cost.get("bytes_per_token", 0) * len(PROMPT))
    file.seek(0)
    live.invalidate()
    live.load(file, written)
    assert live.tokens == PROMPT
    assert file.read() == b""


@given(st.data())
def test_damaged_payloads_are_refused(data: st.DataObject) -> None:
    live = session(snapshot={"fixed_bytes": 120})
    live.sync(PROMPT)
    payload = bytearray(live.snapshot())
    kind = data.draw(st.sampled_from(["cut", "long", "flip"]))
    size = len(payload)
    if kind == "cut":
        del payload[data.draw(st.integers(0, size - 1)) :]
    elif kind == "long":
        size += data.draw(st.integers(1, 9))
    else:
        place = data.draw(st.integers(0, 15))
        payload[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(PayloadError):
        live.load(io.BytesIO(payload), size)
    assert live.position == 0
    live.sync(PROMPT)


@pytest.mark.parametrize("place", range(0, 40))
def test_absurd_header_fields_end_in_one_line(place: int) -> None:
    live = session()
    live.sync(PROMPT)
    payload = bytearray(live.snapshot())
    payload[place] = 0xFF
    try:
        live.restore(bytes(payload))
    except PayloadError:
        return
    assert live.tokens == PROMPT
    live.pick(GREEDY).tokens()  # a place that the script lacks: the session takes a turn anew


def test_payload_for_a_larger_context_or_vocabulary() -> None:
    live = session()
    live.sync(PROMPT)
    payload = live.snapshot()
    with pytest.raises(PayloadError, match="raise --ctx"):
        session(context=len(PROMPT) - 1).restore(payload)
    wrong = payload[:40] + struct.pack("<I", len(TOKENS)) + payload[44:]
    with pytest.raises(PayloadError, match="vocabulary"):
        live.restore(wrong)
