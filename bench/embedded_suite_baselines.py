"""What can be had of the embedded model's cases without a model: by chance, and by copying.

`python -m bench.embedded_suite_baselines` writes the shares that `ds4 eval --suite embedded` shows beside its
own. Chance knows the form of an answer and where its parts stand, and draws among them. The other one answers
as the most similar training example does, word for word.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import factorial
from pathlib import Path

from bench.embedded_model import recall
from bench.embedded_model.conversation import Mixture, conversation
from bench.embedded_model.numbers import LARGEST
from bench.embedded_model.split import Split
from bench.embedded_suite import FILE, ability_case
from shared.abilities.case import AbilityCase, ExpectedCall, read_cases

BASELINES = FILE.with_name("embedded_baselines.json")
SEED = 20261201
# Training examples to be copied from, for each kind of question: recall brings long texts.
EXAMPLES = {"engine": 10_000, "numbers": 10_000, "tools": 2_000, "recall": 500}
_TOKENS = {"engine": 200, "numbers": 200, "tools": 900, "recall": 1000}
_LONGEST_RUN = 3


def chance(case: AbilityCase, answers: int) -> float:
    """The probability that a right answer is drawn by lot; `answers` about the engine exist."""
    if case.ability == "engine":
        return 1 / answers
    first = case.expected[0]
    if isinstance(first, ExpectedCall):
        return 1 / len(case.tools) / len(first.arguments) ** len(first.arguments)
    if case.ability == "numbers":
        parts = first.text.split()
        return 1 / (2 * LARGEST + 1) if len(parts) == 1 else 1 / factorial(len(parts))
    return 1 / facts_in(case.user)


def facts_in(text: str) -> int:
    """Facts that a text states, at least 1."""
    patterns = [
        re.escape(frame).replace(r"\{name\}", "[A-Z][a-z]+").replace(r"\{number\}", "[0-9]+")
        for frame in recall.FACTS
    ]
    return max(1, len(re.findall("|".join(patterns), text)))


class NearestExample:
    """Training examples of one ability, found by the runs of one to three words that they share with a
    question."""

    def __init__(self, examples: Sequence[AbilityCase]) -> None:
        self._examples = examples
        self._sizes: list[int] = []
        self._holders: dict[tuple[str, ...], list[int]] = {}
        for number, example in enumerate(examples):
            runs = word_runs(example.user)
            self._sizes.append(len(runs))
            for run in runs:
                self._holders.setdefault(run, []).append(number)

    def answers(self, case: AbilityCase) -> bool:
        """Whether the nearest example, the first of equals, has the very answers that the case wants."""
        runs = word_runs(case.user)
        shared = Counter(number for run in runs for number in self._holders.get(run, ()))
        nearest = max(
            range(len(self._examples)),
            key=lambda number: (shared[number] / (self._sizes[number] + len(runs) - shared[number]), -number),
        )
        return self._examples[nearest].expected == case.expected


def word_runs(text: str) -> set[tuple[str, ...]]:
    """All runs of one to three words, numbers and marks of a text, in small letters."""
    words = re.findall(r"[a-z]+|[0-9]+|[^\w\s]", text.lower())
    return set(_runs(words))


def _runs(words: list[str]) -> Iterator[tuple[str, ...]]:
    for length in range(1, _LONGEST_RUN + 1):
        yield from zip(*(words[start:] for start in range(length)), strict=False)


def training_examples(ability: str, count: int, seed: int = SEED) -> list[AbilityCase]:
    """`count` training conversations with one question each."""
    source = random.Random(f"{ability} {seed}")
    mixture = Mixture(**{name: float(name == ability) for name in EXAMPLES})
    return [
        ability_case(
            ability,
            str(number),
            conversation(source, Split.TRAIN, mixture, _TOKENS[ability], one_exchange=True),
        )
        for number in range(count)
    ]


def shares(cases: Iterable[AbilityCase], examples: dict[str, int]) -> dict[str, dict[str, float]]:
    """Baseline to ability to share of right answers, with so many training examples for each ability."""
    by_ability: dict[str, list[AbilityCase]] = {}
    for case in cases:
        by_ability.setdefault(case.ability, []).append(case)
    found: dict[str, dict[str, float]] = {"chance": {}, "nearest training example": {}}
    nearest = {name: NearestExample(training_examples(name, count)) for name, count in examples.items()}
    for ability, own in by_ability.items():
        answers = len({str(case.expected) for case in own})
        found["chance"][ability] = sum(chance(case, answers) for case in own) / len(own)
        book = nearest[ability.split()[-1]]
        found["nearest training example"][ability] = sum(map(book.answers, own)) / len(own)
    return found


def write(path: Path = BASELINES) -> None:
    """Computes the shares of all cases and writes them, rounded to a tenth of a percent."""
    rounded = {
        name: {ability: round(share, 3) for ability, share in by_ability.items()}
        for name, by_ability in shares(read_cases(FILE), EXAMPLES).items()
    }
    path.write_text(json.dumps(rounded, indent=1) + "\n")


if __name__ == "__main__":
    write()
    print(BASELINES.read_text())
