"""Which slot a turn gets, what is saved before it, and what comes back from the disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shared.kv.files.cache_file import read_cache_file
from shared.kv.files.header import Reason
from shared.text.messages import Message
from tests.support.live_talk import SMALL, LiveTalk, TalkMaker

SYSTEM = Message("system", "You are a careful assistant of few words. " * 5)
LONG = [SYSTEM, Message("user", "the long story " * 60)]
QUIET = replace(SMALL, cold_max_tokens=0, continued_interval=0)
HELPER = [Message("user", "a title?")]


def headers(folder: Path) -> list[tuple[str, int]]:
    """Reason and tokens of every file, shortest first."""
    found = [read_cache_file(path).header for path in folder.glob("*.kv")]
    return sorted(((header.reason.name, header.tokens) for header in found), key=lambda pair: pair[1])


def more(messages: list[Message], answer: str, text: str) -> list[Message]:
    return [*messages, Message("assistant", answer), Message("user", text)]


class TestChoice:
    def test_an_empty_slot_is_better_than_a_trivial_prefix(self, talks: TalkMaker) -> None:
        talk = talks(2)
        talk.turn(talk.prompt(LONG), b"x")
        assert talk.turn(talk.prompt([Message("user", "other")]), b"y").source == "miss"
        assert talk.start.slot.number == 1

    def test_each_conversation_stays_on_its_slot(self, talks: TalkMaker) -> None:
        talk = talks(2)
        talk.turn(talk.prompt(LONG), b"x")
        talk.turn(talk.prompt(HELPER), b"y")
        long, helper = more(LONG, "x", "go on"), more(HELPER, "y", "another")
        assert talk.turn(talk.prompt(long), b"z").source == "memory-token"
        assert talk.start.slot.number == 0
        assert talk.turn(talk.prompt(helper), b"z").source == "memory-token"
        assert talk.start.slot.number == 1

    def test_a_helper_takes_the_slot_of_the_last_helper(self, talks: TalkMaker) -> None:
        talk = talks(2)
        talk.turn(talk.prompt(LONG), b"x")
        talk.turn(talk.prompt(HELPER), b"y")
        talk.turn(talk.prompt(more(LONG, "x", "go on")), b"z")
        # Its slot was idle for longer; that counts for less than what the other one holds.
        talk.turn(talk.prompt(HELPER), b"y")
        assert talk.start.slot.number == 1
        talk.turn(talk.prompt([Message("user", "quite another helper")]), b"y")
        assert talk.start.slot.number == 1

    def test_of_equal_slots_the_one_that_was_idle_longest(self, talks: TalkMaker) -> None:
        talk = talks(2)
        for text in ("aaaa", "bbbb"):
            talk.turn(talk.prompt([Message("user", text)]))
        talk.turn(talk.prompt([Message("user", "aaaa")]))
        talk.turn(talk.prompt([Message("user", "cccc")]))
        assert talk.start.slot.number == 1

    @pytest.mark.parametrize(("on_disk", "number"), [(True, 0), (False, 1)])
    def test_what_can_be_saved_may_make_room(
        self, on_disk: bool, number: int, talks: TalkMaker, tmp_path: Path
    ) -> None:
        """Half of a prompt is what a long conversation begins with: is it worth taking that one's slot?"""
        talk = talks(2, folder=tmp_path if on_disk else None, settings=QUIET)
        system = Message("system", "rule " * 200)
        talk.turn(talk.prompt([system, Message("user", "word " * 800)]), b"x")
        talk.turn(talk.prompt([system, Message("user", "a title?")]), b"x")
        assert talk.start.slot.number == number

    def test_a_slot_in_use_is_left_alone(self, talks: TalkMaker) -> None:
        talk = talks(2)
        first = talk.slots.begin(talk.prompt(HELPER))
        second = talk.slots.begin(talk.prompt(HELPER))
        assert first.slot is not second.slot
        with pytest.raises(RuntimeError, match="in use"):
            talk.slots.begin(talk.prompt(HELPER))
        talk.slots.release(first.slot)
        assert talk.slots.begin(talk.prompt(LONG)).slot is first.slot

    def test_slots_need_a_session(self, talk: LiveTalk) -> None:
        with pytest.raises(ValueError, match="at least one session"):
            LiveTalk([], talk.tokenizer)


class TestSavingFirst:
    def test_a_long_conversation_is_saved_before_a_helper_takes_its_place(
        self, talks: TalkMaker, tmp_path: Path
    ) -> None:
        talk = talks(folder=tmp_path, context=131072, settings=QUIET)
        exchange = [Message("user", "word " * 400), Message("assistant", "more " * 400)]
        long = [*exchange * 22, Message("user", "and?")]
        talk.turn(talk.prompt(long), b"answer")
        live = talk.start.slot.session.tokens
        assert len(live) > 88000
        assert talk.turn(talk.prompt(HELPER), b"t").source == "miss"
        assert talk.start.saved is not None
        assert talk.start.saved.stored
        back = talk.prompt(more(long, "answer", "and then?"))
        figures = talk.turn(back, b"x")
        assert figures == ("disk-text", len(live), len(back.tokens) - len(live))
        assert any("reason=evict" in line for line in talk.said)

    def test_with_a_second_slot_nothing_has_to_go(self, talks: TalkMaker, tmp_path: Path) -> None:
        talk = talks(2, folder=tmp_path)
        talk.turn(talk.prompt(LONG), b"answer")
        talk.turn(talk.prompt(HELPER), b"t")
        assert talk.start.saved is None
        assert talk.turn(talk.prompt(more(LONG, "answer", "and?"))).source == "memory-token"

    def test_a_sampled_tail_alone_is_not_saved(self, talks: TalkMaker, tmp_path: Path) -> None:
        talk = talks(folder=tmp_path)
        prompt = talk.prompt(LONG)
        talk.turn(prompt, b"long answer " * 20)
        assert talk.turn(prompt, b"x") == ("memory-checkpoint", len(prompt.tokens) - 1, 1)
        assert talk.start.saved is None

    def test_nor_is_one_whose_reasoning_is_hidden(self, talks: TalkMaker, tmp_path: Path) -> None:
        talk = talks(folder=tmp_path)
        prompt = talk.prompt(LONG, "high")
        thought = [*b"a long thought " * 20, talk.tokenizer.specials.think_end, *b"ok"]
        talk.turn(prompt, thought, ending="visible", content="ok")
        assert talk.turn(prompt, b"x") == ("memory-checkpoint", len(prompt.tokens) - 1, 1)
        assert talk.start.saved is None

    def test_an_answer_that_will_not_come_back_is_cut_off_first(
        self, talks: TalkMaker, tmp_path: Path
    ) -> None:
        talk = talks(folder=tmp_path)
        prompt = talk.prompt(LONG)
        talk.turn(prompt, b"half an answ", ending="lost")
        talk.turn(talk.prompt(HELPER))
        talk.flushed()
        assert ("EVICT", len(prompt.tokens) - 1) in headers(tmp_path)
        assert talk.turn(prompt) == ("disk-text", len(prompt.tokens) - 1, 1)

    def test_it_is_not_saved_if_nothing_remembers_where_the_prompt_ended(
        self, talks: TalkMaker, tmp_path: Path
    ) -> None:
        talk = talks(folder=tmp_path, checkpoint_bytes=0)
        talk.turn(talk.prompt(LONG), b"half an answ", ending="lost")
        talk.turn(talk.prompt(HELPER))
        assert talk.start.saved is not None
        assert not talk.start.saved.stored
        assert "no way back" in talk.start.saved.why
        assert talk.flushed()[-1].endswith(f" reason=evict: {talk.start.saved.why}")

    def test_a_session_that_cannot_be_saved_costs_its_state_and_no_more(
        self, talks: TalkMaker, tmp_path: Path
    ) -> None:
        settings = QUIET
        turns = [{"pieces": [], "fail": {"at": "save"}}]
        talk = talks(folder=tmp_path, settings=settings, script={"turns": turns})
        talk.turn(talk.prompt(LONG), b"x")
        live = talk.start.slot.session.position
        assert talk.turn(talk.prompt(HELPER), b"t").source == "miss"
        assert talk.start.saved is not None
        assert not talk.start.saved.stored
        assert talk.said == [f"kv skipped tokens={live} reason=evict: {talk.start.saved.why}"]

    def test_a_file_that_the_prompt_begins_with_does_not_make_room(
        self, talks: TalkMaker, tmp_path: Path
    ) -> None:
        """The budget holds one state: what is about to be loaded is not what goes."""
        talk = talks(folder=tmp_path, settings=replace(QUIET, budget_bytes=30_000))
        story, other = ([Message("user", f"{name} story " * 100)] for name in ("first", "other"))
        talk.turn(talk.prompt(story), b"x")
        talk.turn(talk.prompt(other), b"x")
        assert talk.turn(talk.prompt(more(story, "x", "on")), b"x").source == "disk-text"
        assert talk.start.saved is not None
        assert not talk.start.saved.stored

    def test_the_end_saves_every_slot(self, talks: TalkMaker, tmp_path: Path) -> None:
        talk = talks(3, folder=tmp_path, settings=QUIET)
        lost = [Message("user", "another story " * 40)]
        talk.turn(talk.prompt(LONG), b"answer")
        talk.turn(talk.prompt(lost), b"half an answ", ending="lost")
        talk.turn(talk.prompt(HELPER), b"t")
        talk.slots.shut_down()
        assert headers(tmp_path) == [
            ("SHUTDOWN", len(talk.prompt(lost).tokens) - 1),
            ("SHUTDOWN", len(talk.prompt(LONG).tokens) + len("answer")),
        ]

    def test_a_slot_that_fails_at_the_end_does_not_cost_the_others(
        self, talks: TalkMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        talk = talks(3, folder=tmp_path, settings=QUIET)
        for name in ("first", "second", "third"):
            talk.turn(talk.prompt([Message("user", f"{name} story " * 40)]), b"x")
        broken = talk.slots.slots[1].session

        def fail(file: object) -> int:
            raise RuntimeError("device lost")

        monkeypatch.setattr(broken, "save", fail)
        position = broken.position
        talk.slots.shut_down()
        assert [reason for reason, _ in headers(tmp_path)] == ["SHUTDOWN"] * 2
        line = f"kv skipped tokens={position} reason=shutdown: slot 1: RuntimeError: device lost"
        assert talk.said.count(line) == 1

    def test_without_a_store_the_end_is_quiet(self, talk: LiveTalk) -> None:
        talk.turn(talk.prompt(LONG), b"x")
        talk.slots.shut_down()
        assert not talk.slots.save(talk.start.slot, Reason.SHUTDOWN).stored
