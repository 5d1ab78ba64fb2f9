"""The decode loop over the scripted engine, with a turn that reads nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import EngineFault
from shared.generate import HELD_CALL_TOKENS, Generation, GenerationSettings
from shared.power import PowerGovernor
from shared.sampling import GREEDY, Sampling
from shared.scripted import ScriptedEngine
from shared.scripted.vocabulary import END_OF_TURN
from shared.session import Session
from shared.text.turn import DecodeState
from tests.support.clock import FakeClock
from tests.support.lookahead_contract import check_look_ahead
from tests.support.plain_turn import PlainTurn
from tests.support.scripted import scripted

PROMPT = [1, 2, 3]


def start(
    engine: ScriptedEngine,
    turn: PlainTurn | None = None,
    *,
    budget: int = 1000,
    context: int = 4096,
    sampling: Sampling = GREEDY,
    more: dict[str, Any] | None = None,
    **settings: Any,
) -> tuple[Generation, Session, PlainTurn]:
    session = engine.open_session(context)
    session.sync(PROMPT)
    turn = turn or PlainTurn()
    reader: Any = turn
    chosen = GenerationSettings(sampling, budget, **settings)
    return Generation(session, engine.tokenizer, reader, chosen, **(more or {})), session, turn


def finish(generation: Generation) -> list[list[Any]]:
    return list(generation)


# -- what comes out ----------------------------------------------------------------------------------------

pieces = st.lists(
    st.one_of(
        st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6),
        st.binary(min_size=1, max_size=4).map(lambda data: {"hex": data.hex()}),
        st.sampled_from(["</think>", "｜DSML｜", {"plain": "</think>"}]),
        st.lists(st.sampled_from(["x", "é", "</think>"]), min_size=1, max_size=4).map(
            lambda t: {"tokens": t}
        ),
    ),
    max_size=8,
)


def text_of(piece: Any) -> bytes:
    if isinstance(piece, str):
        return piece.encode()
    if "hex" in piece:
        return bytes.fromhex(piece["hex"])
    return "".join(piece.get("tokens", piece.get("plain"))).encode()


@given(pieces, st.integers(0, 40), st.booleans())
def test_text_is_the_joined_pieces_up_to_the_budget(script: list[Any], budget: int, look_ahead: bool) -> None:
    engine = scripted(script)
    generation, session, turn = start(engine, budget=budget, look_ahead=look_ahead)
    events = finish(generation)
    whole = b"".join(map(text_of, script))
    assert turn.data == engine.tokenizer.decode(generation.tokens)
    assert whole.startswith(turn.data)
    if generation.cause == "eos":
        assert turn.data == whole
    else:
        assert generation.cause == "length"
        assert generation.completion_tokens == budget
    assert session.tokens == PROMPT + generation.tokens
    assert len(events) == len(generation.tokens) + 1


@given(
    pieces,
    st.lists(st.text(alphabet="xé</think>ab", min_size=1, max_size=4), min_size=1, max_size=3),
    st.booleans(),
)
def test_stop_strings_cut_the_whole_text(script: list[Any], stops: list[str], look_ahead: bool) -> None:
    generation, session, turn = start(scripted(script), stop=tuple(stops), look_ahead=look_ahead)
    finish(generation)
    whole = b"".join(map(text_of, script))
    found = [(whole.find(s.encode()), len(s), s) for s in stops if s.encode() in whole]
    end, _, stop = min(found, default=(len(whole), 0, None))
    assert turn.data == whole[:end]
    assert generation.matched_stop == stop
    assert generation.cause == ("eos" if stop is None else "stop")
    assert session.tokens == PROMPT + generation.tokens


@pytest.mark.parametrize("script", [["ab", "Xc"], ["a", "bX", "c"], ["abXc"]])
def test_stop_in_a_stream(script: list[str]) -> None:
    generation, session, turn = start(scripted(script), stop=("X",))
    events = finish(generation)
    assert turn.data == b"ab"
    assert (generation.cause, generation.finish_reason, generation.matched_stop) == ("stop", "stop", "X")
    # The session keeps what was sampled, the stop string included; nothing after it.
    assert session.tokens == PROMPT + list(b"abX")
    assert [event.text for item in events for event in item] == ["a", "b", "!"]


def test_stop_matches_reasoning_and_control_text() -> None:
    generation, _, turn = start(
        scripted(["why", "</think>", "so"]), PlainTurn(thinking=True), stop=("y</th",)
    )
    finish(generation)
    assert (turn.data, generation.cause) == (b"wh", "stop")


def test_held_tail_is_fed_at_the_end() -> None:
    generation, _, turn = start(scripted(["ab", "</do"]), stop=("</done>",))
    finish(generation)
    assert (turn.data, generation.cause) == (b"ab</do", "eos")


def test_a_stop_string_that_waited_for_a_longer_one_wins_at_the_end() -> None:
    generation, _, turn = start(scripted(["xabc"]), stop=("bc", "abcd"), budget=4)
    finish(generation)
    assert (turn.data, generation.cause, generation.matched_stop) == (b"xa", "stop", "bc")


# -- why it ends -------------------------------------------------------------------------------------------


def test_end_token_is_neither_text_nor_state_nor_counted() -> None:
    for look_ahead in (True, False):
        generation, session, turn = start(scripted(["hi"]), look_ahead=look_ahead)
        finish(generation)
        assert (turn.data, turn.finished) == (b"hi", ["eos"])
        assert generation.completion_tokens == 2
        assert END_OF_TURN not in session.tokens


def test_end_token_inside_a_step_of_several() -> None:
    generation, session, _ = start(scripted([{"tokens": ["a", "<｜end▁of▁sentence｜>", "b"]}]))
    finish(generation)
    assert (generation.tokens, session.tokens) == ([97], [*PROMPT, 97])


@pytest.mark.parametrize("budget", [0, -3])
def test_no_budget(budget: int) -> None:
    generation, session, turn = start(scripted(["hi"]), budget=budget)
    assert len(finish(generation)) == 1
    assert (turn.data, generation.cause, session.tokens) == (b"", "length", PROMPT)


def test_budget_that_ends_with_the_text_is_length() -> None:
    generation, _, _ = start(scripted(["hi"]), budget=2)
    finish(generation)
    assert generation.cause == "length"


@pytest.mark.parametrize("look_ahead", [True, False])
@pytest.mark.parametrize(
    "script", [["hello world"], list("hello world"), [{"tokens": ["hell", "o wor", "ld"]}]]
)
def test_full_context_is_length(look_ahead: bool, script: list[Any]) -> None:
    generation, session, turn = start(scripted(script), context=8, look_ahead=look_ahead)
    finish(generation)
    assert (turn.data, generation.cause, session.position) == (b"hello", "length", 8)


def test_tool_end_stops_at_once_and_drops_the_rest_of_the_step() -> None:
    generation, session, turn = start(scripted(["abcdef"]), PlainTurn(stop_after=2))
    finish(generation)
    assert (turn.data, generation.cause, generation.finish_reason) == (b"ab", "tool", "tool_calls")
    assert session.tokens == PROMPT + list(b"ab")


def test_tool_end_comes_before_a_stop_string_of_the_same_token() -> None:
    generation, _, _ = start(scripted(["ab", "X"]), PlainTurn(stop_after=2), stop=("X",))
    finish(generation)
    assert (generation.cause, generation.matched_stop) == ("tool", None)


def test_tool_end_in_what_a_stop_string_held_back() -> None:
    generation, _, turn = start(scripted(["ab"]), PlainTurn(stop_after=2), stop=("bX",), budget=2)
    finish(generation)
    assert (turn.data, generation.cause) == (b"ab", "tool")


def test_a_call_held_in_thinking_gets_a_limited_chance() -> None:
    assert HELD_CALL_TOKENS == 256
    turn = PlainTurn(thinking=True, held=lambda data: b"[call]" in data)
    generation, _, _ = start(scripted({"pieces": ["so [call]"], "eos": False}), turn)
    finish(generation)
    assert generation.cause == "tool"
    assert turn.data == b"so [call]" + b" " * HELD_CALL_TOKENS


def test_a_call_that_is_taken_back_starts_no_count() -> None:
    turn = PlainTurn(held=lambda data: data.endswith(b"("))
    generation, _, _ = start(scripted(["(" * 200, ")", "(" * 200]), turn)
    finish(generation)
    assert generation.cause == "eos"


def test_cancellation_is_polled_for_every_token_step() -> None:
    polls = []
    generation, session, _ = start(
        scripted(list("abcdef")), more={"cancelled": lambda: polls.append(1) or len(polls) > 3}
    )
    finish(generation)
    assert (generation.cause, generation.tokens) == ("cancelled", list(b"abc"))
    assert session.tokens == PROMPT + list(b"abc")


def test_an_engine_fault_passes_through() -> None:
    generation, session, turn = start(
        scripted({"pieces": ["a", "b"], "fail": {"at": "decode", "after": 1}}), more={}
    )
    with pytest.raises(EngineFault):
        finish(generation)
    assert (turn.data, turn.finished, session.position) == (b"a", [], 0)
    assert not generation.finished
    for result in ("cause", "finish_reason"):
        with pytest.raises(RuntimeError, match="not ended"):
            getattr(generation, result)


# -- counts, sampling, pace --------------------------------------------------------------------------------


def test_reasoning_tokens_up_to_the_closing_mark() -> None:
    generation, _, _ = start(scripted(["abc", "</think>", "de"]), PlainTurn(thinking=True))
    finish(generation)
    assert (generation.reasoning_tokens, generation.completion_tokens) == (4, 6)


def test_thinking_that_eats_the_budget_is_counted() -> None:
    generation, _, _ = start(scripted(["x"] * 50), PlainTurn(thinking=True), budget=16)
    finish(generation)
    assert (generation.reasoning_tokens, generation.finish_reason) == (16, "length")


COIN = {"logits": {"a": 1.0, "b": 1.0, "c": 0.9}}


def toss(**settings: Any) -> list[int]:
    generation, _, _ = start(scripted([COIN] * 40), **settings)
    finish(generation)
    return generation.tokens


def test_seeds_fix_the_stream() -> None:
    hot = Sampling(temperature=1.0)
    assert toss(sampling=hot, seed=5) == toss(sampling=hot, seed=5, look_ahead=False)
    assert toss(sampling=hot, seed=5) != toss(sampling=hot, seed=6)
    for unseeded in (None, 0, -1):
        assert len({tuple(toss(sampling=hot, seed=unseeded)) for _ in range(4)}) > 1
    assert set(toss(sampling=GREEDY)) == {97}


def test_syntax_is_decoded_greedily() -> None:
    """Temperature 0 on syntax only, and those steps leave the random stream alone."""

    def state(data: bytes) -> DecodeState:
        return (DecodeState.OUTSIDE, DecodeState.STRUCTURAL, DecodeState.JSON_STRUCTURAL)[len(data) % 3]

    def run(greedy_syntax: bool) -> list[int]:
        generation, _, _ = start(
            scripted([COIN] * 60),
            PlainTurn(state=state),
            sampling=Sampling(),
            seed=3,
            greedy_syntax=greedy_syntax,
        )
        finish(generation)
        return generation.tokens

    tokens = run(greedy_syntax=True)
    assert set(tokens[1::3] + tokens[2::3]) == {97}
    assert tokens[0::3] == run(greedy_syntax=False)[:20]
    assert len(set(tokens[0::3])) > 1


@pytest.mark.parametrize("state", [DecodeState.STRING_BODY, DecodeState.JSON_STRING, DecodeState.OUTSIDE])
def test_bodies_are_sampled(state: DecodeState) -> None:
    generation, _, _ = start(
        scripted([COIN] * 40), PlainTurn(state=lambda _: state), sampling=Sampling(), seed=3
    )
    finish(generation)
    assert len(set(generation.tokens)) > 1


def test_power_rests_after_every_step_and_changes_nothing() -> None:
    clock = FakeClock()
    engine = scripted({"pieces": ["ab", "c"], "piece_delay_s": 2.0}, clock=clock)
    power = PowerGovernor(50, clock=clock, sleep=clock.sleep)
    generation, _, turn = start(engine, more={"power": power, "clock": clock})
    finish(generation)
    # Two pieces of 2 s and the end token at once; rests of the average: 2, 2 and 1.75 s.
    assert clock.now == pytest.approx(4.0 + 5.75)
    assert generation.seconds == pytest.approx(clock.now)
    assert turn.data == b"abc"


@pytest.mark.parametrize("sampling", [GREEDY, Sampling()])
@pytest.mark.parametrize(
    "script",
    [
        list("abcdefgh"),
        ["abc", "de", "fgh"],
        [COIN] * 8,
        [{"tokens": ["a", "</think>", "éé", "f", "g", "h"]}],
    ],
)
def test_look_ahead_contract(script: list[Any], sampling: Sampling) -> None:
    engine = scripted({"pieces": script, "eos": False})
    check_look_ahead(lambda: engine.open_session(64), engine.tokenizer, PROMPT, sampling=sampling)
