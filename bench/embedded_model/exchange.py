"""One question with its answer, as every ability produces it. Knows nothing of rendering."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the user says, what the model thinks (used in thinking mode only) and what it answers.

    With `call` (tool name, JSON arguments) the answer is that call, and a second answer follows `result`.
    """

    ability: str  # engine, tools, recall or numbers
    question: str
    thought: str
    answer: str
    call: tuple[str, str] | None = None
    result: str = ""
    last_thought: str = ""
    last_answer: str = ""
