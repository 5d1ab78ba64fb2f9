"""Does the plan fit the machine? Asked before anything large is allocated.

Knows sizes, no backend. Spec: model §5.1 for the plan itself.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shared.errors import Ds4Error, UsageError
from shared.session import MemoryPlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from apps.options import EngineOptions

GIB = 2**30
MIB = 2**20
# The system and other programs keep this much.
_RESERVE_SHARE, _RESERVE_MINIMUM = 0.08, 2 * GIB
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


class NotEnoughMemory(Ds4Error):
    """The plan exceeds the budget; nothing was allocated."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Memory of the machine and what of it an engine may use, bytes."""

    machine: int

    @property
    def usable(self) -> int:
        return self.machine - max(
            int(self.machine * _RESERVE_SHARE), min(_RESERVE_MINIMUM, self.machine // 4)
        )


def budget(simulate: str | None = None) -> Budget:
    """The machine's budget, or that of an imagined one (`--simulate-memory`)."""
    if simulate is not None:
        return Budget(parse_size(simulate))
    return Budget(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def parse_size(text: str) -> int:
    """Bytes of `64GB`, `64G`, `512MiB` or `1000000`: powers of 1024. Raises UsageError."""
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]?)(?:i?b)?\s*", text, re.IGNORECASE)
    size = int(float(match[1]) * _UNITS[match[2].lower()]) if match else 0
    if not 0 < size < 2**60:
        raise UsageError(f"--simulate-memory {text!r} is no size: write for example 64GB")
    return size


def check_memory(
    plan_for: Callable[[int], MemoryPlan], context: int, available: Budget, *, sessions: int = 1
) -> MemoryPlan:
    """The plan of `sessions` sessions of `context` tokens, if it fits. Raises NotEnoughMemory with the
    largest context that would fit, or says that the weights alone are too large."""
    plan = plan_for(context)
    room = available.usable - plan.weights
    if plan.context_buffers * sessions <= room:
        return plan
    needed = plan.weights + plan.context_buffers * sessions
    story = (
        f"needs {_gib(needed)} (weights {_gib(plan.weights)}, context {_gib(needed - plan.weights)}) of "
        f"{_gib(available.usable)} usable"
    )
    fitting = _largest_context(plan_for, context, room // sessions)
    if fitting:
        raise NotEnoughMemory(f"--ctx {context} {story}: --ctx {fitting} would fit")
    raise NotEnoughMemory(f"the model {story}: use a smaller model file (`ds4 pull --list`)")


def check_memory_of_file(path: Path, options: EngineOptions) -> MemoryPlan:
    """`check_memory` from a model file's header alone."""
    from shared.model.memory import memory_plan
    from shared.model.open import open_model

    model = open_model(path, effort_profile=options.effort_profile)
    try:
        shape = model.shape
    finally:
        model.close()
    weights = path.stat().st_size

    def plan_for(context: int) -> MemoryPlan:
        chunk = options.prefill_chunk
        if chunk is None:
            return memory_plan(shape, context, weights=weights)
        return memory_plan(shape, context, weights=weights, prefill_chunk=chunk)

    return check_memory(plan_for, options.context, budget(options.simulate_memory), sessions=options.sessions)


def _largest_context(plan_for: Callable[[int], MemoryPlan], context: int, room: int) -> int:
    """The largest multiple of 1024 below `context` whose buffers fit in `room` bytes; 0 if none does."""
    low, high = 0, (context - 1) // 1024
    while low < high:
        middle = (low + high + 1) // 2
        if plan_for(middle * 1024).context_buffers <= room:
            low = middle
        else:
            high = middle - 1
    return low * 1024


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
