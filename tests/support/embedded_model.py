"""The trained model that ships, for tests of what it does.

`DS4_EMBEDDED_MODEL` names another file of it, and `DS4_EMBEDDED_CHECKPOINT` another folder of what it was
made from, to try them before they ship.
"""

from __future__ import annotations

import json
import math
import os
from functools import cache
from pathlib import Path

import pytest

from apps.eval.ability_suite import FILE
from shared.abilities.case import AbilityCase, read_cases
from shared.model.reference_engine import ReferenceEngine, load

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "tests" / "behaviour" / "abilities.json"
CONTEXT = 8192
# Of one answer; the longest that is right has half of it.
ANSWER_TOKENS = 128


def model_file() -> Path:
    """The model; the test is skipped while there is none."""
    return _existing("DS4_EMBEDDED_MODEL", ROOT / "apps" / "models" / "embedded.gguf")


def checkpoint_folder() -> Path:
    """The checkpoint that the model was made from; the test is skipped while there is none."""
    return _existing("DS4_EMBEDDED_CHECKPOINT", ROOT / "bench" / "embedded_model" / "checkpoint")


def _existing(variable: str, shipped: Path) -> Path:
    path = Path(os.environ.get(variable, shipped))
    if not path.exists():
        pytest.skip(f"no trained model yet: {path} is missing")
    return path


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
