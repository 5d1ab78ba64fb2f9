"""What the trace of a chat says of one turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.chat.answer import Answer
from shared.text.tokenizer import Tokenizer


def turn_fields(prompt: Sequence[int], answer: Answer, tokenizer: Tokenizer) -> dict[str, Any]:
    """The fields of a `turn` event: what was sent, what came, what it cost."""
    figures = answer.statistics
    return {
        "prompt_tokens": list(prompt),
        "prompt": tokenizer.decode(prompt).decode("utf-8", "replace"),
        "tokens": answer.tokens,
        "text": tokenizer.decode(answer.tokens).decode("utf-8", "replace"),
        "cause": answer.cause,
        "reused": figures.reused,
        "prefilled": figures.prefilled,
        "prefill_seconds": figures.prefill_seconds,
        "generation_seconds": figures.generation_seconds,
    }
