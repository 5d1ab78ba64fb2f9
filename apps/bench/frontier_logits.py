"""The logits dump at a frontier, one JSON file each. Spec: apps §2.1, `--dump-frontier-logits-dir`."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from shared.session import Engine, Session


@dataclass(frozen=True, slots=True)
class FrontierLogits:
    """Writes `frontier_%06d.logits.json` into `folder`, which must exist."""

    folder: Path
    engine: Engine
    session: Session
    quality: bool
    prompt_tokens: int

    def write(self, frontier: int, prefill_tokens: int) -> Path:
        logits = self.session.logits()
        best = int(logits.argmax())
        record = {
            "source": "ds4-bench",
            "model": self.engine.name,
            "backend": self.engine.backend,
            "quality": self.quality,
            "quant_bits": self.engine.quant_bits,
            "prompt_tokens": self.prompt_tokens,
            "frontier_tokens": frontier,
            "prefill_tokens": prefill_tokens,
            "ctx": self.session.context,
            "vocab": len(logits),
            "argmax_id": best,
            "argmax_logit": float(logits[best]),
            "logits": [value if math.isfinite(value) else None for value in logits.tolist()],
        }
        path = self.folder / f"frontier_{frontier:06d}.logits.json"
        path.write_text(json.dumps(record) + "\n", encoding="utf-8")
        return path
