"""A prefill step by step: what is saved and remembered on its way, and that it can be left at any point."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from shared.errors import Cancelled, EngineFault
from shared.kv.files.cache_file import read_cache_file
from shared.kv.live.prefill import Prefill
from shared.kv.live.report import ReuseReport
from shared.session import Progress, Synced
from shared.text.messages import Message
from tests.support.live_talk import SMALL, LiveTalk, TalkMaker

SYSTEM = Message("system", "You are a careful assistant of few words. " * 5)
LONG = [SYSTEM, Message("user", "the long story " * 180)]


def saves(talk: LiveTalk, folder: Path) -> list[tuple[str, int]]:
    """Reason and tokens of every file, shortest first."""
    talk.flushed()
    found = [read_cache_file(path).header for path in folder.glob("*.kv")]
    return sorted(((header.reason.name, header.tokens) for header in found), key=lambda pair: pair[1])


class TestSaves:
    """The moments of the specification, with a step of 1024 tokens and a minimum of 64."""

    def test_a_new_conversation_is_saved_at_its_anchor_and_on_the_way(
        self, talks: TalkMaker, tmp_path: Path
    ) -> None:
        talk = talks(folder=tmp_path)
        prompt = talk.prompt(LONG)
        prefill = talk.prefill(prompt)
        anchor = prompt.tokens.index(talk.tokenizer.specials.user)
        assert saves(talk, tmp_path) == [("COLD", anchor), ("CONTINUED", 1024), ("CONTINUED", 2048)]
        assert any(f"trimmed={len(prompt.tokens) - anchor} reason=cold" in line for line in talk.said)
        written = sum(path.stat().st_size for path in tmp_path.glob("*.kv"))
        assert f"saved={written / 2**20:.2f} MiB" in str(prefill.report())

    def test_without_an_anchor_it_is_saved_at_an_aligned_length(
        self, talks: TalkMaker, tmp_path: Path
    ) -> None:
        talk = talks(folder=tmp_path)
        talk.prefill(talk.prompt([Message("user", "word " * 140)]))
        assert saves(talk, tmp_path) == [("COLD", 512)]

    def test_a_short_one_is_saved_at_its_end(self, talks: TalkMaker, tmp_path: Path) -> None:
        talk = talks(folder=tmp_path, settings=replace(SMALL, align_tokens=0, trim_tokens=60))
        prompt = talk.prompt([Message("user", "word " * 20)])
        prefill = talk.prefill(prompt)
        assert saves(talk, tmp_path) == [("COLD", len(prompt.tokens))]
        assert prefill.secured == len(prompt.tokens)

    def test_a_long_one_only_on_the_way(self, talks: TalkMaker, tmp_path: Path) -> None:
        talk = talks(folder=tmp_path, settings=replace(SMALL, cold_max_tokens=2000))
        talk.prefill(talk.prompt(LONG))
        assert saves(talk, tmp_path) == [("CONTINUED", 1024), ("CONTINUED", 2048)]

    def test_a_length_that_is_both_is_saved_once(self, talks: TalkMaker, tmp_path: Path) -> None:
        """A prompt without an anchor, cut to 1024 tokens, which is a step on the way too."""
        talk = talks(folder=tmp_path)
        talk.prefill(talk.prompt([Message("user", "word " * 220)]))
        assert saves(talk, tmp_path) == [("COLD", 1024)]
        assert sum("tokens=1024" in line for line in talk.said) == 1
        assert talk.start.slot.counter.value == 1024

    def test_if_the_cold_save_fails_the_length_may_be_saved_on_the_way(
        self, talks: TalkMaker, tmp_path: Path
    ) -> None:
        talk = talks(folder=tmp_path, settings=replace(SMALL, budget_bytes=100))
        talk.prefill(talk.prompt([Message("user", "word " * 220)]))
        assert saves(talk, tmp_path) == []
        assert talk.start.slot.counter.value == 0

    def test_a_cancelled_one_gives_the_length_back(self, talks: TalkMaker, tmp_path: Path) -> None:
        talk = talks(folder=tmp_path)
        prompt = talk.prompt([Message("user", "word " * 220)])
        start = talk.slots.begin(prompt)
        steps = Prefill(talk.slots, start, quantum=lambda: 100).steps()
        next(steps)
        assert start.slot.counter.value == 1024
        steps.close()
        assert start.slot.counter.value == 0

    def test_what_grows_is_saved_on_the_way_only(self, talks: TalkMaker, tmp_path: Path) -> None:
        talk = talks(folder=tmp_path)
        history = [SYSTEM, Message("user", "begin " * 100)]
        talk.turn(talk.prompt(history), b"x")
        before = saves(talk, tmp_path)
        history += [Message("assistant", "x"), Message("user", "go on " * 100)]
        talk.turn(talk.prompt(history), b"x")
        assert saves(talk, tmp_path) == [*before, ("CONTINUED", 1024)]

    def test_while_decoding_at_each_step(self, talks: TalkMaker, tmp_path: Path) -> None:
        talk = talks(folder=tmp_path)
        prompt = talk.prompt([SYSTEM, Message("user", "begin")])
        talk.turn(prompt, b"x" * 2000)
        assert saves(talk, tmp_path)[1:] == [("CONTINUED", 1024), ("CONTINUED", 2048)]

    def test_not_within_a_call(self, talks: TalkMaker, tmp_path: Path) -> None:
        talk = talks(folder=tmp_path)
        talk.prefill(talk.prompt([Message("user", "word " * 180)]))
        slot = talk.start.slot
        while slot.session.position < 1024:
            slot.session.submit(120)
        assert talk.slots.while_decoding(slot, in_tool_call=True) is None
        saved = talk.slots.while_decoding(slot, in_tool_call=False)
        assert saved is not None
        assert saved.stored
        assert talk.slots.while_decoding(slot, in_tool_call=False) is None

    def test_half_an_answer_behind_hidden_reasoning_is_not_saved(
        self, talks: TalkMaker, tmp_path: Path
    ) -> None:
        talk = talks(folder=tmp_path, settings=replace(SMALL, cold_max_tokens=0))
        think_end = talk.tokenizer.specials.think_end
        first = [Message("user", "word " * 100)]
        talk.turn(talk.prompt(first, "high"), [*b"hm", think_end, *b"ok"], ending="visible", content="ok")
        second = talk.prompt([*first, Message("assistant", "ok"), Message("user", "more")], "high")
        talk.turn(second, b"x" * 600, ending="lost")
        assert saves(talk, tmp_path) == []

    def test_hidden_reasoning_on_the_way_is_saved_under_its_visible_text(
        self, talks: TalkMaker, tmp_path: Path
    ) -> None:
        talk = talks(folder=tmp_path, settings=replace(SMALL, cold_max_tokens=0))
        think_end = talk.tokenizer.specials.think_end
        first = [Message("user", "word " * 100)]
        talk.turn(talk.prompt(first, "high"), [*b"hm", think_end, *b"ok"], ending="visible", content="ok")
        rest = [Message("assistant", "ok"), Message("user", "more " * 200)]
        prompt = talk.prompt([*first, *rest], "high")
        talk.turn(prompt, ending="lost")
        assert saves(talk, tmp_path) == [("CONTINUED", 1024)]
        talk.start.slot.invalidate()
        assert talk.turn(prompt)[:2] == ("disk-text", 1024)

    def test_a_counter_behind_the_state_is_taken_back(self, talks: TalkMaker, tmp_path: Path) -> None:
        talk = talks(folder=tmp_path)
        talk.turn(talk.prompt(LONG), b"x")
        assert talk.start.slot.counter.value == 2048
        branch = [SYSTEM, Message("user", "another story " * 180)]
        talk.turn(talk.prompt(branch), b"x")
        assert saves(talk, tmp_path).count(("CONTINUED", 1024)) == 2

    def test_without_a_store_nothing_is_due(self, talk: LiveTalk) -> None:
        prefill = talk.prefill(talk.prompt(LONG))
        assert prefill.report().saved_bytes == 0
        assert talk.slots.while_decoding(talk.start.slot, in_tool_call=False) is None


class TestSteps:
    def test_pieces_end_at_multiples_of_their_size_and_go_on_over_a_stop(self, talk: LiveTalk) -> None:
        prompt = talk.prompt(LONG)
        start = talk.slots.begin(prompt)
        session = start.slot.session
        prefill = Prefill(talk.slots, start, quantum=lambda: 1000 if session.position >= 1024 else 256)
        seen = [session.position for _ in prefill.steps()]
        count = len(prompt.tokens)
        assert prompt.tokens.index(talk.tokenizer.specials.user) < 256
        assert seen == [256, 512, 768, 1024, 2000]
        assert session.position == count

    def test_no_piece_has_more_than_its_quantum(self, talk: LiveTalk) -> None:
        turns = [Message("user" if i % 2 == 0 else "assistant", "word " * (7 * i)) for i in range(9)]
        start = talk.slots.begin(talk.prompt([SYSTEM, *turns]))
        prefill = Prefill(talk.slots, start, quantum=lambda: 100)
        seen = [0, *(start.slot.session.position for _ in prefill.steps()), len(start.tokens)]
        assert max(after - before for before, after in itertools.pairwise(seen)) <= 100

    def test_a_save_ends_a_piece(self, talks: TalkMaker, tmp_path: Path) -> None:
        talk = talks(folder=tmp_path)
        start = talk.slots.begin(talk.prompt([Message("user", "word " * 220)]))
        seen = [start.slot.session.position for _ in Prefill(talk.slots, start).steps()]
        assert seen == [1024]

    def test_progress_counts_what_is_new(self, talk: LiveTalk) -> None:
        prompt = talk.prompt(LONG)
        told: list[tuple[int, int]] = []
        talk.turn(prompt, b"x", progress=lambda done, total: told.append((done, total)))
        assert told[0] == (0, len(prompt.tokens))
        assert told[-1] == (len(prompt.tokens),) * 2
        assert told == sorted(set(told))
        told.clear()
        talk.turn(prompt, progress=lambda done, total: told.append((done, total)))
        assert told == [(0, 1), (1, 1)]

    @pytest.mark.parametrize("when", [1, 600, 1500])
    def test_what_was_done_before_a_cancel_is_found_again(self, when: int, talk: LiveTalk) -> None:
        prompt = talk.prompt(LONG)
        session = talk.slots.slots[0].session
        with pytest.raises(Cancelled):
            talk.prefill(prompt, cancelled=lambda: session.position >= when, quantum=lambda: 512)
        done = session.position
        assert 0 < done < len(prompt.tokens)
        talk.slots.release(talk.start.slot)
        assert talk.turn(prompt) == ("memory-token", done, len(prompt.tokens) - done)

    def test_a_cancelled_prompt_is_saved_as_far_as_it_came(self, talks: TalkMaker, tmp_path: Path) -> None:
        talk = talks(folder=tmp_path, settings=replace(SMALL, cold_max_tokens=0, continued_interval=0))
        prompt = talk.prompt(LONG)
        with pytest.raises(Cancelled):
            talk.prefill(prompt, progress=_cancel_at(500), quantum=lambda: 512)
        done = talk.start.slot.session.position
        talk.slots.release(talk.start.slot)
        talk.slots.shut_down()
        assert saves(talk, tmp_path) == [("SHUTDOWN", done)]

    def test_a_new_prompt_broken_off_is_still_new_when_it_is_asked_again(
        self, talks: TalkMaker, tmp_path: Path
    ) -> None:
        talk = talks(folder=tmp_path, settings=replace(SMALL, min_tokens=512, continued_interval=0))
        prompt = talk.prompt(LONG)
        for _ in range(2):
            with pytest.raises(Cancelled):
                talk.prefill(prompt, progress=_cancel_at(500), quantum=lambda: 512)
            talk.slots.release(talk.start.slot)
        assert saves(talk, tmp_path) == []
        assert talk.turn(prompt).source == "memory-token"
        [(reason, length)] = saves(talk, tmp_path)
        assert reason == "COLD"
        assert length > 512
        # Once is enough: what follows is the same conversation.
        talk.turn(talk.prompt([*LONG, Message("assistant", "yes"), Message("user", "and? " * 300)]))
        assert saves(talk, tmp_path) == [(reason, length)]

    def test_a_fault_leaves_a_clean_slot(self, talks: TalkMaker) -> None:
        talk = talks(script={"turns": [{"pieces": [], "fail": {"at": "prefill", "after": 1}}]})
        prompt = talk.prompt(LONG)
        with pytest.raises(EngineFault):
            talk.prefill(prompt)
        talk.slots.failed(talk.start)
        assert talk.turn(prompt) == ("miss", 0, len(prompt.tokens))

    def test_what_this_turn_made_sure_of(self, talk: LiveTalk) -> None:
        prompt = talk.prompt(LONG)
        assert talk.prefill(prompt).secured == len(prompt.tokens) - 1


def _cancel_at(tokens: int) -> Progress:
    def progress(done: int, total: int) -> None:
        if done >= tokens:
            raise Cancelled

    return progress


def test_the_report_is_one_line(talks: TalkMaker, tmp_path: Path) -> None:
    assert (
        str(ReuseReport("disk-text", 1, 2048, 33, 3 << 20, "ab.kv"))
        == "kv cache source=disk-text slot=1 reused=2048 prefill=33 saved=3.00 MiB file=ab.kv"
    )
    talk = talks(2, folder=tmp_path)
    prompt = talk.prompt([Message("user", "hello")])
    prefill = talk.prefill(prompt)
    assert prefill.synced == Synced(0, len(prompt.tokens))
    line = f"kv cache source=miss slot=0 reused=0 prefill={len(prompt.tokens)} saved=0.00 MiB"
    assert str(prefill.report()) == line
