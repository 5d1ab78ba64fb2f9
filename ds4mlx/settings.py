"""Everything about MLX that is set once for the whole process: its environment and its wired limit.

Must not know: models, sessions. `prepare_environment` has to run before MLX is first imported.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping, MutableMapping
from typing import Any

# Larger command buffers pay on the first four chip generations; later ones choose better by themselves.
BUFFER_SETTINGS = {"MLX_MAX_OPS_PER_BUFFER": "200", "MLX_MAX_MB_PER_BUFFER": "200"}
# Switches of the user's: off when unset, empty or 0.
NO_WIRED_LIMIT = "DS4_NO_WIRED"
NO_TOUCH = "DS4_NO_TOUCH"
_TUNED_CHIPS = re.compile(r"Apple M[1-4]\b")


def prepare_environment(environment: MutableMapping[str, str] | None = None, chip: str | None = None) -> None:
    """Set MLX's command-buffer sizes where they help (Apple M1 to M4). A value of the user's stays."""
    target = os.environ if environment is None else environment
    if _TUNED_CHIPS.match(_chip_name() if chip is None else chip):
        for name, value in BUFFER_SETTINGS.items():
            target.setdefault(name, value)


def set_wired_limit(mx: Any, needed: int, environment: Mapping[str, str] | None = None) -> int:
    """Keep `needed` bytes, those of the memory plan, resident on Metal; returns the limit that was set, 0 for
    none. To be called once, after the weights are there: what is made before the limit is set and gone again
    then never enters the resident set.

    Without it the system may page weights out between steps. Never more than the size that the device
    recommends, which MLX would refuse. Off where DS4_NO_WIRED is set, and where there is no Metal.
    """
    if _is_on(NO_WIRED_LIMIT, environment) or not mx.metal.is_available():
        return 0
    recommended = int(mx.device_info()["max_recommended_working_set_size"])
    limit = min(needed, recommended)
    mx.set_wired_limit(limit)
    return limit


def touches_weights(environment: Mapping[str, str] | None = None) -> bool:
    """Whether loading has the CPU read weights that stay in the mapped file: unless DS4_NO_TOUCH is set."""
    return not _is_on(NO_TOUCH, environment)


def _is_on(switch: str, environment: Mapping[str, str] | None) -> bool:
    return (os.environ if environment is None else environment).get(switch, "0") not in ("", "0")


def _chip_name() -> str:
    if platform.system() != "Darwin":
        return ""
    command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
