"""Which weights a saved state belongs to: a digest of a model file that takes milliseconds, not minutes.

Reads the header and a few bytes of every tensor. Two files with the same fingerprint have the same metadata
and the same tensors as far as their samples go: a new training run, another quantisation or a steered copy
differs in every block of the tensors that it touched. Knows no backend; spec: kv §13.
"""

from __future__ import annotations

import hashlib
from typing import Final

from shared.gguf.reader import GgufFile
from shared.gguf.types import TensorType

# One page of the middle of each tensor: beginnings are often regular, the middle never is.
SAMPLE_BYTES: Final = 4096


def fingerprint(gguf: GgufFile) -> str:
    """64 hex digits: SHA-256 of the file's size, its header, and a sample of each tensor in file order."""
    digest = hashlib.sha256(gguf.size.to_bytes(8, "little"))
    digest.update(gguf.header().data)
    for name, info in gguf.tensors.items():
        if info.type is TensorType.UNKNOWN:
            continue  # without a known size; the header names it
        start = max(0, info.nbytes - SAMPLE_BYTES) // 2
        digest.update(gguf.data(name)[start : start + SAMPLE_BYTES].data)
    return digest.hexdigest()
