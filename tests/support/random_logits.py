"""A session whose logits are noise: whatever a grammar asks for must come out of it by the masks alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.sampling import Sampling, choose
from shared.session import Picked
from shared.text.tokenizer import Tokenizer
from shared.token_choice import KnownToken


class RandomLogitsSession:
    """The part of `shared.session.Session` that decoding uses. Closing characters grow more probable with
    every token, so that texts end; `favoured` tokens lead wherever a mask allows them."""

    def __init__(self, tokenizer: Tokenizer, seed: int, *, favoured: Sequence[int] = ()) -> None:
        self.context = 1 << 20
        self.tokens: list[int] = [0]
        self.masks: list[npt.NDArray[np.bool_] | None] = []
        self._seed = seed
        self._size = tokenizer.vocabulary_size
        self._favoured = list(favoured)
        self._closing = [
            token
            for token in range(self._size)
            if (data := tokenizer.token_bytes(token)) and set(data) <= set(b'"}]')
        ]

    @property
    def position(self) -> int:
        return len(self.tokens)

    def logits(self) -> npt.NDArray[np.float32]:
        noise = np.random.default_rng((self._seed, *self.tokens[-3:], self.position))
        logits = noise.normal(0, 3, self._size)
        logits[self._closing] += self.position / 20
        logits[self._favoured] += 100
        return logits.astype(np.float32)

    def pick(self, sampling: Sampling, uniform: float = 0.0, allowed: Any = None) -> Picked:
        self.masks.append(allowed)
        return KnownToken(choose(self.logits(), sampling, uniform, allowed))

    def submit(self, token: int | Picked) -> None:
        self.tokens.append(token if isinstance(token, int) else token.value())

    def undo(self) -> None:
        self.tokens.pop()
