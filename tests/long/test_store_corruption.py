"""Every kind of damage to a cache file, through the store: the next best file is used, nothing wrong is."""

from __future__ import annotations

import random
import struct
import tracemalloc
from itertools import pairwise

import pytest

from tests.support.damaged_stores import (
    IDS_AT,
    LONG,
    NAME,
    PAYLOAD_AT,
    SHORT,
    TEXT_AT,
    Outcome,
    flipped,
    original,
    outcome_of,
    section_edges,
)

pytestmark = pytest.mark.long

# What becomes of the file when a bit of a header field flips. Fields that only inform cannot be checked.
FOREIGN, DAMAGED, USED = {"kept"}, {"bad", "kept"}, {"touched"}
HEADER_FATES = [
    (range(0, 4), FOREIGN),  # magic and version
    (range(4, 5), DAMAGED),  # quant bits
    (range(5, 7), USED),  # reason and extensions
    (range(7, 8), FOREIGN),  # another model's
    (range(8, 12), DAMAGED),  # tokens
    (range(12, 16), USED),  # hits
    (range(16, 20), FOREIGN),  # of a larger context
    (range(20, 21), FOREIGN),  # payload ABI
    (range(21, 40), USED),  # reserved bytes and times
    (range(40, 48), DAMAGED),  # payload size
]
# More than reading in pieces takes, much less than any length that the files declare.
MOST_ALLOCATED = 4 << 20


def assert_next_best(outcome: Outcome, fates: set[str]) -> None:
    assert outcome.loaded == len(SHORT)
    assert outcome.genuine
    assert outcome.fate in fates
    assert not any("Traceback" in line or "\n" in line for line in outcome.said)


def test_the_sound_files_load() -> None:
    outcome = outcome_of(original()[NAME])
    assert (outcome.loaded, outcome.genuine, outcome.fate) == (len(LONG), True, "touched")


@pytest.mark.parametrize("mask", [0x01, 0xFF])
@pytest.mark.parametrize(("places", "fates"), HEADER_FATES)
def test_each_byte_of_the_header(places: range, fates: set[str], mask: int) -> None:
    for at in places:
        outcome = outcome_of(flipped(at, mask))
        if fates is USED:
            assert (outcome.loaded, outcome.genuine, outcome.fate) == (len(LONG), True, "touched"), at
        else:
            assert_next_best(outcome, fates)


def test_five_hundred_flips_in_text_and_payload() -> None:
    source, end = random.Random(500), section_edges()[-1]
    for _ in range(500):
        at = source.randrange(TEXT_AT, end)
        outcome = outcome_of(flipped(at, 1 << source.randrange(8)))
        assert_next_best(outcome, {"bad"})
        assert len([line for line in outcome.said if NAME in line]) == 1, (at, outcome.said)


def test_flips_that_are_seen_without_a_checksum() -> None:
    """Files of the other engine have none: then the text and the tokens still vouch for each other."""
    source = random.Random(100)
    for at in [source.randrange(TEXT_AT, PAYLOAD_AT) for _ in range(50)]:
        assert_next_best(outcome_of(flipped(at), sidecar=False), {"bad"})
    for at in [source.randrange(IDS_AT, IDS_AT + 4 * len(LONG)) for _ in range(50)]:
        assert_next_best(outcome_of(flipped(at), sidecar=False), {"bad"})


def test_flips_in_the_tool_map_cost_no_more_than_the_map() -> None:
    for at in range(section_edges()[-1], len(original()[NAME])):
        outcome = outcome_of(flipped(at))
        assert (outcome.loaded, outcome.genuine) == (len(LONG), True)


@pytest.mark.parametrize("sidecar", [True, False])
def test_cut_off_anywhere(sidecar: bool) -> None:
    source, content, edges = random.Random(50), original()[NAME], section_edges()
    cuts = [*edges[:-1], *(edge - 1 for edge in edges[1:]), *(source.randrange(edges[-1]) for _ in range(50))]
    for cut in cuts:
        assert_next_best(outcome_of(content[:cut], sidecar=sidecar), DAMAGED)


def test_one_section_swapped_for_zeros() -> None:
    """What a power cut leaves when the size was written and the content was not."""
    content = original()[NAME]
    for start, end in pairwise(section_edges()[2:]):
        zeros = content[:start] + bytes(end - start) + content[end:]
        if zeros != content:
            assert_next_best(outcome_of(zeros), {"bad"})


def test_absurd_lengths_allocate_nothing() -> None:
    content, huge = bytearray(original()[NAME]), []
    for at, kind, value in [
        (40, "<Q", 1 << 40),  # payload size
        (40, "<Q", (1 << 64) - 1),
        (48, "<I", (1 << 32) - 1),  # text length
        (8, "<I", (1 << 32) - 1),  # tokens
        *((PAYLOAD_AT + 4 * word, "<I", (1 << 32) - 1) for word in (2, 4, 5, 6, 7, 8, 9, 10, 11, 12)),
        *((section_edges()[6] + 4 * count, "<I", (1 << 32) - 1) for count in range(6)),  # row counts
    ]:
        changed = bytearray(content)
        struct.pack_into(kind, changed, at, value)
        huge.append(bytes(changed))
    for declared in huge:
        for sidecar in (True, False):
            tracemalloc.start()
            outcome = outcome_of(declared, sidecar=sidecar)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < MOST_ALLOCATED
            assert_ignored_or_next_best(outcome)


def assert_ignored_or_next_best(outcome: Outcome) -> None:
    """A word that only informs (the ring's rows, say) may be anything; all else is found out."""
    assert outcome.genuine
    assert outcome.loaded in (len(SHORT), len(LONG))
    if outcome.loaded == len(LONG):
        assert outcome.fate == "touched"


def test_an_absurd_tool_map_allocates_nothing() -> None:
    content, at = original()[NAME], section_edges()[-1]
    for offset in (4, 8, 12):  # entries, length of an id, length of a block
        changed = bytearray(content)
        struct.pack_into("<I", changed, at + offset, (1 << 32) - 1)
        tracemalloc.start()
        outcome = outcome_of(bytes(changed))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < MOST_ALLOCATED
        assert (outcome.loaded, outcome.genuine) == (len(LONG), True)
