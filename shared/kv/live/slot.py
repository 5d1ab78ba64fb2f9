"""One live session: what of it a new prompt can go on from, and what of it is worth saving.

Owns the session's past: what it stands for, its checkpoints, which tokens the model sampled. `look` changes
nothing, `take` does what it found. Spec: chat §6, kv §9.
Must not know: other slots, stores, dialects, threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.errors import SessionInvalid
from shared.kv.files.header import Extension
from shared.kv.live.checkpoints import Checkpoint, Checkpoints, PointKind
from shared.kv.live.control_tokens import ControlMap, ControlTokens
from shared.kv.live.prompt import Prompt
from shared.kv.live.standing import LiveText, Standing
from shared.kv.store.outcomes import Key
from shared.kv.store.policy import ContinuedCounter
from shared.session import Session
from shared.text import marks

MemorySource = Literal["memory-token", "thinking-visible", "memory-text", "memory-checkpoint", "none"]


@dataclass(frozen=True, slots=True)
class Reuse:
    """A way to a prompt from a live state: its first `kept` tokens, which stand for `offset` bytes of the
    prompt, become the beginning of the `tokens` to sync to. `point` is where to go back to first, if needed.
    """

    source: MemorySource
    kept: int
    offset: int
    tokens: list[int]
    prompt: Prompt
    point: Checkpoint | None = None


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
        self._controls = controls
        self._standing = Standing.nothing()
        self._sampled: list[range] = []
        self._tail_returns = False

    @property
    def prompt_end(self) -> int:
        """Tokens before the first one that the model sampled in this turn."""
        return self._sampled[0].start if self._sampled else self.session.position

    @property
    def worth(self) -> int:
        """Live tokens that a later prompt can begin with: without an answer that no client will send back."""
        returns = not self._sampled or self._tail_returns or self._standing.position == self.session.position
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
        if prompt.tokens[: len(live)] == live:
            offset = self._controls.byte_length(live)
            return Reuse("memory-token", len(live), offset, prompt.tokens, prompt)
        text = self._text(live)
        agreement = text.agreement(prompt)
        if agreement.whole:
            tokens = prompt.after(live, agreement.offset, self._controls.tokenizer)
            if len(tokens) < self.session.context:
                source: MemorySource = "thinking-visible" if self._standing.hidden else "memory-text"
                return Reuse(source, len(live), agreement.offset, tokens, prompt)
        return self._go_back(prompt, live, agreement.offset) or nothing

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
        self._stand(reuse.tokens[: reuse.kept], reuse.prompt, reuse.offset, self._standing.hidden)
        return reuse

    def loaded(self, tokens: list[int], prompt: Prompt, offset: int, hidden: Extension) -> None:
        """The session was loaded: its `tokens` stand for the first `offset` bytes of `prompt`."""
        self.checkpoints.clear()
        self.counter.loaded(len(tokens))
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

    def key(self) -> Key | None:
        """The text under which the present state is stored; None if none tells it from another state."""
        text = self._text(self.session.tokens)
        return Key(text.text, self._standing.hidden) if text.can_be_key() else None

    def return_to_prompt(self, least: int) -> bool:
        """Give up an answer that no client will send back: go back to before it. False, and nothing changes,
        if there is no way that leaves at least `least` tokens."""
        if self.worth == self.session.position:
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
        self._sampled = []
        return True

    def invalidate(self) -> None:
        """Forget everything; the next turn starts from nothing."""
        self.checkpoints.clear()
        self.counter.reset()
        self._standing = Standing.nothing()
        self._sampled, self._tail_returns = [], False
        self.session.invalidate()

    def _text(self, live: list[int]) -> LiveText:
        return LiveText(self._standing, live, self._sampled, self._controls)

    def _stand(self, tokens: list[int], prompt: Prompt, offset: int, hidden: Extension) -> None:
        self._standing = Standing.for_prompt(tokens, prompt, offset, self._controls, hidden)
        self._sampled, self._tail_returns = [], False

    def _go_back(self, prompt: Prompt, live: list[int], most_bytes: int) -> Reuse | None:
        """To the last checkpoint that the prompt still covers: a prompt asked again, an edited end, a turn
        whose text or reasoning does not come back as it was sampled."""
        point = self.checkpoints.newest(most_bytes)
        while point is not None:
            tokens = prompt.after(live[: point.position], point.offset, self._controls.tokenizer)
            if len(tokens) < self.session.context:
                return Reuse("memory-checkpoint", point.position, point.offset, tokens, prompt, point)
            point = self.checkpoints.newest(point.offset - 1)
        return None
