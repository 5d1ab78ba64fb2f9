"""`--trace FILE`: one JSON line per event of a chat, for people who want to see exactly what was sent.

It holds secrets: the file is created readable by its owner only, and truncated at start.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from apps.chat.answer import Answer
from shared.text.tokenizer import Tokenizer


class Trace:
    """Writes events to `path`; without a path it does nothing."""

    def __init__(self, path: Path | None) -> None:
        self._file = None
        if path is not None:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.fchmod(descriptor, 0o600)
            self._file = os.fdopen(descriptor, "w", encoding="utf-8", buffering=1)

    def write(self, event: str, **fields: Any) -> None:
        """Write one line: `event` and its fields."""
        if self._file is not None:
            self._file.write(json.dumps({"event": event, **fields}, ensure_ascii=False) + "\n")

    def __enter__(self) -> Trace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


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
