"""The hyper-connections of `hyper_connections` through compiled C, where a C compiler is at hand.

In PyTorch their many small operations take a quarter of a training step; in C a few percent. `streams.c` is
compiled once per source into the user's temporary folder.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_SOURCE = Path(__file__).with_name("streams.c")
_FLAGS = ("-O3", "-march=native", "-ffast-math", "-shared", "-fPIC")


@cache
def library() -> ctypes.CDLL | None:
    """The compiled functions; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    target = Path(tempfile.gettempdir()) / f"ds4-streams-{os.getuid()}-{digest}.so"
    if not target.exists():
        fresh = target.with_suffix(f".{os.getpid()}.tmp")
        subprocess.run([compiler, *_FLAGS, str(_SOURCE), "-o", str(fresh), "-lm"], check=True)
        fresh.replace(target)
    return ctypes.CDLL(str(target))


def _at(tensor: Tensor) -> ctypes.c_void_p:
    assert tensor.is_contiguous()
    return ctypes.c_void_p(tensor.data_ptr())


def _sizes(streams: Tensor) -> tuple[ctypes.c_long, ctypes.c_int]:
    return ctypes.c_long(streams.shape[0]), ctypes.c_int(streams.shape[2])


class Before(torch.autograd.Function):
    """Streams [n, 4, D] and raw mixes [n, 24] to input [n, D], post weights [n, 4], combination [n, 4, 4]."""

    @staticmethod
    def forward(
        context: Any,
        streams: Tensor,
        mix: Tensor,
        scale: Tensor,
        base: Tensor,
        rounds: int,
        epsilon: float,
        rms_epsilon: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        count, parts, width = streams.shape
        norm, post = streams.new_empty(count), streams.new_empty(count, parts)
        entry, combine = streams.new_empty(count, width), streams.new_empty(count, parts, parts)
        _library().streams_before(
            *_sizes(streams), _at(streams), _at(mix), _at(scale), _at(base), ctypes.c_int(rounds),
            ctypes.c_float(epsilon), ctypes.c_float(rms_epsilon), _at(norm), _at(entry), _at(post),
            _at(combine),
        )  # fmt: skip
        context.save_for_backward(streams, mix, scale, base, norm)
        context.rounds, context.epsilon = rounds, epsilon
        return entry, post, combine

    @staticmethod
    def backward(context: Any, d_entry: Tensor, d_post: Tensor, d_combine: Tensor) -> Any:  # type: ignore[override]
        streams, mix, scale, base, norm = context.saved_tensors
        d_streams, d_mix = torch.empty_like(streams), torch.empty_like(mix)
        d_scale, d_base = (
            scale.new_zeros(3, dtype=torch.double),
            base.new_zeros(len(base), dtype=torch.double),
        )
        d_entry, d_post, d_combine = d_entry.contiguous(), d_post.contiguous(), d_combine.contiguous()
        _library().streams_before_back(
            *_sizes(streams), _at(streams), _at(mix), _at(scale), _at(base), ctypes.c_int(context.rounds),
            ctypes.c_float(context.epsilon), _at(norm), _at(d_entry), _at(d_post), _at(d_combine),
            _at(d_streams), _at(d_mix), _at(d_scale), _at(d_base),
        )  # fmt: skip
        return d_streams, d_mix, d_scale.float(), d_base.float(), None, None, None


class After(torch.autograd.Function):
    """Streams [n, 4, D] behind half a layer with output [n, D]."""

    @staticmethod
    def forward(context: Any, streams: Tensor, output: Tensor, post: Tensor, combine: Tensor) -> Tensor:
        result = torch.empty_like(streams)
        _library().streams_after(
            *_sizes(streams), _at(streams), _at(output), _at(post), _at(combine), _at(result)
        )
        context.save_for_backward(streams, output, post, combine)
        return result

    @staticmethod
    def backward(context: Any, d_result: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        streams, output, post, combine = context.saved_tensors
        made = tuple(torch.empty_like(tensor) for tensor in (streams, output, post, combine))
        d_result = d_result.contiguous()
        _library().streams_after_back(
            *_sizes(streams),
            _at(streams),
            _at(output),
            _at(post),
            _at(combine),
            _at(d_result),
            *map(_at, made),
        )
        return made


def _library() -> ctypes.CDLL:
    found = library()
    assert found is not None, "ask `library` first"
    return found
