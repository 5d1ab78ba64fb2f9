"""Which model a directory of cache files belongs to. Must not know: engines, files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """The model whose states are saved.

    `model_id` (0 Flash, 1 PRO) and `quant_bits` (2 or 4) stand in every file's header; `fingerprint`, hex,
    tells weights files apart, which no header does; `name` is for people.
    """

    model_id: int
    quant_bits: int
    fingerprint: str
    name: str
