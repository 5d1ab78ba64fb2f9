"""The bytes of a planned tensor, piece by piece, several pieces at once.

A piece is an expert, or some rows of another matrix. Pieces come out in order whatever the number of
workers, and each is made from the same numbers in the same way: so are the bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from threading import Event

import numpy as np
import numpy.typing as npt

from shared.gguf.mapping import shown
from shared.gguf.types import TensorType
from shared.quantise.imatrix import Imatrix
from shared.quantise.matrix import quantise
from shared.quantise.mxfp4 import repack
from shared.quantise.plan import PlannedTensor
from shared.quantise.safetensors import Checkpoint, CheckpointError, StoredTensor
from shared.quantise.stored_floats import FP8_BLOCK, FloatMatrix

Bytes = npt.NDArray[np.uint8]

_PIECE_ELEMENTS = 1 << 22


def encoded(
    plan: Sequence[PlannedTensor],
    checkpoint: Checkpoint,
    imatrix: Imatrix | None,
    workers: int,
) -> Iterator[tuple[PlannedTensor, Bytes]]:
    """Every piece of every tensor, in order, with the tensor that it belongs to.

    At most `workers` pieces are in work and as many wait to be taken; closing the iterator stops them soon.
    Raises CheckpointError for numbers that cannot be written.
    """
    stop = Event()

    def check() -> None:
        if stop.is_set():
            raise CancelledError

    jobs = ((tensor, job) for tensor in plan for job in _jobs(tensor, checkpoint, imatrix, check))
    waiting: deque[tuple[PlannedTensor, Future[Bytes]]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="ds4-quantise")
    try:
        for tensor, job in jobs:
            waiting.append((tensor, pool.submit(job)))
            if len(waiting) > workers:
                owner, future = waiting.popleft()
                yield owner, future.result()
        while waiting:
            owner, future = waiting.popleft()
            yield owner, future.result()
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def _jobs(
    tensor: PlannedTensor, checkpoint: Checkpoint, imatrix: Imatrix | None, check: Callable[[], None]
) -> Iterator[Callable[[], Bytes]]:
    if tensor.table is not None:
        yield partial(_expert_ids, checkpoint, tensor.table, tensor.id_limit)
        return
    for number, matrix in enumerate(tensor.matrices):
        if len(tensor.dims) == 3:
            yield partial(_expert, tensor, number, checkpoint, imatrix, check)
            continue
        step = max(_PIECE_ELEMENTS // matrix.columns // FP8_BLOCK, 1) * FP8_BLOCK
        for start in range(0, matrix.rows, step):
            yield partial(_part, tensor.type, matrix, checkpoint, start, min(start + step, matrix.rows))


def _expert(
    tensor: PlannedTensor,
    expert: int,
    checkpoint: Checkpoint,
    imatrix: Imatrix | None,
    check: Callable[[], None],
) -> Bytes:
    matrix = tensor.matrices[expert]
    importance = None
    if imatrix is not None:
        importance = imatrix.of(tensor.name, expert, matrix.columns, len(tensor.matrices))
    try:
        if tensor.type is TensorType.MXFP4:
            return repack(*matrix.fp4(checkpoint))
        values = matrix.floats(checkpoint, 0, matrix.rows)
        return quantise(tensor.type, values, importance, check=check)
    except ValueError as fault:
        raise CheckpointError(f"tensor {shown(matrix.stored.name)} {fault}") from None


def _part(type: TensorType, matrix: FloatMatrix, checkpoint: Checkpoint, start: int, stop: int) -> Bytes:
    try:
        return quantise(type, matrix.floats(checkpoint, start, stop))
    except ValueError as fault:
        raise CheckpointError(f"tensor {shown(matrix.stored.name)} {fault}") from None


def _expert_ids(checkpoint: Checkpoint, table: StoredTensor, limit: int) -> Bytes:
    kind = "<i8" if table.dtype == "I64" else "<i4"
    ids = checkpoint.read(table, 0, table.nbytes).view(kind)
    if ids.size and (ids.min() < 0 or ids.max() >= limit):
        raise CheckpointError(f"tensor {shown(table.name)} names experts outside 0 to {limit - 1}")
    return ids.astype("<i4").view(np.uint8)
