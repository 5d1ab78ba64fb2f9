"""The lines that a program prints around the opening of its engine. Spec: apps, shared conventions."""

from __future__ import annotations

from collections.abc import Callable

from apps.memory import GIB, MIB
from shared.session import Engine, MemoryPlan
from shared.text.effort import Effort


def plan_line(plan: MemoryPlan, backend: str) -> str:
    """What the model and its context will take, and the figures it follows from."""
    return (
        f"weights {plan.weights / MIB:.2f} MiB, context buffers {plan.context_buffers / MIB:.2f} MiB "
        f"(ctx={plan.context}, backend={backend}, prefill_chunk={plan.prefill_chunk}, "
        f"raw_kv_rows={plan.raw_rows}, compressed_kv_rows={plan.compressed_rows}{_more(plan)})"
    )


def load_progress(weight_bytes: int, say: Callable[[str], None]) -> Callable[[int, int], None] | None:
    """Says at each quarter how far the loading of a large model is; None for one that takes no time. To be
    called with (layers read, layers)."""
    if weight_bytes < GIB:
        return None
    told = -1

    def progress(done: int, total: int) -> None:
        nonlocal told
        quarter = 4 * done // total
        if quarter > told:
            told = quarter
            say(f"loading weights: {25 * quarter} % of {weight_bytes / GIB:.1f} GiB")

    return progress


def _more(plan: MemoryPlan) -> str:
    """What only some programs have: several sessions, points to go back to."""
    sessions = f", sessions={plan.sessions}" if plan.sessions > 1 else ""
    return sessions + (f", checkpoints={plan.checkpoints / MIB:.0f} MiB" if plan.checkpoints else "")


def thinking_line(engine: Engine, effort: Effort) -> str:
    """Whether the model thinks, how hard, and by which generation of effort texts."""
    profile = f"effort profile {engine.effort_profile}"
    if effort == "none":
        return f"thinking off, {profile}"
    return f"thinking on, effort {effort}, {profile}"


def engine_notes(engine: Engine) -> list[str]:
    """What the engine itself has to say, such as that the model is a test shape."""
    return list(getattr(engine, "notes", ()))
