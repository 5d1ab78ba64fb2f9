"""`local-golden.vec`: the best logits that an engine with the same weights had behind a prompt.

Owns the format (spec: apps §10). Knows no engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple, cast, get_args

from shared.evaluation.vector_lines import MOST_CONTEXT, VectorLines

# A prompt is a text as it is, a rendered transcript with its control strings, or a user message.
PromptMode = Literal["text", "rendered", "chat"]
MODES: Final = get_args(PromptMode)
MOST_CANDIDATES = 1024
_MOST_IDS = 1 << 24


class LocalCandidate(NamedTuple):
    """A token id and its logit."""

    token: int
    logit: float


@dataclass(frozen=True, slots=True)
class LocalCase:
    """The best logits after the first `frontier` tokens of a prompt, the best first."""

    id: str
    mode: PromptMode
    context: int
    frontier: int
    prompt_file: str
    top: tuple[LocalCandidate, ...]


def read_local(path: Path) -> list[LocalCase]:
    """The cases of a file, at least one. Raises UsageError with the line."""
    lines = VectorLines(path)
    cases: list[LocalCase] = []
    while not lines.ended or not cases:
        case = _read_case(lines)
        if any(case.id == other.id for other in cases):
            raise lines.fault(f"the id {case.id!r} occurs twice")
        cases.append(case)
    return cases


def local_text(cases: Sequence[LocalCase], comment: str) -> str:
    """The file that `read_local` reads."""
    lines = [f"# {comment}"]
    for case in cases:
        head = f"case {case.id} {case.mode} {case.context} {case.frontier} {case.prompt_file}"
        lines.append(f"{head} {len(case.top)}")
        lines += [f"top {rank} {best.token} {best.logit:.9g}" for rank, best in enumerate(case.top)]
        lines.append("end")
    return "\n".join([*lines, ""])


def _read_case(lines: VectorLines) -> LocalCase:
    name, mode, context, frontier, prompt, count = lines.take("case", 6, "a case")
    where = f"case {ascii(name)[:60]}"
    lines.name(name)
    if mode not in MODES:
        raise lines.fault(f"the mode must be {', '.join(MODES)}, not {ascii(mode)[:40]}")
    room = lines.whole(context, 2, MOST_CONTEXT, "the context")
    tokens = lines.whole(frontier, 1, room - 1, "the frontier")
    candidates = lines.whole(count, 1, MOST_CANDIDATES, "the number of candidates")
    top: list[LocalCandidate] = []
    first = 0
    for number in range(candidates):
        rank, token, logit = lines.take("top", 3, where)
        if number == 0:
            first = lines.whole(rank, 0, 1, "the first rank")  # files count from 0 or from 1
        lines.whole(rank, first + number, first + number, "the rank")
        top.append(
            LocalCandidate(lines.whole(token, 0, _MOST_IDS, "the token"), lines.real(logit, "the logit"))
        )
    if len({best.token for best in top}) != len(top):
        raise lines.fault(f"a token occurs twice in {where}")
    lines.take("end", 0, where)
    return LocalCase(name, cast(PromptMode, mode), room, tokens, prompt, tuple(top))
