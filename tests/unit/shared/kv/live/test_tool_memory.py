"""The memory of sampled tool blocks: all ids or nothing, bounded, unique ids."""

from __future__ import annotations

from shared.kv.live.tool_memory import ReplayCounts, ToolMemory
from shared.text.messages import Message, ToolCall


def _assistant(*ids: str, reasoning: str = "") -> Message:
    calls = tuple(ToolCall(call_id, "f", "{}") for call_id in ids)
    return Message("assistant", "", reasoning=reasoning, tool_calls=calls)


def test_all_ids_of_one_turn_bring_its_block_back() -> None:
    memory = ToolMemory(10)
    memory.remember(["a", "b"], b"BLOCK", "thought")
    replayed, counts = memory.replay([Message("user", "u"), _assistant("a", "b")])
    assert counts == ReplayCounts(mem=1)
    assert replayed[1].raw_dsml == b"BLOCK"
    assert replayed[1].reasoning == "thought"


def test_reasoning_that_came_back_is_kept() -> None:
    memory = ToolMemory(10)
    memory.remember(["a"], b"BLOCK", "thought")
    messages, _ = memory.replay([_assistant("a", reasoning="mine")])
    assert messages[0].reasoning == "mine"


def test_an_unknown_or_foreign_id_means_canonical_rendering() -> None:
    memory = ToolMemory(10)
    memory.remember(["a"], b"ONE", "")
    memory.remember(["b"], b"ONE", "")
    for ids, missing in ((["a", "x"], 1), (["a", "b"], 0), (["x", "y"], 2)):
        messages, counts = memory.replay([_assistant(*ids)])
        assert messages[0].raw_dsml is None, ids
        assert counts == ReplayCounts(canonical=1, missing_ids=missing), ids
    assert memory.replay([_assistant()])[1] == ReplayCounts()


def test_the_least_recently_used_ids_leave_first() -> None:
    memory = ToolMemory(2)
    memory.remember(["a"], b"A", "")
    memory.remember(["b"], b"B", "")
    assert memory.turn_of(["a"]) is not None
    memory.remember(["c"], b"C", "")
    assert ("a" in memory, "b" in memory, "c" in memory) == (True, False, True)


def test_bytes_are_bounded_too_and_freed_with_the_last_id() -> None:
    memory = ToolMemory(100, max_bytes=10)
    memory.remember(["a", "b"], b"12345", "")
    memory.remember(["c"], b"12345", "")
    assert len(memory) == 3
    memory.remember(["d"], b"123", "45")
    assert len(memory) == 2
    assert "c" in memory
    memory.remember(["huge"], b"x" * 11, "")
    assert len(memory) == 0


def test_ids_are_drawn_until_unique() -> None:
    memory = ToolMemory(10)
    memory.remember(["known"], b"", "")
    drawn = iter(["known", "x", "x", "y"])
    new_id = memory.unique(lambda: next(drawn))
    assert (new_id(), new_id()) == ("x", "y")
