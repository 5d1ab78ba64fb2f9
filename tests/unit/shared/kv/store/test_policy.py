"""The lengths at which states are saved: the published examples, and what must hold for every length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import UsageError
from shared.kv.store.policy import (
    ContinuedCounter,
    StoreSettings,
    chat_anchor,
    continued_step,
    fits_budget,
    store_length,
)

DEFAULTS = StoreSettings()
USER, ASSISTANT = 100, 200


@st.composite
def any_settings(draw: st.DrawFn) -> StoreSettings:
    minimum = draw(st.integers(1, 2000))
    return StoreSettings(
        min_tokens=minimum,
        cold_max_tokens=draw(st.just(0) | st.integers(minimum, 40000)),
        continued_interval=draw(st.integers(0, 20000)),
        trim_tokens=draw(st.integers(0, 200)),
        align_tokens=draw(st.integers(0, 5000)),
    )


@pytest.mark.parametrize(
    ("tokens", "stored"),
    [
        (511, 511),
        (544, 544),
        (545, 545),
        (1695, 1695),
        (2079, 2079),
        (2080, 2048),
        (4127, 2048),
        (4128, 4096),
        (11011, 10240),
        (30000, 28672),
    ],
)
def test_a_cold_save_leaves_out_the_end_of_a_long_prompt(tokens: int, stored: int) -> None:
    assert store_length(tokens, DEFAULTS) == stored


@pytest.mark.parametrize(("align", "stored"), [(1000, 3000), (0, 3500)])
def test_a_cold_save_without_trim(align: int, stored: int) -> None:
    assert store_length(3500, StoreSettings(trim_tokens=0, align_tokens=align)) == stored


@pytest.mark.parametrize(("tokens", "stored"), [(543, 543), (544, 544), (545, 513)])
def test_a_prompt_is_trimmed_only_beyond_minimum_and_trim(tokens: int, stored: int) -> None:
    assert store_length(tokens, StoreSettings(align_tokens=0)) == stored


@given(st.integers(1, 100000), any_settings())
def test_a_cold_save_is_never_longer_than_the_prompt_nor_too_short_to_be_found(
    tokens: int, settings: StoreSettings
) -> None:
    length = store_length(tokens, settings)
    assert 1 <= length <= tokens
    assert length >= min(tokens, settings.min_tokens)
    if length < tokens:
        assert length <= tokens - settings.trim_tokens
        assert not settings.align_tokens or length % settings.align_tokens == 0


def _prompt(text: str) -> list[int]:
    return [{"u": USER, "a": ASSISTANT}.get(word) or int(word) for word in text.split()]


@pytest.mark.parametrize(
    ("prompt", "minimum", "anchor"),
    [
        ("1 2 u 3 4 u 5 a", 4, 5),
        ("1 2 3 4 u 5 a", 4, 4),
        ("1 2 u 3 a 4 u 5 a", 2, 2),
        ("1 2 u 3 a 4 u 5 a", 3, None),
        ("1 2 3 4 u 5", 4, 4),
        ("1 2 3 4 a 5 u", 1, None),
        ("1 2 3 4", 1, None),
    ],
)
def test_the_anchor_is_what_stands_before_the_first_exchange(
    prompt: str, minimum: int, anchor: int | None
) -> None:
    assert chat_anchor(_prompt(prompt), USER, ASSISTANT, minimum) == anchor


@pytest.mark.parametrize(
    ("file_bytes", "fits"),
    [(52 + 100 + 937, True), (52 + 100 + 938, False), (52 + 100 + 900 + 40, False), (0, True)],
)
def test_a_file_needs_one_per_cent_more_than_its_size(file_bytes: int, fits: bool) -> None:
    assert fits_budget(file_bytes, StoreSettings(budget_bytes=1100)) is fits


def test_without_a_budget_everything_fits() -> None:
    assert fits_budget(1 << 60, StoreSettings(budget_bytes=None))


@pytest.mark.parametrize(
    ("tokens", "counter", "fires"),
    [
        (10239, 0, False),
        (10240, 0, True),
        (10240, 4096, True),
        (10240, 10240, False),
        (18432, 0, False),
        (20480, 10240, True),
        (20480, 20480, False),
    ],
)
def test_saves_on_the_way(tokens: int, counter: int, fires: bool) -> None:
    continued = ContinuedCounter(DEFAULTS)
    continued.loaded(counter)
    assert continued.fires(tokens) is fires


def test_the_step_is_aligned_upwards() -> None:
    assert continued_step(DEFAULTS) == 10240
    assert continued_step(StoreSettings(align_tokens=0)) == 10000
    assert continued_step(StoreSettings(continued_interval=4096)) == 4096
    assert continued_step(StoreSettings(continued_interval=0)) == 0
    unaligned = ContinuedCounter(StoreSettings(align_tokens=0))
    unaligned.loaded(20480)
    assert unaligned.fires(30000)


def test_no_saves_on_the_way_when_off_or_too_short() -> None:
    assert not ContinuedCounter(StoreSettings(continued_interval=0)).fires(10240)
    short = StoreSettings(continued_interval=64, align_tokens=0)
    assert [n for n in range(64, 641, 64) if ContinuedCounter(short).fires(n)] == [512, 576, 640]


def test_the_counter_follows_the_session() -> None:
    continued = ContinuedCounter(DEFAULTS)
    continued.stored(10240)
    continued.stored(4096)
    assert continued.value == 10240
    continued.loaded(2048)
    assert continued.value == 2048
    continued.reset()
    assert continued.value == 0


def test_a_planned_cold_save_holds_back_the_same_save_on_the_way() -> None:
    continued = ContinuedCounter(DEFAULTS)
    continued.suppress(10240)
    assert not continued.fires(10240)
    continued.restore()
    assert continued.fires(10240)


def test_a_cold_save_of_another_length_holds_nothing_back() -> None:
    continued = ContinuedCounter(DEFAULTS)
    continued.suppress(28672)
    assert continued.value == 0
    continued.restore()
    assert continued.value == 0


def test_only_a_counter_that_still_waits_is_restored() -> None:
    for moved in (
        lambda counter: counter.stored(10240),
        lambda counter: counter.stored(20480),
        lambda counter: counter.loaded(10240),
    ):
        continued = ContinuedCounter(DEFAULTS)
        continued.suppress(10240)
        moved(continued)
        continued.restore()
        assert continued.value >= 10240


@given(any_settings(), st.lists(st.integers(1, 60000), max_size=20))
def test_a_save_on_the_way_happens_once_and_only_at_multiples(
    settings: StoreSettings, lengths: list[int]
) -> None:
    continued, saved = ContinuedCounter(settings), []
    for tokens in lengths + [continued_step(settings) * n for n in range(1, 5)]:
        if continued.fires(tokens):
            saved.append(tokens)
            continued.stored(tokens)
            assert not continued.fires(tokens)
    assert saved == sorted(set(saved))
    assert all(tokens % continued_step(settings) == 0 and tokens >= settings.min_tokens for tokens in saved)


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_tokens": 0},
        {"cold_max_tokens": 511},
        {"cold_max_tokens": -1},
        {"continued_interval": -1},
        {"trim_tokens": -1},
        {"align_tokens": -1},
        {"budget_bytes": 0},
    ],
)
def test_contradictory_settings_are_refused_by_name(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=r"give .* or "):
        StoreSettings(**wrong)


def test_cold_saves_can_be_turned_off() -> None:
    assert StoreSettings(cold_max_tokens=0).cold_max_tokens == 0
    assert StoreSettings(cold_max_tokens=512).cold_max_tokens == 512
