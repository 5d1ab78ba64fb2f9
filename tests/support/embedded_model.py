"""The trained model that ships, for tests of what it does.

`DS4_EMBEDDED_MODEL` names another file of it, and `DS4_EMBEDDED_CHECKPOINT` another folder of what it was
made from, to try them before they ship. Where either is missing the tests fail.
"""

from __future__ import annotations

import json
import math
import os
from functools import cache
from pathlib import Path

from apps.eval.ability_suite import FILE
from apps.model_choice import EMBEDDED_MODEL
from bench.embedded_model.ship import CHECKPOINT
from shared.abilities.case import AbilityCase, read_cases
from shared.model.reference_engine import ReferenceEngine, load

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "tests" / "behaviour" / "abilities.json"
CONTEXT = 8192
# Of one answer; the longest that is right has half of it.
ANSWER_TOKENS = 128


def model_file() -> Path:
    """The model."""
    return Path(os.environ.get("DS4_EMBEDDED_MODEL", EMBEDDED_MODEL))


def checkpoint_folder() -> Path:
    """The checkpoint that the model was made from."""
    return Path(os.environ.get("DS4_EMBEDDED_CHECKPOINT", CHECKPOINT))


@cache
def engine() -> ReferenceEngine:
    """The reference: for a model of this size no other engine is faster on a CPU."""
    return load(model_file())


def expectations() -> dict[str, float]:
    """Ability, or ability@distance, to the least share of right answers that the shipped model reaches. What
    it is not able to do does not stand there."""
    found: dict[str, float] = json.loads(TABLE.read_text(encoding="utf-8"))
    return found


def least_right(name: str, asked: int) -> int:
    """Of `asked` cases so many at least must be right; a small sample may have the miss of a large one."""
    return math.floor(expectations()[name] * asked)


@cache
def cases_of(name: str) -> list[AbilityCase]:
    """The shipped cases of an ability, or of an ability@distance."""
    ability, _, distance = name.partition("@")
    return [
        case
        for case in read_cases(FILE)
        if case.ability == ability and (not distance or case.id.startswith(f"{distance}-"))
    ]
