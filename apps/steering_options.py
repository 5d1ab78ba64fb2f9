"""The options that steer a model, and what they mean together. Spec: apps §1.2, §9. Knows no engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from shared.errors import UsageError
from shared.steering.scale import LARGEST_SCALE

_PANEL: Final = "Steering"

FileOption = Annotated[
    Path | None,
    typer.Option(
        "--dir-steering-file",
        metavar="FILE.f32",
        envvar="DS4_DIR_STEERING_FILE",
        help="Steer the model by the directions in FILE, which `ds4 steer build` makes.",
        rich_help_panel=_PANEL,
    ),
]
FeedForwardOption = Annotated[
    float | None,
    typer.Option(
        "--dir-steering-ffn",
        metavar="F",
        envvar="DS4_DIR_STEERING_FFN",
        min=-LARGEST_SCALE,
        max=LARGEST_SCALE,
        show_default="1 with a file and no other scale, else 0",
        help="How much of the direction to take out of the experts' outputs; below 0 it is amplified.",
        rich_help_panel=_PANEL,
    ),
]
AttentionOption = Annotated[
    float | None,
    typer.Option(
        "--dir-steering-attn",
        metavar="F",
        envvar="DS4_DIR_STEERING_ATTN",
        min=-LARGEST_SCALE,
        max=LARGEST_SCALE,
        show_default="0",
        help="The same for the outputs of attention.",
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True, slots=True)
class SteeringRequest:
    """The file of directions to steer by, and how much."""

    file: Path
    feed_forward: float
    attention: float

    def line(self) -> str:
        """For the start of a program."""
        return f"steering by {self.file}: ffn {self.feed_forward:g}, attn {self.attention:g}"


def steering_request(
    file: Path | None, feed_forward: float | None, attention: float | None
) -> SteeringRequest | None:
    """What the options ask for; None without a file. Raises UsageError for a scale without one."""
    if file is None:
        for name, scale in (("ffn", feed_forward), ("attn", attention)):
            if scale:
                raise UsageError(f"--dir-steering-{name} {scale:g} needs --dir-steering-file FILE.f32")
        return None
    if feed_forward is None and attention is None:
        feed_forward = 1.0
    return SteeringRequest(file, feed_forward or 0.0, attention or 0.0)
