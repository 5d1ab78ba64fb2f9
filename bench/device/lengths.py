"""How much is measured: on a GPU, and in the simulator, where only the way is tried.

Must not know: how anything is measured.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens, but for `copy_bytes` and `rounds`."""

    prefill: tuple[int, ...]  # prompts
    decode: tuple[int, ...]  # positions at which tokens are decoded
    decoded: int  # at each
    chunk: int  # longest prefill step
    repeated_prompt: int  # evaluated several times, and continued
    repeated: int
    timed_step: int  # of the prefill step whose kernels are timed
    rounds: int  # of a decode step whose kernels are timed
    copy_bytes: int
    loaded_layers: int

    @property
    def context(self) -> int:
        longest = max(self.decode) + 2 * self.decoded
        return max(longest, max(self.prefill) + 1, self.repeated_prompt + self.repeated) + 1


ON_A_GPU = Lengths(
    prefill=(2048, 16384),
    decode=(2048, 16384, 65536),
    decoded=64,
    chunk=4096,
    repeated_prompt=300,
    repeated=16,
    timed_step=2048,
    rounds=8,
    copy_bytes=2 << 30,
    loaded_layers=4,
)
SIMULATED = Lengths(
    prefill=(9, 20),
    decode=(9, 40),
    decoded=2,
    chunk=16,
    repeated_prompt=5,
    repeated=2,
    timed_step=4,
    rounds=1,
    copy_bytes=1 << 20,
    loaded_layers=1,
)
