"""The lines that a program prints once its engine is open. Spec: apps, shared conventions."""

from __future__ import annotations

from apps.memory import MIB
from shared.session import Engine
from shared.text.effort import Effort


def context_line(engine: Engine, context: int) -> str:
    """What the context costs, and the figures it follows from."""
    plan = engine.memory_plan(context)
    return (
        f"context buffers {plan.context_buffers / MIB:.2f} MiB (ctx={context}, backend={engine.backend}, "
        f"prefill_chunk={plan.prefill_chunk}, raw_kv_rows={plan.raw_rows}, "
        f"compressed_kv_rows={plan.compressed_rows})"
    )


def thinking_line(engine: Engine, effort: Effort) -> str:
    """Whether the model thinks, how hard, and by which generation of effort texts."""
    profile = f"effort profile {engine.effort_profile}"
    if effort == "none":
        return f"thinking off, {profile}"
    return f"thinking on, effort {effort}, {profile}"


def engine_notes(engine: Engine) -> list[str]:
    """What the engine itself has to say, such as that the model is a test shape."""
    return list(getattr(engine, "notes", ()))
