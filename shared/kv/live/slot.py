"""One live session: what of it a new prompt can go on from, and what of it is worth saving.

Owns the session's past: what it stands for, its checkpoints, which tokens the model sampled. `look` changes
nothing, `take` does what it found. Spec: chat §6, kv §9.
Must not know: other slots, stores, dialects, threads.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from shared.errors import SessionInvalid
from shared.kv.files.header import Extension
from shared.kv.live.checkpoints import Checkpoint, Checkpoints, PointKind
from shared.kv.live.control_tokens import ControlMap, ControlTokens
from shared.kv.live.last_answer import LastAnswer, agrees_before, answer_head, behind_state
from shared.kv.live.prompt import Prompt
from shared.kv.live.standing import PLAIN, LiveText, Standing
from shared.kv.live.tool_tail import TailSource
from shared.kv.store.outcomes import Key
from shared.kv.store.policy import ContinuedCounter
from shared.session import Session
from shared.text import marks
from shared.text.segments import Segment, join

MemorySource = Literal[
    "memory-token", "memory-text", "memory-checkpoint", "thinking-visible", "responses-visible", TailSource
]


@dataclass(frozen=True, slots=True)
class Reuse:
    """A way to a prompt from a live state: its first `kept` tokens, which stand for `offset` bytes of the
    prompt, become the beginning of the `tokens` to sync to. `point` is where to go back to first, if needed;
    `hidden` is what the kept tokens may hold besides those bytes.
    """

    source: MemorySource | Literal["none"]
    kept: int
    offset: int
    tokens: list[int]
    prompt: Prompt
    point: Checkpoint | None = None
    hidden: Extension = PLAIN


class LiveSlot:
    """A session and its past. `number` names it in logs, `used` orders slots by their last turn."""

    def __init__(
        self,
        number: int,
        session: Session,
        controls: ControlTokens,
        checkpoints: Checkpoints,
        counter: ContinuedCounter,
    ) -> None:
        self.number = number
        self.session = session
        self.checkpoints = checkpoints
        self.counter = counter
        self.busy = False
        self.used = 0
        self.cold_due = False  # the state belongs to a new conversation whose first save is yet to come
        self._controls = controls
        self._standing = Standing.nothing()
        self._sampled: list[range] = []
        self._tail_returns = False
        self._answer: LastAnswer | None = None

    @property
    def calls(self) -> frozenset[str]:
        """The ids of the calls in the answer that the state ends with; other threads may ask."""
        answer = self._answer
        return frozenset() if answer is None else answer.calls

    @property
    def prompt_end(self) -> int:
        """Tokens before the first one that the model sampled in this turn."""
        return self._sampled[0].start if self._sampled else self.session.position

    @property
    def worth(self) -> int:
        """Live tokens that a later prompt can begin with: without an answer that no client will send back."""
        returns = not self._sampled or self._tail_returns or self._ending.position == self.session.position
        return self.session.position if returns else self.prompt_end

    def loss(self, kept: int, worth_a_file: int) -> int:
        """Tokens that would have to be evaluated again if only `kept` stay and the conversation goes on.

        A prompt that keeps `worth_a_file` tokens or more is the same conversation, asked again or edited: an
        answer behind the end of its last prompt is replaced, not lost.
        """
        return max(0, (self.worth if kept < worth_a_file else self.prompt_end) - kept)

    @property
    def hides_tokens(self) -> bool:
        """Whether the live tokens hold more than a client's text does: reasoning of earlier turns."""
        return bool(self._standing.hidden)

    def look(self, prompt: Prompt) -> Reuse:
        """The best way to `prompt` from here. Changes nothing."""
        live = self.session.tokens
        nothing = Reuse("none", 0, 0, prompt.tokens, prompt)
        if not live or len(live) < self._standing.position:
            return nothing
        if prompt.tail is not None and prompt.tail.alone:
            return self._behind_calls(prompt, live) or nothing
        if prompt.tokens[: len(live)] == live:
            offset = self._controls.byte_length(live)
            return Reuse("memory-token", len(live), offset, prompt.tokens, prompt)
        agreement = self._text(live).agreement(prompt)
        if agreement.whole:
            hidden = self._standing.hidden
            if found := self._go_on(_source(hidden), prompt, live, agreement.offset, hidden):
                return found
        return (
            self._behind_visible(prompt, live)
            or self._behind_answer(prompt, live, agreement.offset)
            or self._go_back(prompt, live, agreement.offset)
            or nothing
        )

    def take(self, reuse: Reuse) -> Reuse:
        """Make the session what `reuse` keeps of it, and forget the rest. Returns `reuse`, or one of nothing
        if the session cannot go back there after all."""
        if reuse.point is not None:
            try:
                self.session.rewind(reuse.point.mark)
            except SessionInvalid:
                reuse = Reuse("none", 0, 0, reuse.prompt.tokens, reuse.prompt)
        if reuse.source == "none":
            self.invalidate()
            return reuse
        self.checkpoints.drop_behind(reuse.kept)
        if self.counter.value > reuse.kept:
            self.counter.loaded(reuse.kept)
        self._stand(reuse.tokens[: reuse.kept], reuse.prompt, reuse.offset, reuse.hidden)
        return reuse

    def loaded(self, tokens: list[int], prompt: Prompt, offset: int, hidden: Extension) -> None:
        """The session was loaded: its `tokens` stand for the first `offset` bytes of `prompt`."""
        self.checkpoints.clear()
        self.counter.loaded(len(tokens))
        self.cold_due = False
        self._stand(tokens, prompt, offset, hidden)

    def checkpoint(self, kind: PointKind) -> None:
        """Remember the present state, so that a prompt that shares only so much can go on from here."""
        position, offset = self._standing.position, len(self._standing.text)
        last = self.checkpoints.last
        if last is not None and last.position > position:
            # A long prompt has many points: each is measured from the one before.
            position, offset = last.position, last.offset
        offset += self._controls.byte_length(self.session.tokens[position:])
        self.checkpoints.add(Checkpoint(self.session.mark(), offset, kind))

    def sampled(self, start: int) -> None:
        """The model wrote everything from position `start` on. Nothing is known yet of whether a client will
        send it back."""
        if self.session.position > start:
            self._sampled.append(range(start, self.session.position))
            self._tail_returns = False

    def answer_returns(self) -> None:
        """What was sampled will come back as it is: whole, with its reasoning if there is any."""
        self._tail_returns = True

    def remember_visible(self, prompt: Prompt, content: str) -> None:
        """After a thinking turn without tools: its reasoning will not come back, its `content` will."""
        think = marks.THINK.encode()
        if not prompt.rendered.endswith(think):
            return
        head = prompt.rendered[: -len(think)]
        think_end = ControlMap.one(self._controls.tokenizer.specials.think_end)
        self._standing = Standing(
            self.session.position,
            head + marks.THINK_END.encode() + content.encode(),
            self._controls.of_prompt(prompt).before(len(head)).followed_by(think_end, len(head)),
            Extension.THINKING_VISIBLE,
            answer_ends=True,
        )
        self.checkpoints.drop_beyond(len(head))

    def remember_calls(self, prompt: Prompt, calls: Collection[str]) -> None:
        """The answer to `prompt` made `calls`: their results are known to belong to it."""
        answer = self._last_answer(prompt)
        self._answer = replace(answer, calls=frozenset(calls))

    def remember_respelt(self, prompt: Prompt, answer: Sequence[Segment]) -> None:
        """A client may send the answer to `prompt` back as `answer`: all that then stands behind the mark of
        the assistant, without the end mark. What was sampled may still come back as it is."""
        head = answer_head(prompt)
        text = head + join(answer)
        if text == self._text(self.session.tokens).text:
            self.answer_returns()
            return
        behind = self._controls.of(self._controls.tokenizer.encode_segments(answer))
        before = self._controls.of_prompt(prompt).before(len(head))
        visible = Standing(
            self.session.position,
            text,
            before.followed_by(behind, len(head)),
            Extension.RESPONSES_VISIBLE,
            answer_ends=True,
        )
        self._answer = replace(self._last_answer(prompt), visible=visible)

    def key(self) -> Key | None:
        """The text under which the present state is stored; None if none tells it from another state."""
        standing = self._ending
        text = LiveText(standing, self.session.tokens, self._sampled, self._controls)
        return Key(text.text, standing.hidden) if text.can_be_key() else None

    def return_to_prompt(self, least: int) -> bool:
        """Give up an answer that no client will send back, or whose text may not be a key: go back to before
        it. False, and nothing changes, if there is no way that leaves at least `least` tokens."""
        if self.worth == self.session.position and self.key() is not None:
            return True
        point = self.checkpoints.prompt_end()
        if point is None or not least <= point.position <= self.prompt_end:
            return False
        try:
            self.session.rewind(point.mark)
        except SessionInvalid:
            self.invalidate()
            return False
        self.checkpoints.drop_behind(point.position)
        if point.position < self._standing.position:
            self._standing = self._standing.cut(self.session.tokens, point.offset, self._controls)
        self._sampled, self._answer = [], None
        return True

    def invalidate(self) -> None:
        """Forget everything; the next turn starts from nothing."""
        self.checkpoints.clear()
        self.counter.reset()
        self.cold_due = False
        self._standing = Standing.nothing()
        self._sampled, self._tail_returns, self._answer = [], False, None
        self.session.invalidate()

    @property
    def _ending(self) -> Standing:
        """What the state stands for, in the words in which its last answer is expected back."""
        visible = None if self._answer is None else self._answer.visible
        return self._standing if visible is None or self._tail_returns else visible

    def _last_answer(self, prompt: Prompt) -> LastAnswer:
        return self._answer or LastAnswer(self.session.position, len(answer_head(prompt)))

    def _text(self, live: list[int]) -> LiveText:
        return LiveText(self._standing, live, self._sampled, self._controls)

    def _stand(self, tokens: list[int], prompt: Prompt, offset: int, hidden: Extension) -> None:
        self._standing = Standing.for_prompt(tokens, prompt, offset, self._controls, hidden)
        self._sampled, self._tail_returns, self._answer = [], False, None

    def _go_on(
        self, source: MemorySource, prompt: Prompt, live: list[int], offset: int, hidden: Extension
    ) -> Reuse | None:
        """From the whole state, which stands for `offset` bytes of the prompt; None if that does not fit."""
        tokens = prompt.after(live, offset, self._controls.tokenizer)
        if len(tokens) >= self.session.context:
            return None
        return Reuse(source, len(live), offset, tokens, prompt, hidden=hidden)

    def _behind_visible(self, prompt: Prompt, live: list[int]) -> Reuse | None:
        """The client left out, or respelt, a part of the last answer."""
        visible = None if self._answer is None else self._answer.visible
        if visible is None:
            return None
        agreement = LiveText(visible, live, (), self._controls).agreement(prompt)
        if not agreement.whole:
            return None
        return self._go_on("responses-visible", prompt, live, agreement.offset, visible.hidden)

    def _behind_answer(self, prompt: Prompt, live: list[int], agreed: int) -> Reuse | None:
        """The prompt agrees with the state up to the last answer, and ends in the results of its calls: in
        whatever words the client repeats the answer, it is this one."""
        tail, answer = prompt.tail, self._answer
        if tail is None or answer is None or tail.calls != answer.calls or agreed < answer.head:
            return None
        offset = len(prompt.rendered) - len(tail.rendered)
        if not agrees_before(prompt, offset, answer.head, self._controls):
            return None
        return self._go_on(tail.source, prompt, live, offset, Extension.RESPONSES_VISIBLE)

    def _behind_calls(self, prompt: Prompt, live: list[int]) -> Reuse | None:
        """The prompt is nothing but the results of the last answer's calls. Too long a one is found too."""
        tail, answer = prompt.tail, self._answer
        if tail is None or answer is None or tail.calls != answer.calls:
            return None
        whole = behind_state(live, prompt, self._controls)
        return Reuse(tail.source, len(live), self._controls.byte_length(live), whole.tokens, whole)

    def _go_back(self, prompt: Prompt, live: list[int], most_bytes: int) -> Reuse | None:
        """To the last checkpoint that the prompt still covers: a prompt asked again, an edited end, a turn
        whose text or reasoning does not come back as it was sampled."""
        point = self.checkpoints.newest(most_bytes)
        while point is not None:
            tokens = prompt.after(live[: point.position], point.offset, self._controls.tokenizer)
            if len(tokens) < self.session.context:
                return Reuse(
                    "memory-checkpoint",
                    point.position,
                    point.offset,
                    tokens,
                    prompt,
                    point,
                    self._standing.hidden,
                )
            point = self.checkpoints.newest(point.offset - 1)
        return None


def _source(hidden: Extension) -> MemorySource:
    """What a state is called that a prompt goes on from as a whole, by its text."""
    if Extension.RESPONSES_VISIBLE in hidden:
        return "responses-visible"
    return "thinking-visible" if hidden else "memory-text"
