"""The bar of a running conversion, on stderr and only where that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING

from apps.console import console
from shared.quantise.plan import PlannedTensor

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def conversion_progress(
    plan: Sequence[PlannedTensor], on: Console | None = None
) -> Iterator[Callable[[PlannedTensor, int], None]]:
    """A bar over the weights to convert; the function that moves it on takes a tensor and bytes of it.

    Weights and not bytes are counted: they say better how long the rest takes.
    """
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    screen = on or console()
    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    total = sum(prod(tensor.dims) for tensor in plan)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task("", total=total)

        def advance(tensor: PlannedTensor, nbytes: int) -> None:
            weights = prod(tensor.dims) * nbytes / tensor.nbytes
            progress.update(task, advance=weights, description=tensor.name)

        yield advance
