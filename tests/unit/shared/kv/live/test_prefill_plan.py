"""Where a prefill stops: the published lengths, the boundaries of turns, the last token."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kv.live.checkpoints import PointKind
from shared.kv.live.prefill_plan import Stop, cold_length, plan_stops
from shared.kv.store.policy import StoreSettings
from shared.text.tokenizer import Specials

SPECIALS = Specials(bos=0, eos=1, user=2, assistant=3, think=4, think_end=5, dsml=6, reminder=None)
U, A = SPECIALS.user, SPECIALS.assistant
DEFAULTS = StoreSettings()
OFF = StoreSettings(cold_max_tokens=0, continued_interval=0)


def text(length: int) -> list[int]:
    return [9] * length


def positions(tokens: list[int], reused: int = 0, settings: StoreSettings = OFF, **more: int) -> list[int]:
    return [stop.position for stop in plan_stops(tokens, reused, more.get("cold"), SPECIALS, settings)]


class TestCold:
    @pytest.mark.parametrize(
        ("count", "length"),
        [(511, None), (512, 512), (2080, 2048), (11011, 10240), (30000, 28672), (30001, None)],
    )
    def test_a_prompt_without_an_anchor(self, count: int, length: int | None) -> None:
        assert cold_length(text(count), 0, SPECIALS, DEFAULTS) == length

    def test_the_anchor_comes_first(self) -> None:
        tokens = [*text(700), U, *text(50), A]
        assert cold_length(tokens, 0, SPECIALS, DEFAULTS) == 700

    def test_only_a_new_conversation_is_saved(self) -> None:
        tokens = text(5000)
        assert cold_length(tokens, 511, SPECIALS, DEFAULTS) == 4096
        assert cold_length(tokens, 512, SPECIALS, DEFAULTS) is None

    def test_what_is_there_already_is_not_saved(self) -> None:
        tokens = [*text(513), U, *text(50), A]
        settings = replace(DEFAULTS, min_tokens=513)
        assert cold_length(tokens, 512, SPECIALS, settings) == 513
        assert cold_length([*text(512), U, A], 511, SPECIALS, DEFAULTS) == 512

    def test_it_can_be_turned_off(self) -> None:
        assert cold_length(text(5000), 0, SPECIALS, OFF) is None


class TestStops:
    def test_a_short_prompt_stops_before_its_last_token(self) -> None:
        assert plan_stops(text(9), 0, None, SPECIALS, OFF) == [Stop(8, PointKind.PROMPT_END), Stop(9, None)]

    def test_a_single_token(self) -> None:
        assert plan_stops([0], 0, None, SPECIALS, OFF) == [Stop(1, None)]

    @pytest.mark.parametrize("reused", [8, 9])
    def test_nothing_is_left_but_the_end(self, reused: int) -> None:
        assert plan_stops(text(9), reused, None, SPECIALS, OFF) == [Stop(9, None)]

    def test_the_last_turns_are_kept_and_earlier_ones_apart(self) -> None:
        turn = [U, *text(900)]
        assert positions(turn * 9, 1) == [2703, 4096, 4505, 5406, 6307, 7208, 8108, 8109]

    def test_frontiers_and_the_cold_length(self) -> None:
        found = positions(text(25000), 9000, DEFAULTS, cold=24576)
        assert found == [10240, 12288, 16384, 20480, 24576, 24999, 25000]

    def test_a_turn_boundary_says_more_than_the_way(self) -> None:
        tokens = [*text(4096), U, *text(50)]
        assert Stop(4096, PointKind.USER) in plan_stops(tokens, 0, 4096, SPECIALS, OFF)

    @given(st.lists(st.sampled_from([U, A, 9]), min_size=1, max_size=60), st.data())
    def test_they_ascend_from_the_reused_to_the_end(self, tokens: list[int], data: st.DataObject) -> None:
        reused = data.draw(st.integers(0, len(tokens)))
        found = positions(tokens, reused)
        assert found[-1] == len(tokens)
        assert found == sorted(set(found))
        assert all(reused < position for position in found[:-1])
        assert {len(tokens) - 1} - {0} <= {reused, *found} or reused == len(tokens)
