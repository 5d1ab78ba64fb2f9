"""Training states on disk: written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Replaces `path` by `state` in one step."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    torch.save(state, temporary)
    os.replace(temporary, path)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """What `write_checkpoint` wrote."""
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state


def read_weights(path: Path) -> dict[str, Tensor]:
    """The averaged weights of a training state: those to evaluate and to ship."""
    weights: dict[str, Tensor] = read_checkpoint(path)["average"]
    return weights
