"""The table that scoring writes, and how two of them compare. Spec: apps §8.4. Knows no model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.errors import UsageError
from shared.evaluation.input_file import read_lines
from shared.evaluation.teacher_forcing import CaseScore

COLUMNS = ("id", "prompt_tokens", "target_tokens", "nll", "avg_nll", "first_match", "greedy_lcp")
HEADER = "\t".join(COLUMNS)
TIE = 1e-9  # nats of a case's average
_WHAT = "the score table"


def row(score: CaseScore) -> str:
    """A line of the table, without its end."""
    numbers = f"{score.nll:.9f}\t{score.avg_nll:.9f}\t{int(score.first_match)}\t{score.greedy_lcp}"
    return f"{score.id}\t{score.prompt_tokens}\t{score.target_tokens}\t{numbers}"


def read_table(path: Path) -> list[CaseScore]:
    """The rows of a table. Raises UsageError with the line."""
    lines = read_lines(path, _WHAT)
    if lines[0] != HEADER:
        raise UsageError(f"{_WHAT} {path}, line 1: expected the columns {' '.join(COLUMNS)}")
    scores: dict[str, CaseScore] = {}
    for number, line in enumerate(lines[1:], start=2):
        score = _parse(line)
        if score is None:
            raise UsageError(f"{_WHAT} {path}, line {number}: these are not the columns of a scored case")
        if score.id in scores:
            raise UsageError(f"{_WHAT} {path}, line {number}: the id {score.id!r} occurs twice")
        scores[score.id] = score
    return list(scores.values())


@dataclass(frozen=True, slots=True)
class Summary:
    """Scores over all tokens of several cases; `avg_lcp` and `first_match` over the cases."""

    cases: int
    tokens: int
    avg_nll: float
    first_match: int
    avg_lcp: float

    def line(self) -> str:
        return (
            f"cases={self.cases} tokens={self.tokens} avg_nll={self.avg_nll:.9f} "
            f"first_match={self.first_match} avg_lcp={self.avg_lcp:.3f}"
        )


def summarise(scores: Sequence[CaseScore]) -> Summary:
    """The figures of at least one case."""
    tokens = sum(score.target_tokens for score in scores)
    return Summary(
        cases=len(scores),
        tokens=tokens,
        avg_nll=sum(score.nll for score in scores) / tokens,
        first_match=sum(score.first_match for score in scores),
        avg_lcp=sum(score.greedy_lcp for score in scores) / len(scores),
    )


@dataclass(frozen=True, slots=True)
class CasePair:
    """A case in both tables."""

    old: CaseScore
    new: CaseScore

    @property
    def delta(self) -> float:
        """Nats a token that the new model is worse by; 0 where both are equally lost."""
        old, new = self.old.avg_nll, self.new.avg_nll
        return 0.0 if old == new else new - old


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two models on the same cases."""

    pairs: Sequence[CasePair]

    @property
    def old(self) -> Summary:
        return summarise([pair.old for pair in self.pairs])

    @property
    def new(self) -> Summary:
        return summarise([pair.new for pair in self.pairs])

    @property
    def wins_new_old_ties(self) -> tuple[int, int, int]:
        new = sum(pair.delta < -TIE for pair in self.pairs)
        old = sum(pair.delta > TIE for pair in self.pairs)
        return new, old, len(self.pairs) - new - old

    def figures(self) -> dict[str, int | float | list[int] | list[float]]:
        """Every figure by its published name; averages in nats a token."""
        old, new = self.old, self.new
        delta = 0.0 if old.avg_nll == new.avg_nll else new.avg_nll - old.avg_nll
        return {
            "cases": old.cases,
            "tokens": old.tokens,
            "old_avg_nll": old.avg_nll,
            "new_avg_nll": new.avg_nll,
            "delta_new_minus_old": delta,
            "relative_nll_change": delta / old.avg_nll if old.avg_nll else 0.0,
            "case_wins_new_old_ties": list(self.wins_new_old_ties),
            "first_token_matches_old_new": [old.first_match, new.first_match],
            "avg_greedy_lcp_old_new": [old.avg_lcp, new.avg_lcp],
        }

    def best(self, *, for_new: bool, count: int = 8) -> list[CasePair]:
        """The cases that one side wins most clearly, the clearest first."""
        sign = 1 if for_new else -1
        won = [pair for pair in self.pairs if sign * pair.delta < -TIE]
        return sorted(won, key=lambda pair: (sign * pair.delta, pair.old.id))[:count]


def compare(old: Sequence[CaseScore], new: Sequence[CaseScore]) -> Comparison:
    """Compare on the ids that both have. Raises UsageError if there are none, or if a case was not the same
    text in both."""
    others = {score.id: score for score in new}
    pairs = [CasePair(score, others[score.id]) for score in old if score.id in others]
    if not pairs:
        raise UsageError("the two tables have no case in common")
    for pair in pairs:
        sizes = [(score.prompt_tokens, score.target_tokens) for score in (pair.old, pair.new)]
        if sizes[0] != sizes[1]:
            raise UsageError(
                f"case {pair.old.id!r} has {sizes[0][0]} + {sizes[0][1]} tokens in one table and "
                f"{sizes[1][0]} + {sizes[1][1]} in the other: they are not of the same text"
            )
    return Comparison(pairs)


def _parse(line: str) -> CaseScore | None:
    """A row, or None if it is none: `avg_nll` is computed anew."""
    columns = line.split("\t")
    if len(columns) != len(COLUMNS) or not columns[0] or not columns[0].isprintable():
        return None
    try:
        prompt, targets, matched = int(columns[1]), int(columns[2]), int(columns[6])
        nll, first = float(columns[3]), {"0": False, "1": True}[columns[5]]
    except (ValueError, KeyError):
        return None
    if prompt < 1 or targets < 1 or not 0 <= matched <= targets or math.isnan(nll) or nll < 0:
        return None
    return CaseScore(columns[0], prompt, targets, nll, first, matched)
