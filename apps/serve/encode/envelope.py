"""What chat and completions share on the wire: the repeated members, the counts, the end of a stream.

Spec: chat §5.5 and §5.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from apps.serve.encode.usage import timings_body, usage_body
from apps.serve.jobs import Finished
from apps.serve.sse import frame

_DONE: Final = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Envelope:
    """What all parts of one answer repeat."""

    id: str
    created: int
    model: str

    def wrap(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }


def totals(finished: Finished) -> dict[str, Any]:
    """What is told of a whole answer besides its choices."""
    return {"usage": usage_body(finished.usage), "timings": timings_body(finished)}


def last_frames(last: dict[str, Any], finished: Finished, *, include_usage: bool) -> bytes:
    """The end of a stream: its `last` chunk, the counts if they were asked for, and the end mark. The rates
    go with whichever comes last."""
    if not include_usage:
        return frame(last | {"timings": timings_body(finished)}) + _DONE
    return frame(last) + frame(last | {"choices": []} | totals(finished)) + _DONE
