"""The cases that ship are held out: nothing that names or words them occurs in a sample of training text."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

import pytest

from bench import embedded_suite_baselines as baselines
from bench.embedded_model import engine_talk, numbers, prose, recall, tool_talk
from bench.embedded_model.conversation import Conversation, Mixture, conversation
from bench.embedded_model.split import Split
from bench.embedded_suite import FILE
from shared.abilities.case import AbilityCase, ExpectedAnswer, ExpectedCall, read_cases
from shared.text.messages import ToolSchema

_NAME = re.compile(r"(?:[bdfgklmnprstvz][aeiou]){2,3}")
# Words of ours that are built like a name: of frames, and of the talk about the engine.
_NO_NAMES = {
    *("before", "file", "fine", "give", "late", "like", "line", "made", "make", "mine", "note", "repeat"),
    *("role", "size", "some", "time", "title", "use"),
    *re.findall("[a-z]+", engine_talk.ANSWERS.read_text(encoding="utf-8").lower()),
}
_SLOTS = frozenset(
    word
    for words in (
        *(text.split() for text in prose.WORDS.values()),
        *(tool_talk.VERBS, tool_talk.OBJECTS, tool_talk.QUALITIES, tool_talk.TEXT_KINDS),
        *(tool_talk.NUMBER_KINDS, ("txt", "md", "py")),
    )
    for word in words
)
_FACT = re.compile("|".join(frame.format(name="[A-Z][a-z]+", number="[0-9]+") for frame in recall.FACTS))


@dataclass
class Said:
    """What is offered and said by users in conversations."""

    tools: set[str] = field(default_factory=set)
    parameters: set[str] = field(default_factory=set)
    people: set[str] = field(default_factory=set)
    sentences: set[str] = field(default_factory=set)
    wordings: set[str] = field(default_factory=set)
    runs: list[tuple[str, ...]] = field(default_factory=list)

    def offer(self, schemas: Iterable[ToolSchema]) -> None:
        for schema in schemas:
            self.tools.add(schema["name"])
            self.parameters |= set(schema["parameters"]["properties"])

    def say(self, text: str) -> None:
        self.people |= {word for word in _words(text) if _is_name(word)}
        prose_part, separator, question = text.rpartition("\n\n")
        self.wordings.add(_wording(question))
        if separator:
            parts = re.split(r"(?<=[.!?]) ", _FACT.sub("", prose_part))
            self.sentences |= {_wording(part) for part in parts} - {""}
        # What a fact looks like is the same on both sides: it is what the model is to recognise.
        words = _words(_FACT.sub("", text))
        self.runs += zip(*(words[start:] for start in range(8)), strict=False)


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+|[0-9]+", text.lower())


def _is_name(word: str) -> bool:
    return word not in _NO_NAMES and word not in _SLOTS and _NAME.fullmatch(word) is not None


def _wording(text: str) -> str:
    """Text in which names, numbers and the words that are drawn into a frame are one and the same."""
    bare = ["_" if word in _SLOTS or word.isdigit() or _is_name(word) else word for word in _words(text)]
    return re.sub(r"_(?: (?:and )?_)+", "_", " ".join(bare))


@cache
def _suite() -> tuple[list[AbilityCase], Said]:
    cases, said = read_cases(FILE), Said()
    for case in cases:
        said.offer(case.tools)
        said.say(case.user)
        for step in case.expected:
            if isinstance(step, ExpectedCall):
                said.tools.add(step.tool)
                said.parameters |= set(step.arguments)
    return cases, said


def _training(count: int, seed: int) -> Iterator[Conversation]:
    source, mixture = random.Random(seed), Mixture(engine=3, numbers=3, recall=4, tools=4)
    for number in range(count):
        yield conversation(source, Split.TRAIN, mixture, (250, 900, 900, 2000)[number % 4])


@pytest.mark.parametrize("count", [250, pytest.param(6000, marks=pytest.mark.long)])
def test_no_case_shares_a_name_a_sentence_or_a_wording_with_training_text(count: int) -> None:
    _, held_out = _suite()
    trained = Said()
    for sample in _training(count, seed=11):
        if sample.tools is not None:
            trained.offer(sample.tools.schemas)
        for message in sample.messages:
            if message.role == "user":
                trained.say(message.content)
    for kind in ("tools", "parameters", "people", "sentences", "wordings"):
        theirs, ours = getattr(trained, kind), getattr(held_out, kind)
        assert not theirs & ours, kind
        assert len(theirs) > 15, kind
    assert len(held_out.people) > 1000
    known = set(trained.runs)
    shared = [run for run in held_out.runs if run in known]
    assert len(shared) < 0.002 * len(held_out.runs), shared[:3]


def test_the_answers_about_the_engine_are_those_of_today() -> None:
    cases, _ = _suite()
    today = {topic.answer for topic in engine_talk.topics()} | {engine_talk.UNKNOWN}
    asked = {case.expected for case in cases if case.ability == "engine"}
    said = {step.text for steps in asked for step in steps if isinstance(step, ExpectedAnswer)}
    assert said <= today
    assert len(said) > 50


def test_chance_counts_what_could_be_drawn() -> None:
    def case(ability: str, user: str, expected: ExpectedAnswer | ExpectedCall, tools: int = 0) -> AbilityCase:
        return AbilityCase(ability, "1", "", user, "none", (expected,), ({"name": "t"},) * tools)

    text = "Note: Bumi=12. The number of Lefu is 7. Rain fell. Zasu has the number 99. Who?"
    assert baselines.chance(case("recall", text, ExpectedAnswer("Bumi=12")), 9) == pytest.approx(1 / 3)
    call = ExpectedCall("t", {"a": 1, "b": 2}, "")
    assert baselines.chance(case("tools", "", call, 3), 9) == pytest.approx(1 / 3 / 4)
    assert baselines.chance(case("numbers", "", ExpectedAnswer("12")), 9) == pytest.approx(
        1 / (2 * numbers.LARGEST + 1)
    )
    assert baselines.chance(case("numbers", "", ExpectedAnswer("a b c")), 9) == pytest.approx(1 / 6)
    assert baselines.chance(case("engine", "", ExpectedAnswer("It is.")), 9) == pytest.approx(1 / 9)


def test_the_nearest_example_is_the_one_with_the_most_words_in_common() -> None:
    def case(user: str, answer: str) -> AbilityCase:
        return AbilityCase("engine", "1", "", user, "none", (ExpectedAnswer(answer),))

    nearest = baselines.NearestExample(
        [case("How do I start the server?", "Run it."), case("How do I stop?", "Press Ctrl+C.")]
    )
    assert nearest.answers(case("How can I start this server?", "Run it."))
    assert not nearest.answers(case("How can I stop?", "Run it."))


@pytest.mark.long
def test_the_baselines_on_file_are_those_of_the_cases(tmp_path) -> None:
    baselines.write(tmp_path / "made.json")
    assert (tmp_path / "made.json").read_bytes() == baselines.BASELINES.read_bytes()
