"""The operations of one model's forward pass: its kernels, compiled for the model's dimensions. Those that
multiply with quantised matrices are in `product_operations`.

Must not know: devices, weights, sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ds4cuda.kernels import (
    attend,
    attention_rows,
    begin_step,
    compress,
    draw,
    embed,
    hyper_collapse,
    hyper_mix,
    index_queries,
    index_scores,
    keep_logits,
    pick,
    route,
    tile_attend,
    tile_index_scores,
    top_k,
)
from ds4cuda.kernels.kernel import Modules
from shared.model.frontier import frontier_widths
from shared.model.shape import ModelShape

Call = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Operations:
    """Each as its package's `build` says. `attention_rows`, `compress` and `attend` are one for each
    compression ratio, `pick` and `draw` one with a mask and one without. Those in tiles are for many tokens;
    where tiles do not take the rows, they are the same as the others."""

    begin_step: Call
    embed: Call
    hyper_mix: Call  # of the first block: there is no output yet that joins
    hyper_join: Call
    head_join: Call
    hyper_collapse: Call
    head_collapse: Call
    attention_rows: dict[int, Call]
    compress: dict[int, Call]
    index_queries: Call
    index_scores: Call
    tile_index_scores: Call
    top_k: Call
    attend: dict[int, Call]
    tile_attend: dict[int, Call]
    route: dict[bool, Call]
    keep_logits: Call
    pick: dict[bool, Call]
    draw: dict[bool, Call]


def compressor_columns(shape: ModelShape, ratio: int) -> int:
    """Outputs of a compressor's projection: frontier rows, then on ratio-4 layers index head weights."""
    return sum(frontier_widths(shape, ratio)) + (shape.index_heads if ratio == 4 else 0)


def make_operations(modules: Modules, shape: ModelShape, *, rounds: bool) -> Operations:
    """`rounds`: cached rows and indexer vectors are rounded as the model does.

    Raises ValueError for dimensions that kernels are not written for.
    """
    width, ratios = shape.embedding_width, sorted(set(shape.compress_ratios))
    streams: dict[str, Any] = {"width": width, "streams": shape.streams}
    mixes: dict[str, Any] = {
        **streams,
        "rounds": shape.sinkhorn_rounds,
        "epsilon": shape.hyper_connection_epsilon,
        "rms_epsilon": shape.rms_epsilon,
    }
    rows: dict[str, Any] = {
        "head_dim": shape.head_dim,
        "rotary_dim": shape.rotary_dim,
        "epsilon": shape.rms_epsilon,
        "rounds": rounds,
    }
    frontiers = {ratio: sum(frontier_widths(shape, ratio)) for ratio in ratios}
    indexer = {"heads": shape.index_heads}
    routing: dict[str, Any] = {
        "experts": shape.expert_count,
        "used": shape.experts_used,
        "scale": shape.expert_weight_scale,
    }

    def attentions(package: Any) -> dict[int, Call]:
        return {
            ratio: package.build(
                modules,
                heads=shape.head_count,
                window=shape.window,
                ratio=ratio,
                top_k=shape.index_top_k if ratio == 4 else 0,
                **rows,
            )
            for ratio in ratios
        }

    scoring = {
        **indexer,
        "frontier": sum(frontier_widths(shape, 4)),
        "compressor": compressor_columns(shape, 4),
    }
    attention, scores = attentions(attend), index_scores.build(modules, **scoring)
    return Operations(
        begin_step=begin_step.build(modules, pairs=shape.rotary_dim // 2),
        embed=embed.build(modules, **streams),
        hyper_mix=hyper_mix.build(modules, mixes=shape.mix_width, joins=False, **streams),
        hyper_join=hyper_mix.build(modules, mixes=shape.mix_width, joins=True, **streams),
        head_join=hyper_mix.build(modules, mixes=shape.streams, joins=True, **streams),
        hyper_collapse=hyper_collapse.build(modules, head=False, **mixes),
        head_collapse=hyper_collapse.build(modules, head=True, **mixes),
        attention_rows={
            ratio: attention_rows.build(
                modules,
                query_rank=shape.query_rank,
                ratio=ratio,
                frontier=frontiers[ratio],
                compressor=compressor_columns(shape, ratio),
                **rows,
            )
            for ratio in ratios
        },
        compress={
            ratio: compress.build(modules, ratio=ratio, frontier=frontiers[ratio], **rows)
            for ratio in ratios
            if ratio
        },
        index_queries=index_queries.build(modules, rotary_dim=shape.rotary_dim, rounds=rounds, **indexer),
        index_scores=scores,
        tile_index_scores=tile_index_scores.build(modules, **scoring) if rounds else scores,
        top_k=top_k.build(modules, count=shape.index_top_k),
        attend=attention,
        tile_attend=attentions(tile_attend) if tile_attend.takes(shape.head_dim, rounds) else attention,
        route={hashed: route.build(modules, hashed=hashed, **routing) for hashed in (False, True)},
        keep_logits=keep_logits.build(modules),
        pick={masked: pick.build(modules, masked=masked) for masked in (False, True)},
        draw={
            masked: draw.build(modules, vocabulary=shape.vocabulary_size, masked=masked)
            for masked in (False, True)
        },
    )
