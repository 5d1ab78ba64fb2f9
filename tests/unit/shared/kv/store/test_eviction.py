"""Who makes room: the published scores, what never goes, and what is not worth writing."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kv.files.header import Extension, Header, Reason
from shared.kv.store.eviction import (
    Candidate,
    Victims,
    choose_victims,
    decayed_hits,
    is_shared_anchor,
    score,
)

NOW = 1_700_000_000
HALF_LIFE = 21600
SNAPSHOT = 10_000


def candidate(
    name: str = "file",
    reason: Reason = Reason.CONTINUED,
    tokens: int = 1000,
    size: int = SNAPSHOT,
    hits: int = 0,
    age: int = 0,
    *,
    superseded: bool = False,
    shared_anchor: bool = False,
) -> Candidate:
    header = Header(2, reason, Extension(0), 0, tokens, hits, 32768, NOW - age, NOW - age, size - 100)
    return Candidate(name, header, size, superseded, shared_anchor)


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        (candidate(tokens=1024, hits=10, size=4096, age=14 * HALF_LIFE), 0.25),
        (candidate(tokens=2048, size=4096), 0.5),
        (candidate(tokens=10240, hits=3, size=10**6, age=HALF_LIFE), 0.0256),
        (candidate(tokens=10240, hits=3, size=10**6, age=HALF_LIFE, superseded=True), 0.008192),
        (candidate(reason=Reason.COLD, tokens=10240, hits=3, size=10**6, age=HALF_LIFE), 0.0512),
        (candidate(tokens=10240, size=10**6, superseded=True), 0.000512),
        (candidate(reason=Reason.AGENT_SESSION, tokens=10240, size=10**6), 0.01024),
        (candidate(size=0), 0.0),
    ],
)
def test_the_published_scores(entry: Candidate, value: float) -> None:
    assert score(entry, NOW) == pytest.approx(value, rel=1e-12)


def test_hits_fade_by_half_in_six_hours_and_end_below_a_hundredth() -> None:
    header = candidate(hits=64).header
    assert decayed_hits(header, NOW) == decayed_hits(header, NOW - 99) == 64
    assert decayed_hits(header, NOW + HALF_LIFE) == 32
    assert decayed_hits(header, NOW + 12 * HALF_LIFE) == 64 / 4096
    assert decayed_hits(header, NOW + 13 * HALF_LIFE) == 0
    assert decayed_hits(header, NOW + 10**12) == 0
    assert decayed_hits(replace(header, last_used=0), NOW) == 64
    assert decayed_hits(replace(header, last_used=0, created_at=0), NOW) == 0


def test_only_the_start_of_several_conversations_is_a_shared_anchor() -> None:
    cold = candidate(reason=Reason.COLD).header
    assert not is_shared_anchor(cold, 1, NOW)
    assert is_shared_anchor(cold, 2, NOW)
    assert is_shared_anchor(replace(cold, hits=2), 0, NOW)
    assert not is_shared_anchor(replace(cold, hits=2), 0, NOW + HALF_LIFE)
    assert not is_shared_anchor(replace(cold, reason=Reason.EVICT, hits=9), 9, NOW)


def test_nothing_goes_while_there_is_room_or_no_limit() -> None:
    files = [candidate("a"), candidate("b")]
    assert choose_victims(files, 3 * SNAPSHOT, SNAPSHOT, NOW) == Victims()
    assert choose_victims(files, None, 10**15, NOW, incoming=candidate("c")) == Victims()


def test_the_lowest_score_goes_then_the_longest_unused_then_the_first_found() -> None:
    files = [
        candidate("good", tokens=2000, age=99),
        candidate("new", age=1),
        candidate("first", age=9),
        candidate("second", age=9),
    ]
    assert choose_victims(files, 2 * SNAPSHOT, SNAPSHOT, NOW).names == ("first", "second", "new")
    assert choose_victims(files, 3 * SNAPSHOT, 0, NOW).names == ("first",)


def test_more_than_the_whole_budget_takes_nothing() -> None:
    assert choose_victims([candidate("a")], SNAPSHOT, SNAPSHOT + 1, NOW) == Victims()
    big = candidate("big", reason=Reason.EVICT, size=SNAPSHOT + 1)
    refused = choose_victims([candidate("a")], SNAPSHOT, big.size, NOW, incoming=big)
    assert refused == Victims((), would_evict_incoming=True)


def test_a_file_that_is_replaced_neither_counts_nor_goes() -> None:
    files = [candidate("same"), candidate("other")]
    same = candidate("same", tokens=1100, size=SNAPSHOT + 1)
    assert choose_victims(files, 2 * SNAPSHOT + 1, same.size, NOW, incoming=same) == Victims()
    assert choose_victims(files, 2 * SNAPSHOT, same.size, NOW, incoming=same).names == ("other",)


def test_a_growing_conversation_keeps_its_longest_snapshot() -> None:
    """Room for 1.2 snapshots: each one takes the place of the one before, and none is written in vain."""
    stored: list[Candidate] = []
    for step in range(1, 6):
        grown = candidate(f"step {step}", tokens=1000 * step, size=9000 + 200 * step)
        known = [replace(file, superseded=True) for file in stored]
        chosen = choose_victims(known, 12_000, grown.size, NOW, incoming=grown)
        assert chosen == Victims(tuple(file.name for file in stored))
        stored = [grown]


def test_what_would_be_the_first_to_leave_is_not_written() -> None:
    files = [candidate("a", tokens=2000), candidate("b", tokens=900)]
    for tokens, written in ((899, False), (900, True), (1999, True)):
        fresh = candidate("fresh", tokens=tokens)
        chosen = choose_victims(files, 2 * SNAPSHOT, fresh.size, NOW, incoming=fresh)
        assert chosen == (Victims(("b",)) if written else Victims((), would_evict_incoming=True)), tokens
    # For a file twice as large both would have to go, and one of them is worth more.
    large = candidate("large", tokens=3000, size=2 * SNAPSHOT)
    assert choose_victims(files, 2 * SNAPSHOT, large.size, NOW, incoming=large).would_evict_incoming


def test_long_forgotten_files_make_room_for_a_short_new_one() -> None:
    """Otherwise a directory that was full once would never learn anything new."""
    short = candidate("short", reason=Reason.COLD, tokens=300)
    recent = [candidate("dump", reason=Reason.EVICT, tokens=5000)]
    old = [candidate("dump", reason=Reason.EVICT, tokens=5000, age=20 * HALF_LIFE)]
    assert choose_victims(recent, SNAPSHOT, short.size, NOW, incoming=short).would_evict_incoming
    assert choose_victims(old, SNAPSHOT, short.size, NOW, incoming=short).names == ("dump",)


def test_a_hit_counts_for_a_file_as_long_as_hits_count() -> None:
    """Worth 2000 tokens when it was hit, 1000 six hours later, whoever asks for its place."""
    hit = candidate("hit", tokens=1000, hits=1, age=HALF_LIFE)
    for tokens, written in ((999, False), (1000, True)):
        fresh = candidate("fresh", tokens=tokens)
        chosen = choose_victims([hit], SNAPSHOT, fresh.size, NOW, incoming=fresh)
        assert chosen.would_evict_incoming is not written


@pytest.mark.parametrize("reason", [Reason.EVICT, Reason.SHUTDOWN])
def test_the_state_of_a_session_that_is_given_up_is_written_if_there_is_any_way(reason: Reason) -> None:
    leaving = candidate("leaving", reason=reason, tokens=1)
    files = [
        candidate("anchor", reason=Reason.COLD, size=SNAPSHOT // 2, shared_anchor=True),
        candidate("best", tokens=9000, size=SNAPSHOT // 2),
    ]
    chosen = choose_victims(files, SNAPSHOT, leaving.size, NOW, incoming=leaving)
    assert chosen.names == ("best", "anchor")
    kept = choose_victims(files, SNAPSHOT, leaving.size, NOW, incoming=leaving, protected={"best"})
    assert kept == Victims((), would_evict_incoming=True)


def test_the_file_about_to_be_loaded_stays() -> None:
    files = [candidate("loading", tokens=1, superseded=True), candidate("other", tokens=900)]
    chosen = choose_victims(
        files, 2 * SNAPSHOT, SNAPSHOT, NOW, incoming=candidate("new"), protected={"loading"}
    )
    assert chosen.names == ("other",)


def test_a_small_shared_anchor_outlives_large_dumps_of_sampled_tails() -> None:
    anchor = candidate("anchor", Reason.COLD, tokens=512, size=3100, age=99999, shared_anchor=True)
    dumps = [candidate(f"dump {n}", Reason.EVICT, tokens=4000 + n, size=7000, age=n) for n in range(5)]
    assert score(anchor, NOW) < min(score(dump, NOW) for dump in dumps)
    budget = sum(file.size for file in [anchor, *dumps])
    fresh = candidate("fresh", Reason.EVICT, tokens=4000, size=7000)
    for files in ([anchor, *dumps], [*dumps, anchor]):
        assert choose_victims(files, budget, fresh.size, NOW, incoming=fresh).names == ("dump 0",)
        # All dumps go before it, and it goes when nothing else is left.
        assert choose_victims(files, budget, budget - anchor.size, NOW).names[-1].startswith("dump")
        assert choose_victims(files, budget, budget, NOW).names[-1] == "anchor"


def test_nothing_ordinary_takes_the_place_of_a_shared_anchor() -> None:
    anchor = candidate("anchor", Reason.COLD, tokens=1, size=SNAPSHOT // 2, shared_anchor=True)
    fresh = candidate("fresh", tokens=9000)
    assert choose_victims([anchor], SNAPSHOT, fresh.size, NOW, incoming=fresh).would_evict_incoming


def test_shared_anchors_hold_half_of_the_budget_at_most() -> None:
    anchors = [
        candidate(f"anchor {tokens}", Reason.COLD, tokens=tokens, size=2000, shared_anchor=True)
        for tokens in (100, 200, 300)
    ]
    dump = candidate("dump", tokens=9000, size=4000)
    everything = choose_victims([*anchors, dump], 10_000, 10_000, NOW).names
    assert everything == ("anchor 100", "dump", "anchor 200", "anchor 300")
    # One that is too large by itself does not take the standing of the others.
    huge = candidate("huge", Reason.COLD, tokens=9000, size=6000, shared_anchor=True)
    assert choose_victims([anchors[0], huge], 10_000, 10_000, NOW).names == ("huge", "anchor 100")


@st.composite
def directories(draw: st.DrawFn) -> list[Candidate]:
    count = draw(st.integers(0, 12))
    return [
        candidate(
            f"file {index}",
            draw(st.sampled_from(Reason)),
            tokens=draw(st.integers(1, 50_000)),
            size=draw(st.integers(100, 50_000)),
            hits=draw(st.integers(0, 20)),
            age=draw(st.integers(-10, 10 * HALF_LIFE)),
            superseded=draw(st.booleans()),
            shared_anchor=draw(st.booleans()),
        )
        for index in range(count)
    ]


incoming_files = st.none() | st.builds(
    candidate,
    st.just("incoming"),
    st.sampled_from(Reason),
    tokens=st.integers(1, 50_000),
    size=st.integers(100, 50_000),
)


@given(directories(), incoming_files, st.integers(1, 300_000), st.sets(st.integers(0, 11)), st.randoms())
def test_what_holds_for_every_directory(
    files: list[Candidate],
    incoming: Candidate | None,
    budget: int,
    kept: set[int],
    shuffle: random.Random,
) -> None:
    protected = {f"file {index}" for index in kept}
    extra = incoming.size if incoming is not None else 0
    chosen = choose_victims(files, budget, extra, NOW, protected=protected, incoming=incoming)
    left = [file for file in files if file.name not in chosen.names]
    assert not protected & set(chosen.names)
    assert len(set(chosen.names)) == len(chosen.names) == len(files) - len(left)
    fits = sum(file.size for file in left) + extra <= budget
    if chosen.would_evict_incoming:
        assert incoming is not None
        assert not chosen.names
        assert sum(file.size for file in files) + extra > budget
        if incoming.header.reason in (Reason.EVICT, Reason.SHUTDOWN):
            assert sum(file.size for file in files if file.name in protected) + extra > budget
    else:
        assert fits or (incoming is None and {file.name for file in left} <= protected)
    if chosen.names:
        # Not one more than needed.
        last = next(file for file in files if file.name == chosen.names[-1])
        assert sum(file.size for file in left) + last.size + extra > budget
    if len({score(file, NOW) for file in files}) == len(files):
        shuffled = list(files)
        shuffle.shuffle(shuffled)
        again = choose_victims(shuffled, budget, extra, NOW, protected=protected, incoming=incoming)
        assert again == chosen


@given(directories(), incoming_files.filter(bool), st.integers(1, 300_000))
def test_what_was_written_is_not_the_first_to_leave_again(
    files: list[Candidate], incoming: Candidate, budget: int
) -> None:
    chosen = choose_victims(files, budget, incoming.size, NOW, incoming=incoming)
    if chosen.would_evict_incoming:
        return
    written = [file for file in files if file.name not in chosen.names] + [incoming]
    assert choose_victims(written, budget, 0, NOW) == Victims()
