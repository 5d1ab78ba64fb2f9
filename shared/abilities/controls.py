"""Controls of far recall: the same questions to the same model, without its far memory. What it still answers
then, it did not recall.

Owns what a control must show. Knows no engine's insides.
"""

from __future__ import annotations

from typing import Final, Literal, Protocol, runtime_checkable

from shared.session import Session

# No compressed row is seen; or the indexer chooses its rows by lot.
Control = Literal["masked-compression", "random-indexer"]
CONTROLS: Final[tuple[Control, ...]] = ("masked-compression", "random-indexer")

# Of the cases less than this share may be right with masked compression.
MASKED_BELOW: Final = 0.2
# By lot at most this share of what is right otherwise.
RANDOM_AT_MOST: Final = 0.5

DEMANDS: Final[dict[Control, str]] = {
    "masked-compression": f"fewer than {MASKED_BELOW:.0%}",
    "random-indexer": "at most half as many",
}


@runtime_checkable
class ControllableEngine(Protocol):
    """What an engine with controls has beside `shared.session.Engine`."""

    def open_controlled_session(self, context: int, control: Control) -> Session:
        """A session over the same weights, under a control; repeatable."""


def shows_memory(control: Control, plain: int, controlled: int, asked: int) -> bool:
    """Whether right answers under a control are as few as they must be if the others, `plain`, come from
    memory. Without any of them nothing is shown."""
    if not controlled < plain:
        return False
    if control == "masked-compression":
        return controlled < MASKED_BELOW * asked
    return controlled <= RANDOM_AT_MOST * plain
