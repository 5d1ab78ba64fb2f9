"""What one operation has to move and multiply in one step, and how often a step has it.

Counted are bytes that an ideal kernel would move: each weight, each cached row and each activation that the
operation needs, once, in the storage that it really has, and what passes from one launch of the operation to
the next, written and read. Not counted are padding, what several threadgroups read again, and instructions.
Must not know: the model's layers, devices, time.
"""

from __future__ import annotations

from dataclasses import dataclass

from ds4mlx.linear import Dimensions

FLOAT = 4  # bytes
HALF = 2
Q8_0_BLOCK = 32
# Bits of a Q8_0 weight: as our kernel reads the repacked matrix (a code and its part of a float32 scale), as
# `mx.quantized_matmul` does (a float32 bias besides), and as a GGUF block holds it (a float16 scale).
KERNEL_BITS = 8 + 32 / Q8_0_BLOCK
MATMUL_BITS = 8 + 64 / Q8_0_BLOCK
BLOCK_BITS = 8 + 16 / Q8_0_BLOCK


@dataclass(frozen=True, slots=True)
class Moment:
    """A step of `count` tokens from position `start`: one decodes, more prefill."""

    start: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.count


@dataclass(frozen=True, slots=True)
class Workload:
    """One call of an operation. `use` tells calls of one operation apart.

    `weights` and `rows` are the bytes of the model and of the caches that it reads, `activations` those of
    everything else that it reads or writes. `products` is the number of multiply-adds, of matrix products,
    attention, pooling and mixing; norms, rotations, roundings and exponentials are left out. `launches` are
    those of our kernels and of MLX's matrix products. `q8_0` is the number of Q8_0 weights among the weights,
    `times` how often a step has such a call: a fraction where not every step has.
    """

    operation: str
    use: str
    weights: int
    activations: int
    products: int
    rows: int = 0
    launches: int = 1
    q8_0: int = 0
    times: float = 1.0

    @property
    def bytes(self) -> int:
        return self.weights + self.rows + self.activations

    @property
    def flops(self) -> int:
        """A multiply-add counts as two."""
        return 2 * self.products


@dataclass(frozen=True, slots=True)
class Total:
    """Of the workloads of a step, each as often as the step has it."""

    weights: float
    rows: float
    activations: float
    flops: float
    launches: float
    q8_0: float

    @property
    def bytes(self) -> float:
        return self.weights + self.rows + self.activations


def total(workloads: list[Workload]) -> Total:
    return Total(
        weights=sum(work.weights * work.times for work in workloads),
        rows=sum(work.rows * work.times for work in workloads),
        activations=sum(work.activations * work.times for work in workloads),
        flops=sum(work.flops * work.times for work in workloads),
        launches=sum(work.launches * work.times for work in workloads),
        q8_0=sum(work.q8_0 * work.times for work in workloads),
    )


def weight_count(matrix: Dimensions) -> int:
    return matrix.groups * matrix.inputs * matrix.outputs


def matrix_bytes(matrix: Dimensions, count: int) -> int:
    """Bytes of a matrix as it is read for `count` tokens: one goes through our kernel, more go through
    `mx.quantized_matmul` if it is Q8_0."""
    bits = {"f32": 32.0, "f16": 16.0, "q8_0": KERNEL_BITS if count == 1 else MATMUL_BITS}
    return int(weight_count(matrix) * bits[matrix.storage] / 8)
