"""How much memory a session takes: row capacities, the plan in bytes, and what would fit a budget.

Arithmetic on a shape and a context size; allocates nothing and knows no backend.
"""

from __future__ import annotations

from dataclasses import replace

from shared.model.shape import ModelShape
from shared.session import MemoryPlan, MemoryPlanner

DEFAULT_PREFILL_CHUNK = 4096
_LARGEST_RING = 8192
_RING_STEP = 256


def prefill_cap(context: int, chunk: int = DEFAULT_PREFILL_CHUNK) -> int:
    """Tokens of one prefill step: `chunk` within [1, context]; a chunk of 0 or less is the whole context."""
    return context if chunk <= 0 else min(chunk, context)


def raw_capacity(context: int, chunk: int = DEFAULT_PREFILL_CHUNK, window: int = 128) -> int:
    """Rows of a layer's ring of raw keys, as allocated: never more than the context (spec: model §5.1)."""
    return min(_planned_ring(context, chunk, window), context)


def compressed_capacity(context: int, ratio: int) -> int:
    """Rows of a layer's compressed cache; 0 for a window-only layer (ratio 0)."""
    return context // ratio + 2 if ratio else 0


def memory_plan(
    shape: ModelShape,
    context: int,
    *,
    weights: int,
    prefill_chunk: int = DEFAULT_PREFILL_CHUNK,
    attention_row_bytes: int = 2,
) -> MemoryPlan:
    """Bytes for one session of `context` tokens (spec: model §5.1).

    `weights` are the bytes of the loaded model, `attention_row_bytes` those of one stored number of a
    compressed attention row (2 as float16, 4 as float32). The plan rounds the ring up before the context
    bounds it, so a small context is planned a little larger than it is. ValueError for a context below 1.
    """
    if context < 1:
        raise ValueError(f"a context of {context} tokens is impossible")
    chunk = prefill_cap(context, prefill_chunk)
    largest_cache = compressed_capacity(context, 4)
    rows = {ratio: compressed_capacity(context, ratio) for ratio in set(shape.compress_ratios)}
    compressed = sum(
        rows[ratio] * (shape.head_dim * attention_row_bytes + (shape.index_dim * 4 if ratio == 4 else 0))
        for ratio in shape.compress_ratios
    )
    return MemoryPlan(
        context=context,
        weights=weights,
        raw=shape.layer_count * _planned_ring(context, prefill_chunk, shape.window) * shape.head_dim * 4,
        compressed=compressed,
        scratch=2 * largest_cache * chunk * 4 + max(chunk // 4 + 2, 2) * shape.head_dim * 4,
        raw_rows=raw_capacity(context, prefill_chunk, shape.window),
        compressed_rows=largest_cache,
        prefill_chunk=chunk,
    )


def largest_context(
    planned: MemoryPlanner, budget: int, limit: int, *, sessions: int = 1, checkpoints: int = 0
) -> int:
    """The largest context up to `limit` of which `sessions`, and `checkpoints` bytes, fit `budget` bytes; 0
    when none does."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if replace(planned(middle), sessions=sessions, checkpoints=checkpoints).total <= budget:
            low = middle
        else:
            high = middle - 1
    return low


def refusal(plan: MemoryPlan, budget: int, planned: MemoryPlanner) -> str | None:
    """Why a plan does not fit `budget` bytes, with the flag that would make it fit; None when it fits.

    `planned` tells what other contexts would take.
    """
    if plan.total <= budget:
        return None
    wish = f"a context of {plan.context} tokens needs"
    if plan.sessions > 1:
        wish = f"{plan.sessions} sessions of {plan.context} tokens need"
    needed = (
        f"{wish} {_gib(plan.total)} ({_gib(plan.weights)} of weights and "
        f"{_gib(plan.context_buffers)} of context) but {_gib(budget)} are available"
    )
    fitting = largest_context(
        planned, budget, plan.context - 1, sessions=plan.sessions, checkpoints=plan.checkpoints
    )
    if fitting >= _RING_STEP:
        return f"{needed}: use --ctx {fitting // _RING_STEP * _RING_STEP}"
    if fitting:
        return f"{needed}: use --ctx {fitting}"
    if plan.checkpoints and plan.weights < budget:
        return f"{needed}: lower --kv-checkpoint-mb"
    return f"{needed}: the weights alone leave no room for a context; a smaller quantisation is needed"


def _planned_ring(context: int, chunk: int, window: int) -> int:
    rows = min(window + prefill_cap(context, chunk), context)
    rounded = -(-rows // _RING_STEP) * _RING_STEP
    return max(min(rounded, _LARGEST_RING), min(window, context))


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"
