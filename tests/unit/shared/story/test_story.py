"""The story of the long-context test: its structure, and what counts as recalled."""

import re
from itertools import pairwise

import pytest

from shared.model.open import read_tokenizer
from shared.story.scenes import NAMES
from shared.story.story import in_words, make_story, missing
from tests.support.golden import tiny_q2


@pytest.fixture(scope="module")
def story():
    return make_story()


def test_it_is_always_the_same_and_long(story):
    assert make_story() == story
    assert len(story.text) > 130_000
    assert len(read_tokenizer(tiny_q2()).encode_text(story.text)) > 30_000


def test_every_name_has_one_assigned_number_in_words(story):
    assert sorted(name for name, _ in story.facts) == sorted(NAMES)
    assert len({number for _, number in story.facts}) == 16
    for name, number in story.facts:
        assert story.text.count(f"{name} was formally assigned the number {in_words(number)}.") == 1
        digits = len(re.findall(rf"(?<!\d){number}(?!\d)", story.text))
        assert digits == (1 if (name, number) == story.facts[0] else 0), "only the example has digits"


def test_facts_are_spread_and_decoys_stand_between_them(story):
    places = [story.text.index(f"{name} was formally assigned") for name, _ in story.facts]
    assert places == sorted(places)
    gaps = [after - before for before, after in pairwise(places)]
    assert min(gaps) > 6000
    assert len(story.text) - places[0] > 120_000
    assert story.text.count("it was only a rumour") == 21
    assert story.text.count("percent on everything blue") == 17


def test_a_short_story_is_the_beginning_of_the_long_one(story):
    short = make_story(30)
    assert short.facts == story.facts[:3]
    body = short.text.partition("\n\nThis is the end")[0]
    assert story.text.startswith(body)


def test_numbers_in_words():
    assert [in_words(n) for n in (0, 7, 13, 20, 42, 100, 101, 320, 999)] == [
        "zero",
        "seven",
        "thirteen",
        "twenty",
        "forty-two",
        "one hundred",
        "one hundred and one",
        "three hundred and twenty",
        "nine hundred and ninety-nine",
    ]


def test_grading(story):
    right = "\n".join(f"{name}={number}" for name, number in story.facts)
    assert missing(story, right) == []
    assert missing(story, f"Of course!\n{right.replace('=', ' = ')}\nEnd") == []
    name, number = story.facts[4]
    for wrong in (
        right.replace(f"{name}={number}", f"{name}={number + 1}"),
        right.replace(f"{name}={number}", f"{name}={number}0"),
        right.replace(f"{name}={number}", f"{name}: {number}"),
        right.replace(f"{name}={number}", f"Mc{name}={number}"),
        right.replace(f"{name}={number}", ""),
    ):
        assert missing(story, wrong) == [(name, number)]
    # Any right occurrence is enough.
    assert missing(story, f"{name}={number + 1}\n{right}") == []
    assert missing(story, "") == list(story.facts)
