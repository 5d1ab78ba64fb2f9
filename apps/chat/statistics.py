"""What a turn cost: counts, seconds and the line that reports them. Spec: apps §1.4."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TurnStatistics:
    """Figures of one turn. Prefill counts only what was computed; reused tokens cost nothing."""

    reused: int = 0
    prefilled: int = 0
    generated: int = 0
    prefill_seconds: float = 0.0
    generation_seconds: float = 0.0

    @property
    def prefill_rate(self) -> float:
        """Tokens per second, 0 when nothing was prefilled."""
        return _rate(self.prefilled, self.prefill_seconds)

    @property
    def generation_rate(self) -> float:
        """Tokens per second, 0 when nothing was generated."""
        return _rate(self.generated, self.generation_seconds)

    def line(self) -> str:
        """The line printed after every turn."""
        return f"prefill: {self.prefill_rate:.2f} t/s, generation: {self.generation_rate:.2f} t/s"

    def plus(self, other: TurnStatistics) -> TurnStatistics:
        """The sum of two turns' figures."""
        return TurnStatistics(
            self.reused + other.reused,
            self.prefilled + other.prefilled,
            self.generated + other.generated,
            self.prefill_seconds + other.prefill_seconds,
            self.generation_seconds + other.generation_seconds,
        )


def _rate(tokens: int, seconds: float) -> float:
    return tokens / seconds if seconds > 0 else 0.0
