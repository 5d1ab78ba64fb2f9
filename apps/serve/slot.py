"""One live session and what of it a new prompt can go on from.

Owns the choice of the effective prompt; running it is the turn's business. A further source (the disk)
joins as one more candidate in `plan`. Spec: chat §6. Knows no dialect and no thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Literal

import numpy as np

from apps.serve.turn_request import TurnRequest
from shared.errors import SessionInvalid
from shared.session import Mark, Session
from shared.text import marks
from shared.text.segments import cut, join
from shared.text.tokenizer import Tokenizer

Source = Literal["none", "memory-token", "thinking-visible", "memory-text", "memory-checkpoint"]
# Checkpoints a slot keeps of its timeline. One takes about 20 MB with Flash.
_CHECKPOINTS = 4


@dataclass(frozen=True, slots=True)
class EffectivePrompt:
    """The tokens to sync to, and why: they render to the request's prompt, or to it with the live
    turns' own reasoning in place."""

    tokens: list[int]
    source: Source


@dataclass(frozen=True, slots=True)
class VisibleText:
    """What a client will send back for the live state when old reasoning is dropped: the state as text,
    and the control tokens at their byte offsets."""

    position: int
    text: bytes
    controls: Mapping[int, int]


class LiveSlot:
    """A session with the memory of which of its tokens the model sampled."""

    def __init__(self, session: Session, tokenizer: Tokenizer) -> None:
        self.session = session
        self._tokenizer = tokenizer
        ids = range(tokenizer.vocabulary_size)
        self._byte_lengths = np.array([len(tokenizer.token_bytes(token)) for token in ids])
        self._is_control = np.isin(ids, [token for token in astuple(tokenizer.specials) if token is not None])
        self._sampled: list[range] = []
        self._visible: VisibleText | None = None
        self._checkpoints: list[Mark] = []

    def plan(self, request: TurnRequest) -> EffectivePrompt:
        """The best way to this prompt from the live state. Forgets what no longer belongs to it."""
        live = self.session.tokens
        effective = (self._reuse(live, request) or self._go_back(request)) if live else None
        if effective is None:
            effective = EffectivePrompt(request.tokens, "none")
            self._sampled, self._checkpoints = [], []
        self._visible = None
        return effective

    def checkpoint(self) -> None:
        """Remember the present state, so that a prompt that shares only so much can go on from here."""
        self._checkpoints = [*self._checkpoints[1 - _CHECKPOINTS :], self.session.mark()]

    def sampled(self, start: int) -> None:
        """The model wrote everything from position `start` on."""
        if self.session.position > start:
            self._sampled.append(range(start, self.session.position))

    def remember_visible(self, request: TurnRequest, content: str) -> None:
        """After a thinking turn without tools: its reasoning will not come back (spec: chat §6)."""
        think, think_end = marks.THINK.encode(), marks.THINK_END.encode()
        prompt = join(request.segments)
        if not prompt.endswith(think):
            return
        head = prompt[: -len(think)]
        controls = self._controls(request.tokens, len(head)) | {len(head): self._tokenizer.specials.think_end}
        text = head + think_end + content.encode()
        self._visible = VisibleText(self.session.position, text, controls)

    def invalidate(self) -> None:
        """Forget everything; the next turn starts from nothing."""
        self._sampled, self._checkpoints = [], []
        self._visible = None
        self.session.invalidate()

    def _reuse(self, live: list[int], request: TurnRequest) -> EffectivePrompt | None:
        if request.tokens[: len(live)] == live:
            return EffectivePrompt(request.tokens, "memory-token")
        rendered = join(request.segments)
        visible = self._visible
        if visible is not None and visible.position == len(live):
            key = visible.text + marks.EOS.encode()
            if (
                rendered.startswith(key)
                and self._controls(request.tokens, len(visible.text)) == visible.controls
            ):
                return self._continued(live, request, len(visible.text), "thinking-visible")
        text = self._tokenizer.decode(live)
        if rendered.startswith(text) and self._controls_agree(live, request.tokens, len(text)):
            return self._continued(live, request, len(text), "memory-text")
        return None

    def _go_back(self, request: TurnRequest) -> EffectivePrompt | None:
        """Rewind to the last checkpoint that the prompt still covers: a prompt asked again, an edited end, a
        turn whose text or reasoning does not come back as it was sampled."""
        common = self.session.common_prefix(request.tokens)
        while self._checkpoints and self._checkpoints[-1].position > common:
            self._checkpoints.pop()
        if not self._checkpoints:
            return None
        position = self._checkpoints[-1].position
        try:
            self.session.rewind(self._checkpoints[-1])
        except SessionInvalid:
            return None
        self._sampled = [range(span.start, min(span.stop, position)) for span in self._sampled]
        self._sampled = [span for span in self._sampled if span]
        return EffectivePrompt(request.tokens, "memory-checkpoint")

    def _continued(
        self, live: list[int], request: TurnRequest, offset: int, source: Source
    ) -> EffectivePrompt | None:
        """The live tokens and the rest of the prompt, encoded on its own."""
        tokens = live + self._tokenizer.encode_segments(cut(request.segments, offset))
        if len(tokens) >= self.session.context:
            return None
        return EffectivePrompt(tokens, source)

    def _controls(self, tokens: Sequence[int], end: int, skipped: Sequence[range] = ()) -> dict[int, int]:
        """The control tokens that begin before byte `end`, by their byte offset; none at `skipped`
        positions. Prompts are long and the engine waits: no loop over tokens."""
        ids = np.asarray(tokens)
        lengths = self._byte_lengths[ids]
        offsets = np.cumsum(lengths) - lengths
        wanted = self._is_control[ids] & (offsets < end)
        for span in skipped:
            wanted[span.start : span.stop] = False
        return dict(zip(offsets[wanted].tolist(), ids[wanted].tolist(), strict=True))

    def _controls_agree(self, live: Sequence[int], prompt: Sequence[int], end: int) -> bool:
        """Control tokens stand in the live state exactly where the prompt has them. What the model
        sampled may hold further ones: it reads its own words as it wrote them."""
        expected = self._controls(prompt, end)
        found = self._controls(live, end)
        fixed = self._controls(live, end, self._sampled)
        return expected.items() <= found.items() and fixed.keys() <= expected.keys()
