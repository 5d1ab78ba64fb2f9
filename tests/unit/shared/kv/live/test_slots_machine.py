"""Any sequence of turns, edits, branches, helpers, breaks and restarts: the session always ends up with the
tokens of the prompt, and what was known of it is not computed again."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from shared.errors import Cancelled
from shared.kv.live import prefill_plan
from shared.kv.live.prompt import Prompt
from shared.prefix import common_prefix
from shared.text.messages import Message
from tests.support.live_talk import LiveTalk, scripted_sessions

APART = 64  # tokens between two checkpoints in a long text, here
LONGEST_ANSWER = 40
TEXTS = st.sampled_from(["a", "b" * 30, "c d " * 40, "e" * 300, "c d " * 39 + "f"])
ANSWERS = st.sampled_from([b"", b"ok", b"x y " * 10])


class Turns(RuleBasedStateMachine):
    """One conversation that goes on, is edited and branches, and helpers in between."""

    @initialize(slots=st.sampled_from([1, 1, 2]))
    def begin(self, slots: int) -> None:
        self.count = slots
        self.folder = Path(tempfile.mkdtemp(prefix="ds4-live-"))
        self.history: list[Message] = [Message("system", "s " * 60)]
        self.talk = self._open()

    def _open(self) -> LiveTalk:
        sessions, tokenizer = scripted_sessions(self.count)
        # Up to here the only slot has no checkpoints: its state came from a file.
        self.loaded = 0
        return LiveTalk(sessions, tokenizer, folder=self.folder)

    @rule(text=TEXTS, answer=ANSWERS)
    def say(self, text: str, answer: bytes) -> None:
        self.history.append(Message("user", text))
        self._ask(self.history, answer)
        self.history.append(Message("assistant", answer.decode()))

    @precondition(lambda self: len(self.history) > 1)
    @rule(answer=ANSWERS)
    def ask_again(self, answer: bytes) -> None:
        self.history.pop()
        self._ask(self.history, answer)
        self.history.append(Message("assistant", answer.decode()))

    @precondition(lambda self: len(self.history) > 1)
    @rule(text=TEXTS, answer=ANSWERS, data=st.data())
    def branch(self, text: str, answer: bytes, data: st.DataObject) -> None:
        """Change one of the messages of the user and drop what came after it."""
        turn = data.draw(st.integers(0, len(self.history) // 2 - 1), label="turn")
        self.history = self.history[: 1 + 2 * turn]
        self.say(text, answer)

    @precondition(lambda self: len(self.history) > 1)
    @rule(text=TEXTS)
    def edit_answer(self, text: str) -> None:
        """A client sends the last answer back otherwise than it was."""
        self.history[-1] = Message("assistant", text)
        self.say("and so?", b"ok")

    @rule(text=TEXTS, answer=ANSWERS)
    def helper(self, text: str, answer: bytes) -> None:
        self._ask([Message("user", text)], answer)

    @rule(text=TEXTS, after=st.integers(1, 400))
    def leave(self, text: str, after: int) -> None:
        """The client goes away during the prefill."""
        prompt = self.talk.prompt([*self.history, Message("user", text)])

        def progress(done: int, total: int) -> None:
            if done >= after:
                raise Cancelled

        try:
            self.talk.prefill(prompt, progress=progress, quantum=lambda: 100)
        except Cancelled:
            pass
        finally:
            self._note_load()
            self.talk.slots.release(self.talk.start.slot)

    @rule()
    def restart(self) -> None:
        self.talk.slots.shut_down()
        self.crash()

    @rule()
    def crash(self) -> None:
        self.talk.close()
        self.talk = self._open()

    def _ask(self, messages: list[Message], answer: bytes) -> None:
        talk = self.talk
        prompt = talk.prompt(messages)
        most = self._most_work(prompt)
        figures = talk.turn(prompt, answer)
        start = talk.start
        assert start.slot.session.tokens == [*start.tokens, *answer]
        assert talk.tokenizer.decode(start.tokens) == prompt.rendered
        assert start.tokens == prompt.tokens
        assert figures.reused + figures.evaluated == len(prompt.tokens)
        assert figures.evaluated <= most, (figures, most)
        self._note_load()

    def _most_work(self, prompt: Prompt) -> int:
        """Tokens that may have to be computed, by what lies in the only slot and on the disk."""
        count = len(prompt.tokens)
        assert self.talk.store is not None
        files = self.talk.store.find(prompt.rendered, 16384)
        most = count
        if files:
            disk_work = 2 * 32 + count // 64 + self.talk.slots.slots[0].session.position // 16 + 64
            most = min(most, count - files[0].header.tokens + disk_work)
        if self.count == 1:
            common = common_prefix(self.talk.slots.slots[0].session.tokens, prompt.tokens)
            if common > self.loaded:
                # A file may be the cheaper way, all in all, by as much as it costs to open one.
                most = min(most, count - common + APART + LONGEST_ANSWER + 32)
        return most

    def _note_load(self) -> None:
        if self.talk.start.source == "disk-text":
            self.loaded = self.talk.start.reused
        elif self.talk.start.source == "miss":
            self.loaded = 0

    def teardown(self) -> None:
        if hasattr(self, "talk"):
            self.talk.close()
            shutil.rmtree(self.folder)


@pytest.fixture(autouse=True)
def _close_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefill_plan, "ON_THE_WAY_APART", APART)


class TestTurns(Turns.TestCase):  # type: ignore[misc]
    settings = settings(
        max_examples=40,
        stateful_step_count=14,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
