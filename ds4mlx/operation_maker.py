"""How each operation of a model's forward pass is made of kernels, or of its fallback: with which of the
shape's dimensions and numbers, and when. Must not know: which operations a model has, devices.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, cast

import mlx.core as mx

from ds4mlx.by_identity import ByIdentity
from ds4mlx.experts import ExpertDimensions, ExpertStore, RawExperts, expert_rows
from ds4mlx.kernels import (
    attend,
    attention_rows,
    compress,
    experts_prefill,
    head_collapse,
    hyper_collapse,
    hyper_join,
    hyper_mix,
    index_queries,
    index_scores,
    project,
    project_swiglu,
    route,
    run_experts,
    stack_rows,
    top_k,
)
from ds4mlx.kernels.kernel import Makers
from ds4mlx.linear import Dimensions, FloatMatrix, Matrix
from shared.model.frontier import frontier_widths
from shared.model.shape import ModelShape

Call = Callable[..., Any]
Numbers = dict[str, Any]


class OperationMaker:
    """Makes one operation after the other for a model of this shape. `refusals` says why kernels do not take
    its dimensions."""

    def __init__(self, shape: ModelShape, makers: Makers, rounds: bool, quality: bool) -> None:
        self._shape = shape
        self._makers = makers
        self._rounds = rounds
        self._quality = quality
        self.refusals: list[str] = []

    def hyper_mix(self) -> Call:
        return self._mixing("hyper_mix", hyper_mix)

    def hyper_join(self) -> Call:
        return self._mixing("hyper_join", hyper_join)

    def hyper_collapse(self) -> Call:
        shape = self._shape
        numbers: Numbers = {
            "rounds": shape.sinkhorn_rounds,
            "epsilon": shape.hyper_connection_epsilon,
            "rms_epsilon": shape.rms_epsilon,
        }
        return self._plain_or(
            "hyper_collapse",
            partial(hyper_collapse.fallback, **numbers),
            partial(hyper_collapse.build, width=shape.embedding_width, streams=shape.streams, **numbers),
        )

    def head_collapse(self) -> Call:
        shape = self._shape
        numbers: Numbers = {"epsilon": shape.hyper_connection_epsilon, "rms_epsilon": shape.rms_epsilon}
        return self._plain_or(
            "head_collapse",
            partial(head_collapse.fallback, **numbers),
            partial(head_collapse.build, width=shape.embedding_width, streams=shape.streams, **numbers),
        )

    def project(self) -> Call:
        maker = self._makers("project")
        if maker is None:
            return project.fallback

        @cache
        def made(first: Dimensions, second: Dimensions | None) -> Call:
            plain = partial(project.fallback, groups=first.groups)
            return self._built("project", plain, partial(project.build, maker, first=first, second=second))

        def for_matrices(first: Matrix, second: Matrix | None, groups: int) -> Call:
            if isinstance(first, FloatMatrix) or isinstance(second, FloatMatrix):
                return partial(project.fallback, groups=groups)
            return made(first.dimensions, None if second is None else second.dimensions)

        return _of_matrices(for_matrices)

    def project_swiglu(self) -> Call:
        maker, clamp = self._makers("project_swiglu"), self._shape.swiglu_clamp
        plain = partial(project_swiglu.fallback, clamp=clamp)
        if maker is None:
            return plain

        @cache
        def made(gate_up: Dimensions, router: Dimensions) -> Call:
            build = partial(project_swiglu.build, maker, gate_up=gate_up, router=router, clamp=clamp)
            return self._built("project_swiglu", plain, build)

        def for_matrices(gate_up: Matrix, router: Matrix, groups: int) -> Call:
            if isinstance(gate_up, FloatMatrix) or isinstance(router, FloatMatrix):
                return plain
            return made(gate_up.dimensions, router.dimensions)

        return _of_matrices(for_matrices)

    def attention_rows(self, ratio: int) -> Call:
        shape = self._shape
        width = sum(frontier_widths(shape, ratio)) if ratio else 0
        numbers: Numbers = {
            "rotary_dim": shape.rotary_dim,
            "epsilon": shape.rms_epsilon,
            "rounds": self._rounds,
        }
        build = partial(
            attention_rows.build,
            query_rank=shape.query_rank,
            head_dim=shape.head_dim,
            ratio=ratio,
            frontier_width=width,
            compressor_width=self._compressor_columns(ratio),
            **numbers,
        )
        return self._plain_or("attention_rows", partial(attention_rows.fallback, **numbers), build)

    def compress(self, ratio: int) -> Call:
        shape = self._shape
        numbers: Numbers = {
            "rotary_dim": shape.rotary_dim,
            "epsilon": shape.rms_epsilon,
            "rounds": self._rounds,
        }
        build = partial(compress.build, head_dim=shape.head_dim, ratio=ratio, **numbers)
        return self._plain_or("compress", partial(compress.fallback, **numbers), build)

    def index_queries(self) -> Call:
        shape = self._shape
        return self._plain_or(
            "index_queries",
            partial(index_queries.fallback, rounds=self._rounds),
            partial(
                index_queries.build, heads=shape.index_heads, head_dim=shape.head_dim, rounds=self._rounds
            ),
        )

    def index_scores(self) -> Call:
        build = partial(
            index_scores.build,
            index_heads=self._shape.index_heads,
            columns=self._compressor_columns(4),
            rounds=self._rounds,
        )
        return self._plain_or("index_scores", index_scores.fallback, build)

    def top_k(self) -> Call:
        return self._plain_or("top_k", top_k.fallback, top_k.build)

    def attend(self, ratio: int) -> Call:
        shape = self._shape
        numbers: Numbers = {
            "heads": shape.head_count,
            "head_dim": shape.head_dim,
            "ratio": ratio,
            "epsilon": shape.rms_epsilon,
        }
        build = partial(
            attend.build,
            window=shape.window,
            top_k=shape.index_top_k if ratio == 4 else 0,
            rounds=self._rounds,
            **numbers,
        )
        return self._plain_or("attend", partial(attend.fallback, **numbers), build)

    def route(self) -> Call:
        shape = self._shape
        numbers: Numbers = {"used": shape.experts_used, "scale": shape.expert_weight_scale}
        build = partial(route.build, experts=shape.expert_count, **numbers)
        return self._plain_or("route", partial(route.fallback, **numbers), build)

    def run_experts(self) -> Call:
        maker, shape = self._makers("run_experts"), self._shape
        plain = partial(run_experts.fallback, clamp=shape.swiglu_clamp)
        if maker is None:
            return plain

        @cache
        def made(experts: ExpertDimensions, down: Dimensions) -> Call:
            numbers: Numbers = {"used": shape.experts_used, "clamp": shape.swiglu_clamp}
            numbers["quality"] = self._quality
            build = partial(run_experts.build, maker, experts=experts, shared_down=down, **numbers)
            return self._built("run_experts", plain, build)

        def for_layer(store: ExpertStore, shared_down: Matrix) -> Call:
            if not isinstance(store, RawExperts) or isinstance(shared_down, FloatMatrix):
                return plain
            return made(store.dimensions, shared_down.dimensions)

        made_for = ByIdentity(for_layer)

        def call(
            x: mx.array,
            store: ExpertStore,
            chosen: mx.array,
            shares: mx.array,
            hidden: mx.array,
            shared_down: Matrix,
        ) -> mx.array:
            operation = made_for(store, shared_down)
            return cast("mx.array", operation(x, store, chosen, shares, hidden, shared_down))

        return call

    def expert_rows(self) -> Call:
        """The hidden rows by the kernels that `run_experts` has for many tokens, made when first called."""
        maker, shape = self._makers("run_experts"), self._shape
        plain = partial(expert_rows, clamp=shape.swiglu_clamp)

        if maker is None:
            return plain

        @cache
        def made(experts: ExpertDimensions) -> Call:
            build = partial(
                experts_prefill.build_rows,
                maker,
                embedding_width=experts.width,
                expert_width=experts.expert_width,
                experts=experts.count,
                used=shape.experts_used,
                in_type=experts.in_type,
                clamp=shape.swiglu_clamp,
                half_hidden=not self._quality,
            )
            return self._built("run_experts", plain, build)

        def call(store: ExpertStore, x: mx.array, chosen: mx.array, shares: mx.array) -> mx.array:
            operation = made(store.dimensions) if isinstance(store, RawExperts) else plain
            return cast("mx.array", operation(store, x, chosen, shares))

        return call

    def stack_rows(self) -> Call:
        maker = self._makers("stack_rows")
        if maker is None:
            return stack_rows.fallback
        made = cache(lambda width, dtype: stack_rows.build(maker, width=width, dtype=dtype))
        return lambda rows: made(rows[0].shape[1], rows[0].dtype)(rows)

    def _plain_or(self, name: str, fallback: Call, build: Call) -> Call:
        maker = self._makers(name)
        return fallback if maker is None else self._built(name, fallback, partial(build, maker))

    def _built(self, name: str, fallback: Call, build: Call) -> Call:
        """What `build` makes, or the fallback for dimensions that the kernels are not written for."""
        try:
            return cast("Call", build())
        except ValueError as reason:
            self.refusals.append(f"{name}: {reason}")
            return fallback

    def _mixing(self, name: str, package: Any) -> Call:
        """For mixes of blocks and of the head, which differ in their outputs, and of either dtype."""
        maker, shape = self._makers(name), self._shape
        if maker is None:
            return package.fallback

        @cache
        def made(mixes: int, dtype: mx.Dtype) -> Call:
            sizes = {"width": shape.embedding_width, "streams": shape.streams}
            build = partial(package.build, maker, mixes=mixes, dtype=dtype, **sizes)
            return self._built(name, package.fallback, build)

        def call(*arguments: mx.array) -> Any:
            mix = arguments[-1]
            return made(mix.shape[0], mix.dtype)(*arguments)

        return call

    def _compressor_columns(self, ratio: int) -> int:
        """Outputs of a compressor's projection: frontier rows, then on ratio-4 layers index head weights."""
        if not ratio:
            return 0
        return sum(frontier_widths(self._shape, ratio)) + (self._shape.index_heads if ratio == 4 else 0)


def _of_matrices(made: Callable[[Any, Any, int], Call]) -> Call:
    """Calls what was made for a pair of matrices."""
    made_for = ByIdentity(made)

    def call(x: mx.array, first: Any, second: Any = None, groups: int = 1) -> Any:
        return made_for(first, second, groups)(x, first, second)

    return call
