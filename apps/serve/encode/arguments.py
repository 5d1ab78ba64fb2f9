"""The arguments of a call as a value, for dialects that do not send them as text."""

from __future__ import annotations

import json
import math
from typing import Any

from apps.serve.json_body import without_lone_surrogates


def arguments_object(arguments: str) -> dict[str, Any]:
    """The object that a whole call's JSON text stands for, as a value that JSON can hold again."""
    value: dict[str, Any] = without_lone_surrogates(json.loads(arguments, parse_float=_number))
    return value


def _number(digits: str) -> float | str:
    """As text if it is larger than any double."""
    value = float(digits)
    return value if math.isfinite(value) else digits
