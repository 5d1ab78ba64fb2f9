"""The workloads of one layer, in the order in which the forward pass calls the operations.

Sizes follow the contracts in the operations' packages, for rows that are rounded and stored as float16.
Must not know: devices, time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ds4mlx.costs.workload import FLOAT, HALF, Moment, Workload, matrix_bytes, weight_count
from ds4mlx.experts import LARGEST_GATHER
from ds4mlx.kernels import attend, top_k
from ds4mlx.kernels.experts_prefill import TOKENS as EXPERT_TILE
from ds4mlx.kernels.hyper import SLICE
from ds4mlx.linear import Dimensions
from ds4mlx.step import Step
from shared.gguf.types import TensorType, block_bytes, block_elements
from shared.model.frontier import frontier_widths
from shared.model.shape import ModelShape


@dataclass(frozen=True, slots=True)
class ExpertTypes:
    """Block types of the routed experts: of gate and up, and of down."""

    gate_up: TensorType
    down: TensorType


Q2 = ExpertTypes(TensorType.IQ2_XXS, TensorType.Q2_K)
Q4 = ExpertTypes(TensorType.Q4_K, TensorType.Q4_K)


class LayerWorkloads:
    """Of a layer of this compression ratio, `hashed` if tokens choose its experts by a table."""

    def __init__(
        self, shape: ModelShape, moment: Moment, ratio: int, hashed: bool, types: ExpertTypes
    ) -> None:
        self._shape = shape
        self._moment = moment
        self._count = moment.count
        self._ratio = ratio
        self._hashed = hashed
        self._types = types
        self._step = Step(shape, moment.start, moment.count, shape.window + 1)
        self._frontier = sum(frontier_widths(shape, ratio)) if ratio else 0

    def calls(self) -> Iterator[Workload]:
        shape, count = self._shape, self._count
        width, heads = shape.embedding_width, shape.head_count * shape.head_dim
        groups, rank = shape.output_groups, shape.output_rank
        yield hyper_join(shape, count, shape.mix_width, "layers")
        yield hyper_collapse(shape, count)
        yield self._down()
        yield self._attention_rows()
        yield self._up()
        if self._ratio and self._windows():
            yield self._compress()
        if self.chooses:
            yield from self._indexer()
        yield self._attend()
        yield product("attention output, down", count, Dimensions("q8_0", heads // groups, rank, groups))
        yield product("attention output, up", count, Dimensions("q8_0", groups * rank, width))
        yield hyper_join(shape, count, shape.mix_width, "layers")
        yield hyper_collapse(shape, count)
        yield self._project_swiglu()
        yield self._route()
        yield self._run_experts()

    @property
    def chooses(self) -> bool:
        """Whether the indexer chooses among compressed rows."""
        return self._ratio == 4 and self._moment.end // 4 > self._shape.index_top_k

    def _down(self) -> Workload:
        shape = self._shape
        width = shape.embedding_width
        low = Dimensions("q8_0", width, shape.query_rank + shape.head_dim)
        if not self._ratio:
            return product("query and row", self._count, low)
        weighted = shape.index_heads if self._ratio == 4 else 0
        compressor = Dimensions("f16", width, self._frontier + weighted)
        return product(f"query, row and compressor, ratio {self._ratio}", self._count, low, compressor)

    def _up(self) -> Workload:
        shape = self._shape
        up = Dimensions("q8_0", shape.query_rank, shape.head_count * shape.head_dim)
        if not self.chooses:
            return product("queries", self._count, up)
        index = Dimensions("f16", shape.query_rank, shape.index_heads * shape.index_dim)
        return product("queries and index queries", self._count, up, index)

    def _attention_rows(self) -> Workload:
        shape, count = self._shape, self._count
        rank, row = shape.query_rank, shape.head_dim
        numbers = count * ((rank + row) + row + rank) + count * 2 * self._frontier
        return Workload(
            "attention_rows",
            f"ratio {self._ratio}",
            weights=FLOAT * (rank + row + min(count, self._ratio) * self._frontier),
            activations=FLOAT * numbers + HALF * count * row,
            products=0,
        )

    def _windows(self) -> int:
        """Windows that are pooled at once. Of single tokens, every one in `ratio` has the work."""
        return 1 if self._count == 1 else self._step.completed_windows(self._ratio)

    def _compress(self) -> Workload:
        """Where windows overlap, half of a token's columns count in its own window, half in the next."""
        shape, ratio, windows = self._shape, self._ratio, self._windows()
        index = shape.index_dim if ratio == 4 else 0
        pooled = windows * ratio * self._frontier
        decodes = self._count == 1
        # When decoding all tokens of a window but the newest are in the ring.
        cached = pooled - self._frontier // (2 if ratio == 4 else 1) if decodes else 0
        numbers = pooled - cached + windows * (shape.head_dim + index)
        return Workload(
            "compress",
            f"ratio {ratio}",
            weights=FLOAT * (shape.head_dim + index),
            rows=FLOAT * cached,
            activations=FLOAT * numbers + HALF * windows * shape.head_dim,
            products=pooled // 2,
            times=1 / ratio if decodes else 1,
        )

    def _indexer(self) -> Iterator[Workload]:
        shape, start = self._shape, self._moment.start
        heads, dim, rows = shape.index_heads, shape.index_dim, self._moment.end // 4
        yield Workload(
            "index_queries",
            "queries",
            weights=0,
            activations=FLOAT * self._count * (2 * heads * dim + dim),
            products=0,
        )
        for first, end, _ in self._step.index_blocks():
            count = end - first
            seen = sum((start + token + 1) // 4 for token in range(first, end))
            yield Workload(
                "index_scores",
                "scores",
                weights=0,
                rows=FLOAT * rows * dim,
                activations=FLOAT * count * (heads * dim + heads + rows),
                products=seen * heads * (dim + 1),
            )
            yield self._top_k(count, rows)

    def _top_k(self, queries: int, rows: int) -> Workload:
        wanted = self._shape.index_top_k
        shares = rows // (top_k.SHARE * wanted) if queries < top_k.FEW_QUERIES else 1
        merged = 2 * queries * shares * wanted if shares > 1 else 0
        return Workload(
            "top_k",
            "rows",
            weights=0,
            activations=FLOAT * (queries * (rows + wanted) + merged),
            products=0,
            launches=2 if shares > 1 else 1,
        )

    def _attend(self) -> Workload:
        shape, count, ratio = self._shape, self._count, self._ratio
        dim, heads, end = shape.head_dim, shape.head_count, self._moment.end
        chosen = shape.index_top_k if self.chooses else 0
        compressed = end // ratio if ratio else 0
        # What is chosen of a chunk's tokens can be all rows together.
        read = min(compressed, count * chosen) if chosen else compressed
        window = min(self._moment.start, shape.window - 1)
        numbers = count * (2 * heads * dim + dim + chosen)
        few = count <= attend.FEW_TOKENS
        if few:
            numbers += 2 * count * self._slices() * heads * (dim + 2)
        return Workload(
            "attend",
            f"ratio {ratio}, chosen rows" if chosen else f"ratio {ratio}",
            weights=FLOAT * heads,
            rows=HALF * dim * (window + read),
            activations=FLOAT * numbers + HALF * count * dim,
            products=2 * heads * dim * sum(self._seen(token) for token in range(count)),
            launches=2 if few else 1,
        )

    def _seen(self, token: int) -> int:
        """Rows that this token of the step attends to."""
        position = self._moment.start + token
        compressed = (position + 1) // self._ratio if self._ratio else 0
        if self.chooses:
            compressed = min(compressed, self._shape.index_top_k)
        return min(position + 1, self._shape.window) + compressed

    def _slices(self) -> int:
        tiles = -(-self._seen(self._count - 1) // 32)
        return min(tiles, max(1, attend.LARGEST_SLICES // self._count))

    def _project_swiglu(self) -> Workload:
        shape, count = self._shape, self._count
        width, hidden, experts = shape.embedding_width, shape.expert_width, shape.expert_count
        gate_up = Dimensions("q8_0", width, 2 * hidden * shape.shared_experts)
        router = Dimensions("f16", width, experts)
        both = product("", count, gate_up, router)
        # In one launch gate and up stay in registers.
        beside = hidden - gate_up.outputs if count == 1 else gate_up.outputs + hidden
        return replace(
            both,
            operation="project_swiglu",
            use="shared expert and router",
            activations=both.activations + FLOAT * count * beside,
        )

    def _route(self) -> Workload:
        shape, count = self._shape, self._count
        used, experts = shape.experts_used, shape.expert_count
        return Workload(
            "route",
            "by table" if self._hashed else "by scores",
            weights=FLOAT * (count * used if self._hashed else experts),
            activations=FLOAT * count * (experts + 2 * used + self._hashed),
            products=0,
        )

    def _run_experts(self) -> Workload:
        shape, count, used = self._shape, self._count, self._shape.experts_used
        width, hidden, pairs = shape.embedding_width, shape.expert_width, count * used
        read = min(shape.expert_count, pairs)
        routed = (
            2 * _row_bytes(self._types.gate_up, width) * hidden + _row_bytes(self._types.down, hidden) * width
        )
        shared_down = Dimensions("q8_0", hidden * shape.shared_experts, width)
        numbers = count * (2 * width + shared_down.inputs) + 2 * pairs
        if pairs <= LARGEST_GATHER:
            between, launches = FLOAT * 2 * pairs * hidden, 2
        else:
            lines = pairs // EXPERT_TILE + shape.expert_count
            parts = 2 * pairs * width + 2 * count * width
            between = HALF * 2 * pairs * hidden + FLOAT * (parts + 2 * pairs + 6 * lines)
            launches = 5
        return Workload(
            "run_experts",
            "routed and shared",
            weights=read * routed + matrix_bytes(shared_down, count),
            activations=FLOAT * numbers + between,
            products=3 * pairs * width * hidden + count * weight_count(shared_down),
            launches=launches,
            q8_0=weight_count(shared_down),
        )


def product(use: str, count: int, first: Dimensions, second: Dimensions | None = None) -> Workload:
    """One or two matrices times `count` tokens: one launch if it is one token."""
    matrices = [first] if second is None else [first, second]
    inputs = first.groups * first.inputs * (1 if count == 1 else len(matrices))
    outputs = sum(matrix.groups * matrix.outputs for matrix in matrices)
    return Workload(
        "project",
        use,
        weights=sum(matrix_bytes(matrix, count) for matrix in matrices),
        activations=FLOAT * count * (inputs + outputs),
        products=count * sum(weight_count(matrix) for matrix in matrices),
        launches=1 if count == 1 else len(matrices),
        q8_0=sum(weight_count(matrix) for matrix in matrices if matrix.storage == "q8_0"),
    )


def hyper_join(shape: ModelShape, count: int, mixes: int, use: str) -> Workload:
    """A mix of `mixes` outputs over the streams, which are joined by an output first."""
    width, streams = shape.embedding_width, shape.streams
    numbers = streams * width
    sums = width // SLICE * (mixes + 1)
    return Workload(
        "hyper_join",
        use,
        weights=HALF * mixes * numbers,
        activations=FLOAT * count * (2 * numbers + width + streams * (1 + streams) + sums),
        products=count * (numbers * (streams + 1) + numbers * (mixes + 1)),
    )


def hyper_collapse(shape: ModelShape, count: int) -> Workload:
    width, streams, mixes = shape.embedding_width, shape.streams, shape.mix_width
    sums = width // SLICE * (mixes + 1)
    numbers = streams * width + sums + width + streams * (1 + streams)
    return Workload(
        "hyper_collapse",
        "layers",
        weights=FLOAT * (width + 2 * mixes),
        activations=FLOAT * count * numbers,
        products=count * streams * width,
    )


def _row_bytes(type: TensorType, columns: int) -> int:
    return columns // block_elements(type) * block_bytes(type)
