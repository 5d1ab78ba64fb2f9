"""The results of tools that a prompt ends with, when the calls may have been made by a live answer.

The ids of the calls name that answer, whatever a client sends back of its words. Spec: chat §6.
Must not know: sessions, slots, dialects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from shared.text.segments import Segment, join

# How a turn that goes on behind such calls is called in logs: by the API that their client speaks.
TailSource = Literal["responses-tool-output", "anthropic-tool-output"]


@dataclass(frozen=True, eq=False)
class ToolTail:
    """`calls` are the ids of all calls of the answer that the results belong to; `segments` is what follows
    that answer: its end mark, the results, the marks of the next answer.

    With `alone` the client sent nothing else: without the live answer the prompt means nothing.
    """

    calls: frozenset[str]
    segments: Sequence[Segment]
    source: TailSource
    alone: bool = False

    @cached_property
    def rendered(self) -> bytes:
        """The segments as text."""
        return join(self.segments)
