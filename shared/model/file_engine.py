"""What every engine that was loaded from a model file tells of it.

Must not know: backends, sessions.
"""

from __future__ import annotations

from shared.model.open import ModelFile
from shared.model.shape import ModelShape
from shared.power import PowerGovernor
from shared.text.tokenizer import Tokenizer


class FileEngine:
    """The part of `shared.session.Engine` that comes from the file, which it owns. `notes` are lines for the
    start of a program."""

    def __init__(
        self, file: ModelFile, *, prefill_chunk: int, power: PowerGovernor, notes: list[str]
    ) -> None:
        self._file = file
        self.prefill_chunk = prefill_chunk
        self.power = power
        self.notes = notes

    @property
    def name(self) -> str:
        return self._file.name

    @property
    def shape(self) -> ModelShape:
        return self._file.shape

    @property
    def model_id(self) -> int:
        return self._file.shape.model_id

    @property
    def quant_bits(self) -> int:
        return self._file.quant_bits

    @property
    def fingerprint(self) -> str:
        return self._file.fingerprint

    @property
    def effort_profile(self) -> str:
        return self._file.effort_profile

    @property
    def tokenizer(self) -> Tokenizer:
        return self._file.tokenizer

    def close(self) -> None:
        self._file.close()
