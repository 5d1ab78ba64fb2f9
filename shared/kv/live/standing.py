"""What a live state stands for: the words that a client will use for it.

Sampled tokens need not be the ones that the tokenizer would choose, and reasoning may be hidden in them that
no client sends back. So a state is compared with a prompt by text, and by its control tokens. Spec: chat §6.
Must not know: sessions, stores, disks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shared.kv.files.header import Extension
from shared.kv.live.control_tokens import ControlMap, ControlTokens
from shared.kv.live.prompt import Prompt
from shared.prefix import common_bytes

PLAIN = Extension(0)


@dataclass(frozen=True, slots=True)
class Standing:
    """The first `position` live tokens, as a client writes them: `text`, with `controls` in it.

    `hidden` says that the tokens hold more than the text does, in the terms of a cache file: 0 or the kind of
    visible key. With `answer_ends` a prompt must have an end mark right behind the text.
    """

    position: int
    text: bytes
    controls: ControlMap
    hidden: Extension = PLAIN
    answer_ends: bool = False

    @classmethod
    def nothing(cls) -> Standing:
        return cls(0, b"", ControlMap.empty())

    @classmethod
    def for_prompt(
        cls, tokens: Sequence[int], prompt: Prompt, offset: int, controls: ControlTokens, hidden: Extension
    ) -> Standing:
        """`tokens` stand for the first `offset` bytes of `prompt`; `hidden` is what they may hold besides."""
        text = prompt.rendered[:offset]
        plain = controls.byte_length(tokens) == offset
        if plain and hidden:
            # Other words may have the same length.
            plain = controls.decode(tokens) == text
        return cls(
            len(tokens),
            text,
            controls.of_prompt(prompt).before(offset),
            PLAIN if plain else hidden or Extension.THINKING_VISIBLE,
        )

    def cut(self, tokens: Sequence[int], offset: int, controls: ControlTokens) -> Standing:
        """The standing of its first `tokens`, which stand for `offset` bytes of the text."""
        text = self.text[:offset]
        hidden = PLAIN if self.hidden and controls.decode(tokens) == text else self.hidden
        return Standing(len(tokens), text, self.controls.before(offset), hidden)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far a prompt agrees with a live state: `offset` bytes of text and control tokens, and whether the
    prompt goes on from the `whole` state."""

    offset: int
    whole: bool


class LiveText:
    """All live tokens as a client writes them: the standing, and what was prefilled or sampled behind it."""

    def __init__(
        self, standing: Standing, live: Sequence[int], sampled: Sequence[range], controls: ControlTokens
    ) -> None:
        """`sampled` are positions of tokens that the model chose."""
        self._controls = controls
        self._standing = standing
        self._sampled = sampled
        self._tail = live[standing.position :]
        self.text = standing.text + controls.decode(self._tail)

    def agreement(self, prompt: Prompt) -> Agreement:
        theirs = self._controls.of_prompt(prompt)
        common = common_bytes(self.text, prompt.rendered)
        offset = self._control_map().disagreement(theirs, self._free(), common)
        whole = offset == len(self.text)
        if whole and self._standing.answer_ends and not self._tail:
            whole = theirs.has(offset, self._controls.tokenizer.specials.eos)
        return Agreement(offset, whole)

    def can_be_key(self) -> bool:
        """A text with hidden tokens behind it may be a key only if every control string in it is a control
        token: the tokens cannot be compared with the text when they are loaded."""
        return not self._standing.hidden or self._controls.all_real(self.text, self._control_map())

    def _control_map(self) -> ControlMap:
        behind = self._controls.of(self._tail)
        return self._standing.controls.followed_by(behind, len(self._standing.text))

    def _free(self) -> npt.NDArray[np.bool_]:
        """Which of the control tokens a prompt need not have: the model reads its own words as it wrote them,
        with marks that are no marks in the client's text."""
        positions = self._controls.positions(self._tail) + self._standing.position
        own = np.zeros(len(positions), bool)
        for span in self._sampled:
            own |= (positions >= span.start) & (positions < span.stop)
        return np.concatenate([np.zeros(len(self._standing.controls.offsets), bool), own])
