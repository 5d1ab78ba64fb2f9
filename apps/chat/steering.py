"""What `/steer` does to the engine. Knows no conversation: what was computed before is of no use after it."""

from __future__ import annotations

from apps.chat.slash import BadInput
from apps.steering import steerable, steering_of
from shared.errors import UsageError
from shared.session import Engine


def set_scale(engine: Engine, argument: str) -> bool:
    """Take so much of the direction out of the experts' outputs from now on; False if that is so already.

    Sessions then hold no state. Raises BadInput.
    """
    steering = steering_of(engine)
    if steering is None:
        raise BadInput("/steer needs a direction: start with --dir-steering-file FILE.f32")
    try:
        scale = float(argument)
    except ValueError:
        raise BadInput("/steer needs a number, for example /steer 0.5 (0 is off)") from None
    if scale == steering.feed_forward:
        return False
    try:
        steerable(engine).steer(steering.with_feed_forward(scale))
    except UsageError as error:
        raise BadInput(str(error)) from None
    return True


def steering_line(engine: Engine) -> str:
    """How the model is steered."""
    steering = steering_of(engine)
    if steering is None:
        return "no steering: start with --dir-steering-file FILE.f32"
    return f"steering: ffn {steering.feed_forward:g}, attn {steering.attention:g}"
