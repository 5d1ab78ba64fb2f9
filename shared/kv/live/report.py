"""What became of a prompt's prefix, as the one log line of a turn. Must not know: how it came about."""

from __future__ import annotations

from dataclasses import dataclass

from shared.kv.live.start import Source

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ReuseReport:
    """`reused` tokens were there already, `prefilled` were computed, `saved_bytes` went to disk meanwhile;
    `file` is the name of the cache file that was loaded."""

    source: Source
    slot: int
    reused: int
    prefilled: int
    saved_bytes: int = 0
    file: str | None = None

    def __str__(self) -> str:
        line = (
            f"kv cache source={self.source} slot={self.slot} reused={self.reused} prefill={self.prefilled} "
            f"saved={self.saved_bytes / _MIB:.2f} MiB"
        )
        return line if self.file is None else f"{line} file={self.file}"
