"""An answer that comes back in other words, or is only named by its calls, is gone on from all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from shared.errors import ContextFullError, LiveStateLost
from shared.kv.files.cache_file import read_cache_file
from shared.kv.files.header import Extension, Reason
from shared.kv.live.prompt import Prompt
from shared.kv.live.tool_tail import ToolTail
from shared.text.messages import Message, ToolCall, ToolSet
from shared.text.template import render_answer, render_tail
from tests.support.live_talk import LiveTalk, TalkMaker
from tests.support.turns import BASH, tool

TOOLS = ToolSet([tool("bash", "command")])
FIRST = [Message("system", "You are careful. " * 8), Message("user", "look into it")]
CALLS = (ToolCall("call_a", "bash", '{"command":"ls"}'),)
RESULT = Message("tool", "out", tool_call_ids=("call_a",))


def sampled(talk: LiveTalk, reasoning: bytes, rest: bytes) -> list[int]:
    return [*reasoning, talk.tokenizer.specials.think_end, *rest]


def answered(talk: LiveTalk, prompt: Prompt, reasoning: str, content: str) -> int:
    """A thinking answer whose reasoning may be left out; the tokens that are live behind it."""
    talk.turn(prompt, sampled(talk, reasoning.encode(), content.encode()), ending="lost")
    message = Message("assistant", content)
    talk.start.slot.remember_respelt(prompt, render_answer(message, effort="high", reasoning_stays=True))
    return talk.start.slot.session.position


def called(talk: LiveTalk, prompt: Prompt, block: bytes = BASH.encode()) -> int:
    """An answer that makes `CALLS`."""
    talk.turn(prompt, sampled(talk, b"hm", b"\n\n" + block), ending="lost")
    talk.start.slot.remember_calls(prompt, ["call_a"])
    return talk.start.slot.session.position


def with_tail(
    talk: LiveTalk,
    history: Sequence[Message],
    results: Sequence[Message],
    calls: Sequence[str],
    *,
    alone: bool = False,
) -> Prompt:
    prompt = talk.prompt([*history, *results], "high", TOOLS)
    segments = render_tail(results, effort="high")
    return replace(prompt, tail=ToolTail(frozenset(calls), segments, "responses-tool-output", alone))


def more(reasoning: str, content: str = "ok", text: str = "and?") -> list[Message]:
    return [*FIRST, Message("assistant", content, reasoning), Message("user", text)]


class TestRespelt:
    @pytest.mark.parametrize(
        ("reasoning", "source"), [("", "responses-visible"), ("so it is", "memory-token")]
    )
    def test_reasoning_may_come_back_or_not(self, talk: LiveTalk, reasoning: str, source: str) -> None:
        live = answered(talk, talk.prompt(FIRST, "high", TOOLS), "so it is", "ok")
        prompt = talk.prompt(more(reasoning), "high", TOOLS)
        found = talk.turn(prompt)
        assert found[:2] == (source, live)
        # The answer's end mark, the new message and its marks; nothing else.
        assert found.evaluated == 1 + 1 + len("and?") + 2

    def test_a_conversation_goes_on_so_for_many_turns(self, talk: LiveTalk) -> None:
        history, live = list(FIRST), 0
        for number in range(4):
            prompt = talk.prompt(history, "high", TOOLS)
            before, live = live, answered(talk, prompt, f"thought {number}", "ok")
            assert talk.start.reused == before
            history += [Message("assistant", "ok"), Message("user", "next")]
        assert talk.live().count(b"thought") == 4

    def test_other_words_are_not_this_answer(self, talk: LiveTalk) -> None:
        answered(talk, talk.prompt(FIRST, "high", TOOLS), "so", "ok")
        prompt = talk.prompt(more("", "okay"), "high", TOOLS)
        assert talk.turn(prompt).source == "memory-checkpoint"
        assert talk.live() == prompt.rendered

    def test_nothing_is_hidden_where_nothing_was_left_out(self, talk: LiveTalk) -> None:
        answered(talk, talk.prompt(FIRST, "high", TOOLS), "", "ok")
        assert talk.start.slot.worth == talk.start.slot.session.position
        key = talk.start.slot.key()
        assert key is not None
        assert not key.extensions

    def test_it_is_stored_and_found_by_what_the_client_sends(self, talks: TalkMaker, tmp_path: Path) -> None:
        talk = talks(folder=tmp_path)
        live = answered(talk, talk.prompt(FIRST, "high", TOOLS), "so it is", "ok")
        talk.slots.shut_down()
        talk.close()
        talk.store = None
        files = [read_cache_file(path) for path in tmp_path.glob("*.kv")]
        kinds = [file.header.extensions for file in files if file.header.reason is Reason.SHUTDOWN]
        assert kinds == [Extension.RESPONSES_VISIBLE]
        talk = talks(folder=tmp_path)
        prompt = talk.prompt(more(""), "high", TOOLS)
        assert talk.turn(prompt, ending="lost")[:2] == ("disk-text", live)
        # The reasoning is still there; the words behind it are the client's.
        assert b"so it is" in talk.live()
        assert talk.live().endswith(prompt.rendered[prompt.rendered.index(b"and?") :])


class TestCalls:
    def history(self, name: str = "bash", **changes: str) -> list[Message]:
        call = ToolCall("call_a", name, '{"command":"quite other words"}')
        return [*FIRST, Message("assistant", changes.get("content", ""), tool_calls=(call,))]

    def test_results_go_on_from_the_answer_that_called(self, talk: LiveTalk) -> None:
        live = called(talk, talk.prompt(FIRST, "high", TOOLS))
        prompt = with_tail(talk, self.history(content="said so"), [RESULT], ["call_a"])
        assert prompt.tail is not None
        found = talk.turn(prompt)
        assert found[:2] == ("responses-tool-output", live)
        assert talk.live().endswith(BASH.encode() + prompt.tail.rendered)
        # And so does what comes after it.
        after = talk.prompt([*self.history(content="said so"), RESULT, Message("user", "x")], "high", TOOLS)
        assert talk.turn(after).reused > live

    def test_other_words_of_the_same_length_are_other_words(self, talk: LiveTalk) -> None:
        live = called(talk, talk.prompt(FIRST, "high", TOOLS))
        sampled_bytes = len(talk.live())

        def respelt(content: str) -> Prompt:
            return with_tail(talk, self.history(content=content), [RESULT], ["call_a"])

        short = respelt("")
        assert short.tail is not None
        missing = sampled_bytes - len(short.rendered) + len(short.tail.rendered)
        assert missing > 0
        assert talk.turn(respelt("x" * missing))[:2] == ("responses-tool-output", live)
        key = talk.start.slot.key()
        assert key is not None
        assert key.extensions == Extension.RESPONSES_VISIBLE

    def test_another_set_of_calls_is_another_answer(self, talk: LiveTalk) -> None:
        called(talk, talk.prompt(FIRST, "high", TOOLS))
        for calls in (["call_b"], ["call_a", "call_b"]):
            prompt = with_tail(talk, self.history(), [RESULT], calls)
            assert talk.slots.slots[0].look(prompt).source == "memory-checkpoint"

    def test_a_history_that_was_edited_before_the_answer_is_another_one(self, talk: LiveTalk) -> None:
        called(talk, talk.prompt(FIRST, "high", TOOLS))
        slot = talk.slots.slots[0]
        edited = [FIRST[0], Message("user", "look elsewhere"), *self.history()[2:]]
        assert slot.look(with_tail(talk, edited, [RESULT], ["call_a"])).source == "memory-checkpoint"
        squeezed = [*FIRST, Message("assistant", "a"), Message("user", "b"), *self.history()[2:]]
        assert slot.look(with_tail(talk, squeezed, [RESULT], ["call_a"])).source == "memory-checkpoint"

    def test_alone_they_are_put_behind_the_live_state(self, talks: TalkMaker) -> None:
        talk = talks(2)
        live = called(talk, talk.prompt(FIRST, "high", TOOLS))
        before = talk.live()
        talk.turn(talk.prompt([Message("user", "another")]), b"x")
        prompt = with_tail(talk, [], [RESULT], ["call_a"], alone=True)
        assert prompt.tail is not None
        assert talk.slots.knows_calls(["call_a"])
        found = talk.turn(prompt, b"done")
        assert found == (
            "responses-tool-output",
            live,
            len(prompt.tail.rendered) - _saved_bytes(talk, prompt),
        )
        assert talk.live() == before + prompt.tail.rendered + b"done"
        assert not talk.slots.knows_calls(["call_a"])
        # A client that knows the whole history goes on from there too.
        assert talk.start.prompt.rendered == before + prompt.tail.rendered

    def test_alone_they_mean_nothing_without_their_answer(self, talks: TalkMaker) -> None:
        talk = talks(2)
        called(talk, talk.prompt(FIRST, "high", TOOLS))
        unknown = with_tail(talk, [], [RESULT], ["call_b"], alone=True)
        before = talk.live()
        with pytest.raises(LiveStateLost):
            talk.slots.begin(unknown)
        assert talk.live() == before
        assert talk.slots.knows_calls(["call_a"])
        assert not any(slot.busy for slot in talk.slots.slots)

    def test_alone_they_must_fit_behind_it(self, talks: TalkMaker) -> None:
        talk = talks(context=700)
        called(talk, talk.prompt([Message("user", "look")], "high"))
        long = Message("tool", "x" * 600, tool_call_ids=("call_a",))
        with pytest.raises(ContextFullError):
            talk.slots.begin(with_tail(talk, [], [long], ["call_a"], alone=True))
        assert not any(slot.busy for slot in talk.slots.slots)
        short = with_tail(talk, [], [RESULT], ["call_a"], alone=True)
        assert talk.turn(short).source == "responses-tool-output"


def _saved_bytes(talk: LiveTalk, prompt: Prompt) -> int:
    """How much shorter the tail is in tokens: one for each mark."""
    assert prompt.tail is not None
    return len(prompt.tail.rendered) - len(talk.tokenizer.encode_segments(prompt.tail.segments))
