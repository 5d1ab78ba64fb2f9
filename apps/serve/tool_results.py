"""The results of tools in a history: to which calls they belong, and what a prompt that ends with them is.

Runs before a prompt is rendered. Spec: chat §6. Knows no dialect and no session.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from shared.errors import RequestError
from shared.kv.live.tool_tail import TailSource, ToolTail
from shared.text.effort import Effort
from shared.text.messages import Message
from shared.text.template import render_tail

_TOOL_ROLES: Final = ("tool", "function")
_SYSTEM_ROLES: Final = ("system", "developer")


def check_results(
    messages: Sequence[Message], is_live: Callable[[Collection[str]], bool], *, field: str
) -> None:
    """Every result must name a call that stands before it, or one that a live answer made.

    Raises RequestError for a result that names neither: `field` is where the history stands in the body.
    """
    called: set[str] = set()
    for message in messages:
        called.update(call.id for call in message.tool_calls)
        for call_id in message.tool_call_ids:
            if call_id not in called and not is_live([call_id]):
                raise RequestError(
                    f"{field}: there is no call {call_id[:80]!r} that this tool result could belong to: send "
                    "the whole history, with every call before its result",
                    param=field,
                )


def tool_tail(
    messages: Sequence[Message],
    source: TailSource,
    *,
    effort: Effort,
    control_tokens_in_content: bool = False,
) -> ToolTail | None:
    """The results that `messages` end with, None if they end otherwise.

    Texts in a turn of results belong to it. The calls are those of the answer before the results,
    or, if nothing stands there, the ones that the results name.
    """
    spoken = [message for message in messages if message.role not in _SYSTEM_ROLES]
    start = _results_start(spoken)
    tail, before = spoken[start:], spoken[:start]
    if not tail:
        return None
    if before and not before[-1].tool_calls:
        return None
    if before:
        calls = frozenset(call.id for call in before[-1].tool_calls)
    else:
        calls = frozenset(call_id for message in tail for call_id in message.tool_call_ids)
    segments = render_tail(tail, effort=effort, control_tokens_in_content=control_tokens_in_content)
    return ToolTail(calls, segments, source, alone=not before)


def _results_start(messages: Sequence[Message]) -> int:
    """Where the last turns begin that hold results."""
    start = end = len(messages)
    holds_result = False
    while end:
        end -= 1
        holds_result = holds_result or messages[end].role in _TOOL_ROLES
        if not messages[end].continues:
            if not holds_result:
                break
            start, holds_result = end, False
    return start
