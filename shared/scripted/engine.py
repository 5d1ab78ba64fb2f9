"""The scripted engine: the `Engine` protocol over a script. It only looks like a loaded model."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable

from shared.model.shape import ModelShape
from shared.power import PowerGovernor
from shared.scripted.cast import Cast
from shared.scripted.journal import Journal
from shared.scripted.pauses import Pauses
from shared.scripted.script import Script
from shared.scripted.script_file import read_script
from shared.scripted.session import ScriptedSession
from shared.scripted.vocabulary import TOKENS, tokenizer
from shared.session import MemoryPlan
from shared.text.tokenizer import Tokenizer


def load(script_path: str | os.PathLike[str], *, power: int = 100) -> ScriptedEngine:
    """The engine that plays the script in a JSON file. Raises UsageError."""
    return ScriptedEngine(read_script(script_path), power=power)


class ScriptedEngine:
    """One timeline of turns for all its sessions. `pauses` and `clock` are injectable."""

    def __init__(
        self,
        script: Script,
        *,
        power: int = 100,
        pauses: Pauses | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.script = script
        self.pauses = pauses or Pauses()
        self.journal = Journal(script.journal, clock=clock)
        self.cast = Cast(script)
        self.prefill_chunk = script.prefill_chunk
        self.notes = ["scripted engine: the answers come from a script, no model is loaded"]
        self._power = PowerGovernor(power, sleep=self.pauses.sleep)
        self._shape = _shape(script.engine.model_id)

    @property
    def backend(self) -> str:
        return "scripted"

    @property
    def name(self) -> str:
        return self.script.engine.name

    @property
    def shape(self) -> ModelShape:
        return self._shape

    @property
    def model_id(self) -> int:
        return self.script.engine.model_id

    @property
    def quant_bits(self) -> int:
        return self.script.engine.quant_bits

    @property
    def fingerprint(self) -> str:
        """Of what the script says the engine is: its turns may change, as they are no weights."""
        return hashlib.sha256(self.script.engine.model_dump_json().encode()).hexdigest()

    @property
    def effort_profile(self) -> str:
        return "official"

    @property
    def tokenizer(self) -> Tokenizer:
        return tokenizer()

    @property
    def power(self) -> PowerGovernor:
        return self._power

    def open_session(self, context: int) -> ScriptedSession:
        if context < 1:
            raise ValueError(f"a context holds at least one token, not {context}")
        return ScriptedSession(self, context)

    def memory_plan(self, context: int) -> MemoryPlan:
        """A session holds its tokens and nothing else."""
        return MemoryPlan(
            context=context,
            weights=0,
            raw=4 * context,
            compressed=0,
            scratch=0,
            raw_rows=context,
            compressed_rows=0,
            prefill_chunk=self.prefill_chunk,
        )

    def close(self) -> None:
        self.journal.close()


def _shape(model_id: int) -> ModelShape:
    """The smallest shape of the family; only its vocabulary means anything here."""
    return ModelShape(
        variant="test",
        model_id=model_id,
        layer_count=1,
        embedding_width=256,
        vocabulary_size=len(TOKENS),
        head_count=1,
        head_dim=128,
        rotary_dim=64,
        query_rank=256,
        output_rank=256,
        output_groups=1,
        expert_count=1,
        experts_used=1,
        shared_experts=1,
        expert_width=256,
        hash_layers=0,
        window=128,
        index_heads=1,
        index_dim=128,
        index_top_k=1,
        streams=4,
        sinkhorn_rounds=20,
        rms_epsilon=1e-6,
        hyper_connection_epsilon=1e-6,
        expert_weight_scale=1.0,
        swiglu_clamp=10.0,
        rope_base=10000.0,
        compress_rope_base=160000.0,
        rope_scale=1.0,
        yarn_beta_fast=32.0,
        yarn_beta_slow=1.0,
        rope_original_context=65536,
        compress_ratios=(0,),
    )
