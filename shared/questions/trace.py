"""The record of a run: prompts and outputs, byte-counted so that they can hold anything. Spec: apps §3.6.

Owns the format, both ways. Knows no engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shared.questions.prompt import SYSTEM, user_text
from shared.questions.question import LETTERS, Question
from shared.questions.run import Outcome

_CASE: Final = re.compile(rb"(?m)^===== CASE [0-9]+/[0-9]+ [^\n]*\n")
_BLOCK: Final = re.compile(rb"(SYSTEM_PROMPT|QUESTION_PROMPT|MODEL_OUTPUT)_BEGIN bytes=([0-9]{1,15})\n")


def head_text(fields: Mapping[str, object]) -> str:
    """The first lines: what ran and how."""
    return "ds4 eval trace\n" + _keys(fields) + "\n"


def case_text(number: int, count: int, question: Question, outcome: Outcome) -> str:
    """One question of a run."""
    close = outcome.close
    keys: dict[str, object] = {
        "source": question.source,
        "id": question.id,
        "status": outcome.status,
        "picked": outcome.picked,
        "expected": question.answer,
        "prompt_tokens": outcome.prompt_tokens,
        "generated_tokens": outcome.generated,
        "seconds": f"{outcome.seconds:.3f}",
        "finish": outcome.cause or "none",
        "think_close": close.kind,
        "think_close_index": close.index,
        "think_close_remaining": close.remaining,
        "think_close_rank": close.rank,
    }
    for letter, text in zip(LETTERS, question.choices, strict=False):
        keys[f"choice_{letter}"] = text
    return "".join(
        [
            f"===== CASE {number}/{count} {question.name} =====\n",
            _keys(keys),
            _block("SYSTEM_PROMPT", SYSTEM),
            _block("QUESTION_PROMPT", user_text(question)),
            _block("MODEL_OUTPUT", outcome.output),
            "\n",
        ]
    )


def summary_text(outcomes: Sequence[Outcome], seconds: float) -> str:
    """The last lines."""
    count = {status: sum(outcome.status == status for outcome in outcomes) for status in ("PASSED", "FAILED")}
    others = len(outcomes) - sum(count.values())
    return (
        f"===== SUMMARY =====\npassed: {count['PASSED']}\nfailed: {count['FAILED']}\nothers: {others}\n"
        f"seconds: {seconds:.3f}\n"
    )


@dataclass(frozen=True, slots=True)
class TracedCase:
    """A case as a trace has it, or `problem` where it could not be read on."""

    source: str = ""
    id: str = ""
    status: str = ""
    picked: str = ""
    output: str = ""
    problem: str = ""


def read_trace(content: bytes) -> Iterator[TracedCase]:
    """The cases of a trace. One that cannot be read is told as such, and reading goes on behind it."""
    found = _CASE.search(content)
    while found is not None:
        case, end = _read_case(content, found.end())
        yield case
        found = _CASE.search(content, end)


def _read_case(content: bytes, position: int) -> tuple[TracedCase, int]:
    """A case and the place behind it. What lies inside a block is never taken for a line of the trace."""
    keys: dict[str, str] = {}
    while True:
        end = content.find(b"\n", position)
        if end < 0:
            return TracedCase(problem="it ends inside a case"), len(content)
        block = _BLOCK.match(content, position)
        if block is None:
            key, separator, value = content[position:end].decode("utf-8", "replace").partition(": ")
            if not separator:
                return TracedCase(problem="it has a line that is no key and no block"), position
            keys.setdefault(key, value)
            position = end + 1
            continue
        start, size = block.end(), int(block[2])
        closing = b"\n" + block[1] + b"_END\n"
        if content[start + size : start + size + len(closing)] != closing:
            return TracedCase(problem="a block has another length than it says"), start
        position = start + size + len(closing)
        if block[1] == b"MODEL_OUTPUT":
            output = content[start : start + size].decode("utf-8", "replace")
            source, name, status, picked = (keys.get(key, "") for key in ("source", "id", "status", "picked"))
            if not (source and name and status and picked):
                return TracedCase(problem="it lacks source, id, status or picked"), position
            return TracedCase(source, name, status, picked, output), position


def _keys(fields: Mapping[str, object]) -> str:
    return "".join(f"{key}: {' '.join(str(value).split())}\n" for key, value in fields.items())


def _block(name: str, text: str) -> str:
    return f"{name}_BEGIN bytes={len(text.encode('utf-8'))}\n{text}\n{name}_END\n"
