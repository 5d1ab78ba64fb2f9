"""Where control tokens stand: what tells a real mark of the chat format from a text that only looks like one.

Two timelines with equal bytes are not the same conversation unless their control tokens are too. Spec:
chat §1.4. Prompts are long and the engine waits: nothing here loops over tokens.
Must not know: sessions, stores.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt

from shared.kv.live.prompt import Prompt
from shared.text.tokenizer import Tokenizer

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ControlMap:
    """Control tokens by the byte offset at which they begin, ascending."""

    offsets: Integers
    ids: Integers

    @classmethod
    def empty(cls) -> ControlMap:
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64))

    @classmethod
    def one(cls, token: int) -> ControlMap:
        """A token at the very beginning."""
        return cls(np.zeros(1, np.int64), np.array([token], np.int64))

    def same_as(self, other: ControlMap) -> bool:
        return np.array_equal(self.offsets, other.offsets) and np.array_equal(self.ids, other.ids)

    def before(self, end: int) -> ControlMap:
        """Those that begin before byte `end`."""
        count = int(np.searchsorted(self.offsets, end))
        return ControlMap(self.offsets[:count], self.ids[:count])

    def followed_by(self, other: ControlMap, offset: int) -> ControlMap:
        """These, and those of a text that begins at byte `offset`."""
        return ControlMap(
            np.concatenate([self.offsets, other.offsets + offset]), np.concatenate([self.ids, other.ids])
        )

    def has(self, offset: int, token: int) -> bool:
        """Whether `token` begins at byte `offset`."""
        at = int(np.searchsorted(self.offsets, offset))
        return at < len(self.offsets) and (int(self.offsets[at]), int(self.ids[at])) == (offset, token)

    def only(self, *tokens: int) -> list[int]:
        """The ids among `tokens`, in order."""
        found: list[int] = self.ids[np.isin(self.ids, tokens)].tolist()
        return found

    def since(self, token: int, end: int) -> ControlMap:
        """The part from the last `token` on, with its end at byte `end` as a last entry: equal parts say that
        the same marks stand at the same places of texts of equal length."""
        last = np.flatnonzero(self.ids == token)[-1:]
        start = int(last[0]) if last.size else 0
        base = int(self.offsets[start]) if last.size else 0
        return ControlMap(np.append(self.offsets[start:], end) - base, np.append(self.ids[start:], -1))

    def disagreement(self, prompt: ControlMap, free: npt.NDArray[np.bool_], end: int) -> int:
        """The first byte before `end` at which a prompt of the same text has other control tokens; `end` if
        there is none. Where `free` is set (for each of these tokens) the prompt need not have it."""
        ours, theirs = self._pairs(), prompt._pairs()
        missing = prompt.offsets[~np.isin(theirs, ours)]
        extra = self.offsets[~np.isin(ours, theirs) & ~free]
        return int(min([end, *missing[:1], *extra[:1]]))

    def _pairs(self) -> npt.NDArray[np.int64]:
        """Offset and id as one number; a vocabulary has fewer than 2^24 tokens."""
        return (self.offsets << 24) | self.ids


class ControlTokens:
    """The control tokens of one vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        ids = range(tokenizer.vocabulary_size)
        controls = [token for token in astuple(tokenizer.specials) if token is not None]
        every = [tokenizer.token_bytes(token) for token in ids]
        self._byte_lengths = np.array([len(content) for content in every], np.int64)
        self._is_control = np.isin(ids, controls)
        self._strings = re.compile(b"|".join(re.escape(every[token]) for token in controls))
        self._latest: tuple[Prompt, ControlMap] | None = None

    def decode(self, tokens: Sequence[int]) -> bytes:
        """The rendering of `tokens`."""
        return self.tokenizer.decode(tokens)

    def of(self, tokens: Sequence[int]) -> ControlMap:
        """The control tokens among `tokens`, at the offsets of their rendering."""
        ids = np.asarray(tokens, np.int64)
        lengths = self._byte_lengths[ids]
        wanted = self._is_control[ids]
        return ControlMap((np.cumsum(lengths) - lengths)[wanted], ids[wanted])

    def of_prompt(self, prompt: Prompt) -> ControlMap:
        """`of` a prompt; every slot and file is compared with the same one."""
        if self._latest is None or self._latest[0] is not prompt:
            self._latest = prompt, self.of(prompt.tokens)
        return self._latest[1]

    def positions(self, tokens: Sequence[int]) -> Integers:
        """The positions of the control tokens, in the order of `of`."""
        return np.flatnonzero(self._is_control[np.asarray(tokens, np.int64)])

    def byte_length(self, tokens: Sequence[int]) -> int:
        """Bytes that `tokens` render to."""
        return int(self._byte_lengths[np.asarray(tokens, np.int64)].sum())

    def tokens_before(self, tokens: Sequence[int], byte_offset: int) -> int:
        """How many leading tokens lie wholly in the first `byte_offset` bytes."""
        ends = np.cumsum(self._byte_lengths[np.asarray(tokens, np.int64)])
        return int(np.searchsorted(ends, byte_offset, side="right"))

    def all_real(self, text: bytes, controls: ControlMap) -> bool:
        """Whether every control string in `text` is one of the control tokens in `controls`."""
        found = [match.start() for match in self._strings.finditer(text)]
        return bool(np.array_equal(found, controls.offsets))
