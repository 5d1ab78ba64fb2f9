"""What JSON has no number for becomes null."""

import json
import math

from apps.finite_json import finite


def test_infinities_and_nan_become_null_wherever_they_stand():
    record = {"a": [math.inf, 1.5, {"b": -math.inf}], "c": (math.nan, True, None, "inf", 3)}
    shown = json.dumps(finite(record), allow_nan=False)
    assert json.loads(shown) == {"a": [None, 1.5, {"b": None}], "c": [None, True, None, "inf", 3]}
