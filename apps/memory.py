"""Does the plan fit the machine? Asked before anything large is allocated.

Knows the machine's memory, no backend; the plan and its refusal are the model's (spec: model §5.1).
"""

from __future__ import annotations

import os
import re

from shared.errors import Ds4Error, UsageError
from shared.session import MemoryPlan, MemoryPlanner

MIB, GIB = 2**20, 2**30
# What the system and other programs keep: this share, at least this much, never more than a quarter.
_RESERVE_SHARE, _RESERVE_MINIMUM = 0.08, 2 * GIB
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


class NotEnoughMemory(Ds4Error):
    """The plan exceeds the budget; nothing was allocated."""


def memory_budget(simulate: str | None = None) -> int:
    """Bytes an engine may use here, or on an imagined machine (`--simulate-memory`)."""
    machine = physical_memory() if simulate is None else parse_size(simulate)
    return machine - max(int(machine * _RESERVE_SHARE), min(_RESERVE_MINIMUM, machine // 4))


def physical_memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def parse_size(text: str) -> int:
    """Bytes of `64GB`, `64G`, `512MiB` or `1000000`: powers of 1024. Raises UsageError."""
    match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([kmgt]?)(?:i?b)?\s*", text, re.IGNORECASE)
    size = int(float(match[1]) * _UNITS[match[2].lower()]) if match else 0
    if not 0 < size < 2**60:
        raise UsageError(f"--simulate-memory: {text!r} is not a memory size: write for example 64GB")
    return size


def check_fits(plan: MemoryPlan, budget: int, planned: MemoryPlanner) -> None:
    """Raises NotEnoughMemory, naming the flag that would fit, if `plan` exceeds `budget` bytes; `planned`
    tells what other contexts would take."""
    from shared.model.memory import refusal

    if reason := refusal(plan, budget, planned):
        raise NotEnoughMemory(reason)
