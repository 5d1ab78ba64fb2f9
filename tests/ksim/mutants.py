"""Broken copies of a kernel's text, made by rule: what tests must find.

Rules: each barrier deleted; < and <= (> and >=) swapped; ties turned; each index and loop bound by one; each
rounding or narrowing cast dropped; each mask dropped.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.ksim.mutation_rules import RULES, Source


@dataclass(frozen=True, slots=True)
class Mutant:
    """A text with one change in `line` (from 1), of `before` into `after`.

    (rule, source, occurrence) names it as long as its line stays what it is: `source` is that line without
    blanks around it, `occurrence` counts from 0 the mutants of that rule in lines of that text.
    """

    rule: str
    line: int
    before: str
    after: str
    text: str
    source: str
    occurrence: int

    @property
    def key(self) -> tuple[str, str, int]:
        """What a proof of equivalence is filed under."""
        return self.rule, self.source, self.occurrence


def mutants(text: str, rounding: Sequence[str] = ()) -> list[Mutant]:
    """All mutants of a kernel's text, in the order of their places.

    Args:
        text: a body or a header.
        rounding: names of the kernel's own functions that round their first argument.
    """
    source = Source.read(text, rounding)
    edits = [edit for rule in RULES for edit in rule(source)]
    edits.sort(key=lambda edit: edit.start)
    lines = text.splitlines()
    made, seen, occurrences = [], {text}, Counter[tuple[str, str]]()
    for edit in edits:
        before = text[edit.start : edit.end]
        # A statement that is left out may span lines; the lines after it keep their numbers.
        after = edit.replacement + "\n" * (before.count("\n") - edit.replacement.count("\n"))
        changed = text[: edit.start] + after + text[edit.end :]
        if changed in seen:
            continue
        seen.add(changed)
        line = text.count("\n", 0, edit.start) + 1
        place = (edit.rule, lines[line - 1].strip())
        made.append(Mutant(edit.rule, line, before, after, changed, place[1], occurrences[place]))
        occurrences[place] += 1
    return made


def sample(of: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """`count` of the mutants, every rule among them as far as that goes; the same for the same seed."""
    shuffled = list(of)
    random.Random(seed).shuffle(shuffled)
    by_rule: dict[str, list[Mutant]] = {}
    for mutant in shuffled:
        by_rule.setdefault(mutant.rule, []).append(mutant)
    chosen: list[Mutant] = []
    while len(chosen) < min(count, len(of)):
        for group in by_rule.values():
            if group and len(chosen) < count:
                chosen.append(group.pop())
    return sorted(chosen, key=lambda mutant: (mutant.line, mutant.rule, mutant.occurrence))
