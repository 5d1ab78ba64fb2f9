"""Looks up tool calls that a client sends back and memory does not know in the files of the disk store.

Runs before a prompt is rendered, on a request's thread. Spec: kv §8.4. Knows no dialect and no session.
"""

from __future__ import annotations

from collections.abc import Sequence

from shared.kv.live.tool_memory import ToolMemory
from shared.kv.store.store import KvStore
from shared.text.messages import Message


def recall_calls(messages: Sequence[Message], memory: ToolMemory, store: KvStore) -> None:
    """Bring what the store holds of the history's calls into `memory`."""
    missing = memory.missing(call.id for message in messages for call in message.tool_calls)
    if not missing:
        return
    for found in store.tool_turns(missing):
        memory.adopt(found.calls, found.text)
