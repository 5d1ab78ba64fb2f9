"""The operations of one model's forward pass: each as kernels where `makers` trusts them, else as plain array
operations. Both have the same signature, so that the forward pass does not know which it calls.

Must not know: devices, how kernels are trusted, sessions.
"""

from __future__ import annotations

from dataclasses import dataclass

from ds4mlx.kernels.kernel import Makers
from ds4mlx.operation_maker import Call, OperationMaker
from shared.model.shape import ModelShape


@dataclass(frozen=True, slots=True)
class Operations:
    """Each with the signature of its package's `fallback`, `expert_rows` with that of
    `ds4mlx.experts.expert_rows` without the clamp. `compress`, `attention_rows` and `attend` are one
    for each compression ratio."""

    hyper_mix: Call
    hyper_join: Call
    hyper_collapse: Call
    head_collapse: Call
    project: Call
    project_swiglu: Call
    attention_rows: dict[int, Call]
    compress: dict[int, Call]
    index_queries: Call
    index_scores: Call
    top_k: Call
    attend: dict[int, Call]
    route: Call
    run_experts: Call
    expert_rows: Call  # no part of the forward pass: for a model whose experts are watched
    stack_rows: Call
    refusals: list[str]  # why kernels do not take this model's dimensions; their fallbacks are used


def plain_operations(shape: ModelShape, *, rounds: bool) -> Operations:
    return make_operations(shape, lambda name: None, rounds=rounds)


def make_operations(shape: ModelShape, makers: Makers, *, rounds: bool, quality: bool = False) -> Operations:
    """`rounds`: cached rows and indexer vectors are rounded as the model does; `quality` keeps what kernels
    hand to each other in float32 where they would otherwise take float16."""
    made = OperationMaker(shape, makers, rounds, quality)
    ratios = sorted(set(shape.compress_ratios))
    return Operations(
        hyper_mix=made.hyper_mix(),
        hyper_join=made.hyper_join(),
        hyper_collapse=made.hyper_collapse(),
        head_collapse=made.head_collapse(),
        project=made.project(),
        project_swiglu=made.project_swiglu(),
        attention_rows={ratio: made.attention_rows(ratio) for ratio in ratios},
        compress={ratio: made.compress(ratio) for ratio in ratios if ratio},
        index_queries=made.index_queries(),
        index_scores=made.index_scores(),
        top_k=made.top_k(),
        attend={ratio: made.attend(ratio) for ratio in ratios},
        route=made.route(),
        run_experts=made.run_experts(),
        expert_rows=made.expert_rows(),
        stack_rows=made.stack_rows(),
        refusals=made.refusals,
    )
