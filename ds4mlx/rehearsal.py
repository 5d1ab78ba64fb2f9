"""Kernels at a model's own dimensions, tried before the first prompt needs them.

The proof of `kernels.proof` takes small inputs: a text for the real dimensions is another text, which a
compiler may refuse or a device may find too large. Must not know: sessions, files.
"""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from ds4mlx.kernel_choice import KernelChoice
from ds4mlx.kernels.kernel import Makers
from ds4mlx.model import Model
from ds4mlx.step import Step

_WINDOW = 128  # tokens after which windows of every ratio have ended
_SEVERAL = 16  # tokens of a prefill step: enough for the kernels of many


def rehearsed(choice: KernelChoice, model: Callable[[Makers], Model]) -> KernelChoice:
    """`choice` without the operations that fail in `model`, which makes the model with given makers.

    Usually one trial of all; only if that fails each operation is tried alone. Where none fails alone, all
    are left out.
    """
    trusted = choice.trusted()
    if not trusted:
        return choice
    together = trial(model(choice.maker))
    if together is None:
        return choice
    alone = {name: trial(model(choice.only(name).maker)) for name in trusted}
    failed = {name: reason for name, reason in alone.items() if reason is not None}
    return choice.without(failed or dict.fromkeys(trusted, together))


def trial(model: Model) -> str | None:
    """Why a layer of some kind, or the head, does not run on this device for one token or for several, in one
    line; None if all do. What they compute is thrown away."""
    shape = model.shape
    # Later than the indexer's first choice, and the token that ends windows of every ratio.
    last = (4 * shape.index_top_k // _WINDOW + 2) * _WINDOW - 1
    kinds = {
        (shape.compress_ratios[index], index < shape.hash_layers): index
        for index in reversed(range(shape.layer_count))
    }
    try:
        for count in (1, _SEVERAL):
            start = last + 1 - count
            state = model.open_state(last + 1)
            step = Step(shape, start, count, state.ring_rows)
            tokens = mx.zeros((count,), mx.int32)
            streams = model.embed(tokens)
            for index in sorted(kinds.values()):
                streams, _ = model.layer(index, state, streams, tokens, step)
                mx.eval(streams.arrays())
            mx.eval(model.output_head(streams.last()))
    except (RuntimeError, ValueError) as reason:  # MLX, of texts and launches that a device refuses
        return f"{type(reason).__name__}: {' '.join(str(reason).split())[:300]}"
    return None
