"""Which operations run as kernels on this machine: where there is Metal, those that proved themselves.

Must not know: what kernels compute, sessions.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import platformdirs

from ds4mlx.kernels.kernel import Maker
from ds4mlx.kernels.proof import Verdict, verdicts
from ds4mlx.kernels.registry import OPERATIONS, digest

# Names of operations with commas between them, or EVERYTHING: those run as plain operations.
SWITCH = "DS4_KERNELS_OFF"
EVERYTHING = "all"


@dataclass(frozen=True, slots=True)
class KernelStatus:
    """How one operation is computed here: by its kernels, or by its fallback for the `reason` given. Wanted
    is False where nothing else could be expected: no Metal, or switched off."""

    operation: str
    status: Literal["kernel", "fallback"]
    reason: str
    wanted: bool


class KernelChoice:
    """`maker(operation)` makes the operation's kernels, None where its fallback has to do. `unknown` are
    names that were to be switched off and that no operation has."""

    def __init__(self, statuses: list[KernelStatus], make: Maker | None, unknown: Sequence[str] = ()) -> None:
        self.statuses = statuses
        self.unknown = list(unknown)
        self._make = make
        self._trusted = {found.operation for found in statuses if found.status == "kernel"}

    def maker(self, operation: str) -> Maker | None:
        return self._make if operation in self._trusted else None

    def warnings(self) -> list[str]:
        """A line about kernels that should run here and do not, and one about names that mean nothing."""
        return [line for line in (self._failed(), self._misnamed()) if line]

    def _failed(self) -> str | None:
        failed = [found for found in self.statuses if found.status == "fallback" and found.wanted]
        if not failed:
            return None
        names = "; ".join(f"{found.operation}: {found.reason}" for found in failed)
        return (
            f"kernels failed their check on this device ({names}); "
            "slower plain operations are used: see ds4 doctor"
        )

    def trusted(self) -> list[str]:
        """Operations that run as kernels."""
        return [found.operation for found in self.statuses if found.status == "kernel"]

    def only(self, operation: str) -> KernelChoice:
        """This choice with all other operations' kernels left out."""
        return self.without({name: "left out" for name in self.trusted() if name != operation})

    def without(self, reasons: Mapping[str, str]) -> KernelChoice:
        """This choice with some operations' kernels left out, each for its reason."""
        statuses = [
            KernelStatus(found.operation, "fallback", reasons[found.operation], True)
            if found.operation in reasons
            else found
            for found in self.statuses
        ]
        return KernelChoice(statuses, self._make, self.unknown)

    def _misnamed(self) -> str | None:
        if not self.unknown:
            return None
        return (
            f"{SWITCH} names no operation with {', '.join(map(repr, self.unknown))}: "
            f"write {EVERYTHING}, or some of {', '.join(OPERATIONS)}"
        )


def choose_kernels(
    mx: Any,
    environment: Mapping[str, str] | None = None,
    prove: Callable[[Maker, Path], list[Verdict]] = verdicts,
    cache: Path | None = None,
) -> KernelChoice:
    """For MLX's default device. `cache` is the folder of kept verdicts, by default the user's."""
    switched = (os.environ if environment is None else environment).get(SWITCH, "")
    off = {name for part in switched.split(",") if (name := part.strip())}
    unknown = sorted(off - {EVERYTHING, *OPERATIONS})
    if not mx.metal.is_available() or mx.default_device() == mx.Device(mx.cpu):
        return _without("there is no Metal here", unknown)
    if EVERYTHING in off:
        return _without(f"switched off by {SWITCH}", unknown)
    folder = Path(platformdirs.user_cache_dir("ds4", appauthor=False)) if cache is None else cache
    found = prove(mx.fast.metal_kernel, folder / "kernels" / f"{_machine_digest(mx)}.json")
    statuses = [_status(verdict, verdict.operation in off) for verdict in found]
    return KernelChoice(statuses, mx.fast.metal_kernel, unknown)


def _without(reason: str, unknown: Sequence[str]) -> KernelChoice:
    return KernelChoice([KernelStatus(name, "fallback", reason, False) for name in OPERATIONS], None, unknown)


def _status(verdict: Verdict, off: bool) -> KernelStatus:
    if off:
        return KernelStatus(verdict.operation, "fallback", f"switched off by {SWITCH}", False)
    if verdict.failure is not None:
        return KernelStatus(verdict.operation, "fallback", verdict.failure, True)
    return KernelStatus(verdict.operation, "kernel", "", True)


def _machine_digest(mx: Any) -> str:
    """Of what could change a verdict."""
    device = sorted((key, str(value)) for key, value in mx.device_info().items())
    system = (platform.platform(), mx.__version__)
    return hashlib.sha256(repr((device, system, digest())).encode()).hexdigest()[:32]
