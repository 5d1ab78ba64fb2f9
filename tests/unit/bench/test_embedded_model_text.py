"""The text that the embedded model is trained on: repeatable, readable by the product, and apart from the
held-out text."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from bench.embedded_model import cases, engine_talk, numbers, prose, recall, tool_talk, vocabulary
from bench.embedded_model.conversation import Conversation, Mixture, conversation
from bench.embedded_model.names import SYLLABLES, name
from bench.embedded_model.rendered import segments_of, tokens_of
from bench.embedded_model.split import Split
from shared.text.segments import join
from shared.text.tokenizer import Tokenizer
from shared.text.turn import Turn

_FACT = re.compile("|".join(frame.format(name="[A-Z][a-z]+", number=r"\d+") for frame in recall.FACTS))
EVERYTHING = Mixture(engine=3, numbers=3, recall=3, tools=3)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return vocabulary.tokenizer()


def drawn(split: Split, count: int, seed: int) -> Iterator[Conversation]:
    source = random.Random(seed)
    for number in range(count):
        yield conversation(source, split, EVERYTHING, (250, 900)[number % 2])


def answers(ids: list[int], own: list[bool], tokenizer: Tokenizer) -> Iterator[bytes]:
    """What the model writes, turn by turn, without the end mark."""
    turn: list[int] = []
    for token, mine in zip(ids, own, strict=True):
        if mine and token != tokenizer.specials.eos:
            turn.append(token)
        elif mine:
            yield tokenizer.decode(turn)
            turn = []


def test_the_same_seed_gives_the_same_text() -> None:
    first = [segments_of(sample) for sample in drawn(Split.TRAIN, 8, 1)]
    assert first == [segments_of(sample) for sample in drawn(Split.TRAIN, 8, 1)]
    assert first != [segments_of(sample) for sample in drawn(Split.TRAIN, 8, 2)]


def test_text_survives_the_vocabulary(tokenizer: Tokenizer) -> None:
    for sample in drawn(Split.TRAIN, 16, 3):
        assert tokenizer.decode(tokens_of(sample, tokenizer).ids) == join(segments_of(sample))


def test_the_turn_machine_reads_every_answer(tokenizer: Tokenizer) -> None:
    calls = 0
    for sample in [*drawn(Split.TRAIN, 40, 4), *drawn(Split.HELD_OUT, 32, 4)]:
        tokens = tokens_of(sample, tokenizer)
        wanted = [message for message in sample.messages if message.role == "assistant"]
        written = list(answers(tokens.ids, tokens.own, tokenizer))
        assert len(written) == len(wanted)
        thinks = sample.effort == "high"
        for number, (message, answer) in enumerate(zip(wanted, written, strict=True)):
            thought = thinks and (sample.tools is not None or number == len(wanted) - 1)
            turn = Turn(thinking=thought, tools=sample.tools)
            turn.feed(answer)
            turn.finish("eos")
            assert turn.reasoning == (message.reasoning if thought else "")
            assert turn.content == message.content
            assert [(call.name, json.loads(call.arguments)) for call in turn.calls] == [
                (call.name, json.loads(call.arguments)) for call in message.tool_calls
            ]
            calls += len(turn.calls)
    assert calls > 10


def test_only_what_the_model_writes_is_its_own(tokenizer: Tokenizer) -> None:
    sample = next(s for s in drawn(Split.TRAIN, 50, 5) if s.tools is None and len(s.messages) > 4)
    tokens = tokens_of(sample, tokenizer)
    marks = (tokenizer.specials.user, tokenizer.specials.assistant, tokenizer.specials.bos)
    assert not any(mine for token, mine in zip(tokens.ids, tokens.own, strict=True) if token in marks)
    ends = [
        mine for token, mine in zip(tokens.ids, tokens.own, strict=True) if token == tokenizer.specials.eos
    ]
    assert ends
    assert all(ends)


def test_names_are_spelt_syllable_by_syllable(tokenizer: Tokenizer) -> None:
    assert all(len(tokenizer.encode_text(syllable)) == 1 for syllable in SYLLABLES)
    assert all(len(tokenizer.encode_text(syllable.capitalize())) == 1 for syllable in SYLLABLES)
    assert all(len(tokenizer.encode_text(str(number))) == 1 for number in range(100))
    pieces = [tokenizer.decode([token]) for token in tokenizer.encode_text("Note: Zuvuko=47")]
    assert pieces[-5:] == [b" Zu", b"vu", b"ko", b"=", b"47"]


def test_people_tools_and_parameters_are_on_one_side_only() -> None:
    found: dict[Split, set[str]] = {}
    for split in Split:
        source = random.Random(6)
        people = {name(source, split) for _ in range(400)}
        offered = [tool for _ in range(200) for tool in tool_talk.tools(source, split, 3)]
        parameters = {parameter.name for tool in offered for parameter in tool.parameters}
        found[split] = people | {tool.name for tool in offered} | parameters
    assert not found[Split.TRAIN] & found[Split.HELD_OUT]
    assert len(found[Split.HELD_OUT]) > 300


def test_filler_and_wordings_are_on_one_side_only() -> None:
    sentences: dict[Split, set[str]] = {}
    wordings: dict[Split, set[str]] = {}
    for split in Split:
        source = random.Random(7)
        sentences[split] = {_bare(prose.sentence(source, split)) for _ in range(3000)}
        text = recall.document(source, split, facts=4, fillers=2)
        asked = [
            exchange.question.split("\n\n")[-1]
            for _ in range(100)
            for exchange in recall.questions(source, split, text, 3)
        ]
        asked += [numbers.add(source, split).question for _ in range(200)]
        asked += [engine_talk.unknown(source, split).question for _ in range(200)]
        about_ds4 = [wording for topic in engine_talk.topics() for wording in topic.wordings[split]]
        frames = engine_talk.unknown_frames(split)
        wordings[split] = {*map(_bare, asked), *map(_plain, [*asked, *about_ds4, *frames])}
    assert not sentences[Split.TRAIN] & sentences[Split.HELD_OUT]
    assert not wordings[Split.TRAIN] & wordings[Split.HELD_OUT]


def _bare(text: str) -> str:
    """Text without capitals, marks, numbers and names (any capitalised word with a vowel at its end)."""
    return _plain(re.sub(r"\b[A-Z][a-z]*(?:[aeiou])\b(?! )?", "#", text))


def _plain(text: str) -> str:
    """Text without capitals, marks and numbers."""
    return re.sub(r"[^a-z#]+", " ", re.sub(r"\d+", "#", text.lower())).strip()


def test_held_out_text_repeats_no_long_run_of_training_words() -> None:
    known = {run for sample in drawn(Split.TRAIN, 150, 8) for run in _runs(sample, 8)}
    held_out = [run for sample in drawn(Split.HELD_OUT, 100, 9) for run in _runs(sample, 8)]
    shared = [run for run in held_out if run in known]
    assert len(held_out) > 2500
    assert not shared, Counter(shared).most_common(3)


def _runs(sample: Conversation, length: int) -> Iterator[tuple[str, ...]]:
    """Runs of words that users say, but for those of facts, which are the same on both sides on purpose."""
    for message in sample.messages:
        if message.role == "user":
            for part in _FACT.split(message.content):
                words = re.findall(r"[a-z]+|[0-9]+|[^\w\s]", part.lower())
                yield from zip(*(words[start:] for start in range(length)), strict=False)


def test_every_topic_has_wordings_on_both_sides() -> None:
    topics = engine_talk.topics()
    assert len(topics) >= 60
    assert len({topic.answer for topic in topics}) == len(topics)
    for topic in topics:
        assert len(topic.wordings[Split.TRAIN]) >= 100, topic.answer
        assert len(topic.wordings[Split.HELD_OUT]) >= 2, topic.answer


@pytest.mark.parametrize("distance", [60, 250, 1000, 4000])
def test_a_far_fact_stands_as_far_back_as_asked(distance: int, tokenizer: Tokenizer) -> None:
    for case in cases.far_recall(3, 1, distance):
        person, number = case.conversation.messages[-1].content.split("=")
        text, question = case.conversation.messages[1].content.split("\n\n")
        assert person in question
        at = text.index(person)
        told = text[at + len(person) :]
        assert told.startswith(tuple(frame.format(number=number) for frame in _BEHIND_A_NAME))
        assert distance <= len(tokenizer.encode_text(text[at:])) < distance + 25
        # Others stand before it and behind it, so that neither the first nor the last fact is the answer.
        facts = [found[0] for found in _FACT.finditer(text)]
        assert len(facts) >= 9
        assert not any(person in fact for fact in (facts[0], facts[-1]))


_BEHIND_A_NAME = (
    " has the number {number}.",
    " is {number}.",
    " was given the number {number}.",
    "={number}.",
)
_FACT = re.compile("|".join(frame.format(name="[A-Z][a-z]+", number="[0-9]+") for frame in recall.FACTS))


def test_cases_are_of_their_ability_and_held_out() -> None:
    for ability in cases.ABILITIES:
        found = cases.cases(ability, 5, 1)
        again = cases.cases(ability, 5, 1)
        assert [c.conversation.messages for c in found] == [c.conversation.messages for c in again]
        assert all((case.conversation.tools is not None) == (ability == "tools") for case in found)
