"""Which sampled tokens belong to which text: log probabilities on their way to the deltas they are of.

A token may come long before its text is certain, and some have none: control tokens, the syntax and the
values of tool calls, a stop string. Knows no sampling.
"""

from __future__ import annotations

from collections.abc import Sequence

from shared.text.events import TextDelta, TextScores, ThinkingDelta, TokenScore, TurnEvent


class ScoredText:
    """Give it each token with `add`, and the events that came of it with `attach`."""

    def __init__(self) -> None:
        self._waiting: dict[bool, list[TokenScore]] = {True: [], False: []}

    def add(self, score: TokenScore, *, thinking: bool) -> None:
        """A token of the reasoning, if `thinking`, else of the answer."""
        self._waiting[thinking].append(score)

    def attach(self, events: Sequence[TurnEvent]) -> list[TurnEvent]:
        """The same events with the scores of each channel before the channel's first delta."""
        attached: list[TurnEvent] = []
        for event in events:
            if isinstance(event, ThinkingDelta | TextDelta):
                thinking = isinstance(event, ThinkingDelta)
                if tokens := self._waiting[thinking]:
                    attached.append(TextScores(thinking, tuple(tokens)))
                    tokens.clear()
            attached.append(event)
        return attached

    def cut(self, length: int, *, thinking: bool) -> None:
        """The last `length` bytes of a channel never come: they are a stop string and what follows it."""
        waiting = self._waiting[thinking]
        while waiting and (length := length - len(waiting[-1].data)) >= 0:
            waiting.pop()

    def drop(self, *, thinking: bool) -> None:
        """What waits in a channel turned out to be no text of it."""
        self._waiting[thinking].clear()
