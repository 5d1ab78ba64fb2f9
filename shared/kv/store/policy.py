"""What is worth keeping: the settings of a store and the lengths, in tokens, at which states are saved.

Owns arithmetic only. Spec: kv §5. Must not know: files, directories, sessions, clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shared.errors import UsageError

DEFAULT_BUDGET_BYTES: Final = 4096 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The choices of a store; lengths in tokens. Raises UsageError when they contradict each other.

    `cold_max_tokens` 0: no cold saves. `continued_interval` 0: no saves on the way. `align_tokens` 0: lengths
    stay as they are. `budget_bytes` None: the directory may grow without limit. `durable`: a saved file
    survives a power cut. `checksum`: payloads are verified when they are read back. Spec: kv §5.
    """

    min_tokens: int = 512
    cold_max_tokens: int = 30000
    continued_interval: int = 10000
    trim_tokens: int = 32
    align_tokens: int = 2048
    budget_bytes: int | None = DEFAULT_BUDGET_BYTES
    reject_other_quant: bool = False
    durable: bool = True
    checksum: bool = True

    def __post_init__(self) -> None:
        for name in ("cold_max_tokens", "continued_interval", "trim_tokens", "align_tokens"):
            if getattr(self, name) < 0:
                raise UsageError(f"kv cache: {name} is {getattr(self, name)}: give 0 or more")
        if self.min_tokens < 1:
            raise UsageError(f"kv cache: min_tokens is {self.min_tokens}: give 1 or more")
        if 0 < self.cold_max_tokens < self.min_tokens:
            raise UsageError(
                f"kv cache: cold_max_tokens is {self.cold_max_tokens}: give 0 (no cold saves) or at least "
                f"min_tokens, {self.min_tokens}"
            )
        if self.budget_bytes is not None and self.budget_bytes < 1:
            raise UsageError(f"kv cache: a budget of {self.budget_bytes} bytes: give 1 or more")


def store_length(tokens: int, settings: StoreSettings) -> int:
    """How many of a prompt's `tokens` a cold save keeps. Spec: kv §5.

    The end of a prompt is the part that changes, and tokens near a cut may merge otherwise next time: a long
    prompt loses `trim_tokens` and is cut to a multiple of `align_tokens`.
    """
    if tokens <= settings.min_tokens + settings.trim_tokens:
        return tokens
    length = tokens - settings.trim_tokens
    if settings.align_tokens:
        length -= length % settings.align_tokens
    return length if length >= settings.min_tokens else tokens


def chat_anchor(tokens: Sequence[int], user: int, assistant: int, minimum: int) -> int | None:
    """The length up to the last `user` mark that precedes the first `assistant` mark, the mark excluded: what
    every conversation under one system prompt has in common. None if there is none or it is shorter than
    `minimum` tokens. Spec: kv §5."""
    try:
        end = tokens.index(assistant)
    except ValueError:
        end = len(tokens)
    anchor = next((index for index in range(end - 1, -1, -1) if tokens[index] == user), None)
    return anchor if anchor is not None and anchor >= minimum else None


def fits_budget(file_bytes: int, settings: StoreSettings) -> bool:
    """Whether a file of `file_bytes` and one per cent, rounded up, fits the whole budget. Spec: kv §5."""
    required = file_bytes + (file_bytes + 99) // 100
    return settings.budget_bytes is None or required <= settings.budget_bytes


def continued_step(settings: StoreSettings) -> int:
    """The distance in tokens between two saves on the way, a multiple of the alignment; 0 means off."""
    interval, align = settings.continued_interval, settings.align_tokens
    return -(-interval // align) * align if align else interval


class ContinuedCounter:
    """Which saves on the way a session has behind it: none is made at or below `value` tokens.

    Spec: kv §5.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self._minimum = settings.min_tokens
        self._step = continued_step(settings)
        self._value = 0
        self._suppressed: int | None = None  # the value that a planned cold save has pushed away

    @property
    def value(self) -> int:
        """The length in tokens up to which everything is stored or was decided."""
        return self._value

    def fires(self, tokens: int) -> bool:
        """Whether a session of exactly `tokens` is to be saved now."""
        return (
            self._step > 0 and tokens >= self._minimum and tokens % self._step == 0 and tokens > self._value
        )

    def stored(self, tokens: int) -> None:
        """A continued or a cold save of `tokens` succeeded."""
        self._set(max(self._value, tokens))

    def loaded(self, tokens: int) -> None:
        """The session was read from a file of `tokens`."""
        self._set(tokens)

    def reset(self) -> None:
        """The session starts anew, from nothing."""
        self._set(0)

    def suppress(self, cold_tokens: int) -> None:
        """A cold save of `cold_tokens` is planned: if a save on the way would fall on the same length, it is
        left out, so that the prefix is not written twice."""
        if self.fires(cold_tokens):
            self._suppressed, self._value = self._value, cold_tokens

    def restore(self) -> None:
        """The planned cold save failed: its length may be saved on the way after all, unless the counter has
        moved since."""
        if self._suppressed is not None:
            self._set(self._suppressed)

    def _set(self, value: int) -> None:
        self._value, self._suppressed = value, None
