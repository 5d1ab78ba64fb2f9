"""A tokenizer's vocabulary as masks see it: the bytes of every token, and which tokens are control.

Built on first use and shared by all turns, because the trie over a real vocabulary takes seconds. Knows no
grammar and no turn.
"""

from __future__ import annotations

import re
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from shared.text import marks
from shared.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLTokenizer

Mask = npt.NDArray[np.bool_]

# Control tokens are spelt with fullwidth bars, a few of DeepSeek's placeholders with ASCII ones.
_CONTROL: Final = re.compile(r".*\uff5c.*|<\|.+\|>", re.DOTALL)
_THINK_END: Final = marks.THINK_END.encode()


class MaskVocabulary:
    """Safe to share by threads. Use `mask_vocabulary` to get a tokenizer's own one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._size = tokenizer.vocabulary_size
        self._end = tokenizer.specials.eos
        self._bos = tokenizer.specials.bos
        self._encode = tokenizer.encode_text
        self._bytes = [tokenizer.token_bytes(token) for token in range(self._size)]
        pieces = (tokenizer.piece(token) for token in range(self._size))
        self._control = [
            token for token, piece in enumerate(pieces) if piece in marks.ALL or _CONTROL.fullmatch(piece)
        ]
        self._across = [token for token, data in enumerate(self._bytes) if _THINK_END in data[:-1]]
        self._while_thinking: dict[bytes, Mask] = {}

    @property
    def size(self) -> int:
        return self._size

    @property
    def end(self) -> int:
        """The end token."""
        return self._end

    @property
    def control(self) -> list[int]:
        """The ids of all control tokens, the end token among them."""
        return self._control

    def token_bytes(self, token: int) -> bytes:
        return self._bytes[token]

    def only(self, token: int) -> Mask:
        """The mask that leaves one token; a new one each time."""
        mask = np.zeros(self._size, np.bool_)
        mask[token] = True
        return mask

    def while_thinking(self, tail: bytes) -> Mask:
        """What may follow `tail`, a beginning of `</think>`, while thinking must still be closed: not the end
        token, and no token in which `</think>` ends before its last byte, since what stands behind it would
        escape the answer's own mask."""
        mask = self._while_thinking.get(tail)
        if mask is None:
            mask = np.ones(self._size, np.bool_)
            mask[[self._end, *self._across]] = False
            if tail:
                missing = _THINK_END[len(tail) :]
                longer = (token for token, data in enumerate(self._bytes) if data.startswith(missing))
                mask[[token for token in longer if self._bytes[token] != missing]] = False
            mask.flags.writeable = False
            self._while_thinking[tail] = mask
        return mask

    @cached_property
    def trie(self) -> LLTokenizer:
        """The vocabulary as the grammar engine wants it. Control strings are special there: no grammar can
        ask for one."""
        from llguidance import LLTokenizer, TokenizerWrapper

        return LLTokenizer(
            TokenizerWrapper(_Vocabulary(self._bytes, self._control, self._end, self._bos, self._encode)),
            n_vocab=self._size,
            slices=LLTokenizer.json_slices(),
        )


class _Vocabulary:
    """What `llguidance` reads of a tokenizer."""

    def __init__(self, tokens: list[bytes], control: list[int], end: int, bos: int, encode: Any) -> None:
        self.tokens = tokens
        self.special_token_ids = control
        self.eos_token_id = end
        self.bos_token_id = bos
        self._encode = encode

    def __call__(self, text: bytes) -> list[int]:
        ids: list[int] = self._encode(text)
        return ids


_built: WeakKeyDictionary[Tokenizer, MaskVocabulary] = WeakKeyDictionary()
_building = threading.Lock()


def mask_vocabulary(tokenizer: Tokenizer) -> MaskVocabulary:
    """The one vocabulary of `tokenizer`, its trie built. The first call may take seconds."""
    with _building:
        vocabulary = _built.get(tokenizer)
        if vocabulary is None:
            vocabulary = _built[tokenizer] = MaskVocabulary(tokenizer)
        vocabulary.trie  # noqa: B018 (built under the lock, once)
        return vocabulary
