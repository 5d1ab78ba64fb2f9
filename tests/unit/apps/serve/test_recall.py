"""Calls that only files know are looked up once, and only those."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from apps.serve.recall import recall_calls
from shared.kv.live.tool_memory import ToolMemory
from shared.kv.store.outcomes import ToolMap
from shared.kv.store.store import KvStore
from shared.text.messages import Message, ToolCall
from tests.support.turns import BASH


class _Store:
    """A store whose files know the call `old`."""

    def __init__(self) -> None:
        self.asked: list[set[str]] = []

    def tool_turns(self, ids: Collection[str]) -> list[ToolMap]:
        self.asked.append(set(ids))
        text = f"<｜Assistant｜><think>why</think>{BASH}".encode()
        return [ToolMap(text, {"old": BASH.encode()})] if "old" in ids else []


def _history(*ids: str) -> list[Message]:
    calls = tuple(ToolCall(call_id, "bash", "{}") for call_id in ids)
    return [Message("user", "u"), Message("assistant", "", tool_calls=calls)]


def test_what_memory_does_not_know_comes_from_the_files() -> None:
    memory, store = ToolMemory(10), _Store()
    memory.remember(["new"], b"block", "")
    recall_calls(_history("new", "old", "foreign"), memory, cast("KvStore", store))
    assert store.asked == [{"old", "foreign"}]
    found = memory.turn_of(["old"])
    assert found is not None
    assert (found.block, found.reasoning(0)) == (BASH.encode(), "why")


def test_nothing_is_asked_when_everything_is_known() -> None:
    memory, store = ToolMemory(10), _Store()
    memory.remember(["new"], b"block", "")
    recall_calls(_history("new"), memory, cast("KvStore", store))
    recall_calls([Message("user", "u")], memory, cast("KvStore", store))
    assert not store.asked
