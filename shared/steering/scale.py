"""How much can be taken out along a direction. Spec: apps §9. Light: options are declared with it."""

from __future__ import annotations

import math
from typing import Final

from shared.errors import UsageError

LARGEST_SCALE: Final = 100.0


def check_scale(scale: float) -> None:
    """Raises UsageError for what is beyond +-100 or no number."""
    if not (math.isfinite(scale) and abs(scale) <= LARGEST_SCALE):
        raise UsageError(f"a steering scale of {scale} is not from -{LARGEST_SCALE:g} to {LARGEST_SCALE:g}")
