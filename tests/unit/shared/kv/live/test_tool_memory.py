"""The memory of sampled tool blocks: all ids or nothing, bounded, unique ids; what cache files add to it."""

from __future__ import annotations

from threading import Thread

from hypothesis import given
from hypothesis import strategies as st

from shared.kv.live.tool_memory import Origin, ReplayCounts, ToolMemory
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
        assert counts == ReplayCounts(canonical=1, missing_ids=missing, bare=1), ids
    assert memory.replay([_assistant()])[1] == ReplayCounts()
    thought = memory.replay([_assistant("x", reasoning="mine")])[1]
    assert thought == ReplayCounts(canonical=1, missing_ids=1)


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


BLOCK = '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="ls">…</｜DSML｜tool_calls>'.encode()
OTHER = b"<tool_calls></tool_calls>"


def _answer(reasoning: str, block: bytes = BLOCK) -> bytes:
    head = f"<｜User｜>go<｜Assistant｜><think>{reasoning}</think>I look.".encode()
    return head + block + "<｜end▁of▁sentence｜>".encode()


def _reasonings(memory: ToolMemory, *ids: str) -> list[str]:
    return [message.reasoning for message in memory.replay([_assistant(call_id) for call_id in ids])[0]]


def test_a_file_carries_every_id_of_the_blocks_in_its_text() -> None:
    memory = ToolMemory(10)
    memory.remember(["a", "b"], BLOCK, "why")
    memory.remember(["c"], OTHER, "")
    memory.remember(["elsewhere"], b"<tool_calls>x</tool_calls>", "")
    text = b"head" + OTHER + _answer("why") + _answer("again") + b"<tool_calls>unknown</tool_calls>"
    assert list(memory.turns_in(text).items()) == [("c", OTHER), ("a", BLOCK), ("b", BLOCK)]
    assert memory.turns_in(b"none") == {}


def test_what_left_the_memory_is_in_no_file() -> None:
    memory = ToolMemory(1)
    memory.remember(["a"], BLOCK, "")
    memory.remember(["b"], BLOCK, "")
    assert memory.turns_in(BLOCK) == {"b": BLOCK}
    memory.remember(["c"], OTHER, "")
    assert memory.turns_in(BLOCK) == {}


def test_a_block_is_let_go_with_its_last_id() -> None:
    freed = []

    class Block(bytes):
        def __del__(self) -> None:
            freed.append(bytes(self))

    memory = ToolMemory(1)
    memory.remember(["a"], Block(BLOCK), "")
    assert not freed
    memory.remember(["b"], OTHER, "")
    assert freed == [BLOCK]


def test_a_map_read_from_a_file_replays_like_what_was_sampled() -> None:
    memory = ToolMemory(10)
    memory.adopt({"a": BLOCK, "b": BLOCK}, _answer("why"))
    messages, counts = memory.replay([_assistant("a", "b")])
    assert counts == ReplayCounts(disk=1)
    assert (messages[0].raw_dsml, messages[0].reasoning) == (BLOCK, "why")
    assert memory.turns_in(BLOCK) == {"a": BLOCK, "b": BLOCK}
    assert memory.missing(["a", "x", "b"]) == {"x"}


def test_a_block_that_the_text_does_not_hold_is_not_believed() -> None:
    memory = ToolMemory(10)
    damaged = BLOCK.replace(b"ls", b"rm")
    memory.adopt({"a": BLOCK, "b": damaged, "c": b"<", "d": BLOCK[2:]}, _answer("why"))
    assert memory.missing("abcd") == {"b", "c", "d"}


def test_what_was_sampled_here_wins_over_a_file() -> None:
    memory = ToolMemory(10)
    memory.remember(["a"], BLOCK, "mine")
    memory.adopt({"a": BLOCK}, _answer("theirs") + _answer("theirs too"))
    assert _reasonings(memory, "a") == ["mine"]
    memory.adopt({"b": BLOCK}, _answer("theirs"))
    memory.remember(["b"], OTHER, "mine too")
    turn = memory.turn_of(["b"])
    assert turn is not None
    assert (turn.origin, turn.block) == (Origin.RAM, OTHER)


def test_ids_of_one_block_may_come_from_memory_and_file() -> None:
    memory = ToolMemory(10)
    memory.remember(["a"], BLOCK, "mine")
    memory.adopt({"b": BLOCK}, _answer("mine"))
    assert memory.replay([_assistant("a", "b")])[1] == ReplayCounts(mem=1)
    assert memory.replay([_assistant("b", "a")])[1] == ReplayCounts(disk=1)
    memory.adopt({"c": OTHER}, OTHER)
    assert memory.replay([_assistant("a", "c")])[1] == ReplayCounts(canonical=1, bare=1)


def test_the_same_call_twice_gets_back_the_reasoning_of_each_turn() -> None:
    memory = ToolMemory(10)
    memory.adopt({"b": BLOCK, "a": BLOCK}, _answer("first") + _answer("second"))
    assert _reasonings(memory, "a", "b") == ["first", "second"]
    memory.remember(["a"], BLOCK, "first")
    assert _reasonings(memory, "a", "b") == ["first", "second"]
    assert _reasonings(memory, "a", "b", "b") == ["first", "second", "second"]


def test_a_longer_file_of_the_same_conversation_adds_to_a_shorter_one() -> None:
    memory = ToolMemory(10)
    memory.adopt({"a": BLOCK}, _answer("first"))
    memory.adopt({"a": BLOCK, "b": BLOCK}, _answer("first") + _answer("second"))
    memory.adopt({"a": BLOCK}, _answer("first"))
    memory.adopt({"a": BLOCK, "b": BLOCK}, _answer("") + _answer(""))
    assert _reasonings(memory, "a", "b") == ["first", "second"]


def test_a_text_without_the_reasoning_gives_none() -> None:
    memory = ToolMemory(10)
    memory.adopt({"a": OTHER}, b"visible " + OTHER)
    assert _reasonings(memory, "a") == [""]


def test_threads_may_adopt_and_replay_at_once() -> None:
    memory = ToolMemory(50)

    def work(name: str) -> None:
        for index in range(200):
            memory.adopt({f"{name}{index}": BLOCK}, _answer(name))
            memory.replay([_assistant(f"{name}{index}")])
            memory.turns_in(BLOCK)

    threads = [Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(memory) == 50
    assert len(memory.turns_in(BLOCK)) == 50


steps = st.tuples(
    st.sampled_from(["remember", "adopt"]),
    st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3, unique=True),
    st.sampled_from([BLOCK, OTHER]),
    st.text("rx", max_size=4),
)


@given(st.lists(steps, max_size=12), st.integers(1, 5), st.integers(0, 400))
def test_no_order_of_steps_breaks_the_limits_or_the_map(
    taken: list[tuple[str, list[str], bytes, str]], max_ids: int, max_bytes: int
) -> None:
    memory = ToolMemory(max_ids, max_bytes)
    for step, ids, block, reasoning in taken:
        if step == "remember":
            memory.remember(ids, block, reasoning)
        else:
            memory.adopt(dict.fromkeys(ids, block), _answer(reasoning, block))
        known = {call_id: turn for call_id in "abcdef" if (turn := memory.turn_of([call_id])) is not None}
        turns = {id(turn): turn for turn in known.values()}.values()
        assert len(known) == len(memory) <= max_ids
        assert sum(len(turn.block) + sum(map(len, turn.reasonings)) for turn in turns) <= max_bytes
        assert memory.turns_in(BLOCK + OTHER) == {call_id: turn.block for call_id, turn in known.items()}
