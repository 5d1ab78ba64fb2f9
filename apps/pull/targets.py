"""The published model files by short name. Data only: knows neither network nor disk.

Sizes are in units of 10^9 bytes, rounded, and used for listing (the publishers give some of theirs in units
of 2^30 bytes); the hub's own size is used for checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

REPOSITORY = "antirez/deepseek-v4-gguf"
RECOMMENDED = "ds4f-q2"

_FLASH_Q2 = "DeepSeek-V4-Flash-IQ2XXS-w2Q2K-AProjQ8-SExpQ8-OutQ8-chat-v2"
_FLASH_Q2_Q4 = (
    "DeepSeek-V4-Flash-Layers37-42Q4KExperts-OtherExpertLayersIQ2XXSGateUp-Q2KDown"
    "-AProjQ8-SExpQ8-OutQ8-chat-v2-imatrix-fixed"
)
_FLASH_16_BIT_PARTS = "F16HC-F16Compressor-F16Indexer-Q8Attn-Q8Shared-Q8Out-chat-v2"
_FLASH_Q4 = f"DeepSeek-V4-Flash-Q4KExperts-{_FLASH_16_BIT_PARTS}"
_FLASH_MXFP4 = f"DeepSeek-V4-Flash-MXFP4Experts-{_FLASH_16_BIT_PARTS}-mxfp4"
_PRO_Q2 = "DeepSeek-V4-Pro-IQ2XXS-w2Q2K-AProjQ8-SExpQ8-OutQ8-Instruct"
_PRO_Q4_FIRST = "DeepSeek-V4-Pro-Q4K-Layers00-30"
_PRO_Q4_SECOND = "DeepSeek-V4-Pro-Q4K-Layers-31-output"


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to pull. `kind`: a `model` becomes ./ds4flash.gguf; a `draft` or `part` does not."""

    name: str
    stems: tuple[str, ...]
    gigabytes: float
    memory: str
    note: str
    kind: Literal["model", "draft", "part"] = "model"

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(f"{stem}.gguf" for stem in self.stems)


_ALL = (
    Target("ds4f-q2", (f"{_FLASH_Q2}-imatrix-0731",), 87, "96/128 GB", "Flash 0731, 2-bit experts"),
    Target("ds4f-q2-q4", (f"{_FLASH_Q2_Q4}-0731",), 98, "128 GB", "Flash 0731, layers 37-42 in 4 bits"),
    Target("ds4f-q4", (f"{_FLASH_Q4}-imatrix-0731",), 165, "256 GB or more", "Flash 0731, 4-bit experts"),
    Target("ds4f-mxfp4", (f"{_FLASH_MXFP4}-0731",), 156, "256 GB or more", "Flash 0731, original experts"),
    Target("pro-q2-imatrix", (f"{_PRO_Q2}-imatrix-0813",), 465, "512 GB", "PRO 0813, 2-bit experts"),
    Target("q2-imatrix", (f"{_FLASH_Q2}-imatrix",), 87, "96/128 GB", "Flash preview, 2-bit experts"),
    Target("q2-q4-imatrix", (_FLASH_Q2_Q4,), 98, "128 GB", "Flash preview, layers 37-42 in 4 bits"),
    Target("q4-imatrix", (f"{_FLASH_Q4}-imatrix",), 165, "256 GB or more", "Flash preview, 4-bit experts"),
    Target("pro-imatrix", (f"{_PRO_Q2}-imatrix",), 465, "512 GB", "PRO preview, 2-bit experts"),
    Target("q2", (_FLASH_Q2,), 87, "96/128 GB", "Flash preview, without importance matrix"),
    Target("q4", (_FLASH_Q4,), 165, "256 GB or more", "Flash preview, without importance matrix"),
    Target("pro", (_PRO_Q2,), 465, "512 GB", "PRO preview, without importance matrix"),
    Target(
        "mtp",
        ("DeepSeek-V4-Flash-MTP-Q4K-Q8_0-F32",),
        3.5,
        "beside Flash",
        "draft block for the preview Flash (not used yet)",
        "draft",
    ),
    Target(
        "pro-q4-split",
        (_PRO_Q4_FIRST, _PRO_Q4_SECOND),
        900,
        "two hosts of 512 GB",
        "PRO, 4-bit experts, both halves (not used yet)",
        "part",
    ),
    Target(
        "pro-q4-layers00-30", (_PRO_Q4_FIRST,), 457, "512 GB", "PRO, 4-bit, first half (not used yet)", "part"
    ),
    Target(
        "pro-q4-layers31-output",
        (_PRO_Q4_SECOND,),
        442,
        "512 GB",
        "PRO, 4-bit, second half (not used yet)",
        "part",
    ),
)

TARGETS = {target.name: target for target in _ALL}
