"""Whether this backend can run here: CuPy, a driver that is new enough, a GPU that is, the run-time compiler.

CuPy is imported inside functions only. Must not know: models.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

OLDEST_COMPUTE = 80
OLDEST_DRIVER = 12000  # as CUDA counts versions: CUDA 12.0
# Compiled kernels, the stacks of threads, a margin.
_KEPT_BYTES = 512 << 20
_EXTRA = "install ds4 with its extra `cuda` (see docs/cuda.md)"

Import = Callable[[str], Any]


def why_unavailable(load: Import = import_module) -> str | None:
    """None if the backend can be opened here, else one line that says what is missing and what would help.
    `load` imports a module by its name."""
    try:
        cupy = load("cupy")
    except ImportError as error:
        return _without_cupy(error)
    try:
        return _lacking_hardware(cupy) or _lacking_compiler(load)
    except RuntimeError as error:
        return f"no NVIDIA GPU can be used here ({_one_line(error)}): install NVIDIA's driver"


def open_cupy() -> Any:
    """CuPy, once `why_unavailable` has nothing to say."""
    return import_module("cupy")


def device_name(cupy: Any) -> str:
    """The GPU's name and memory for people."""
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    name = properties["name"]
    text = name.decode() if isinstance(name, bytes) else str(name)
    return f"{text}, {properties['totalGlobalMem'] / 2**30:.0f} GiB"


def free_memory(cupy: Any) -> int:
    """Bytes of the GPU's memory that nobody uses, less what a driver and its caches still take."""
    free, _ = cupy.cuda.runtime.memGetInfo()
    return max(0, int(free) - _KEPT_BYTES)


def _lacking_hardware(cupy: Any) -> str | None:
    driver = cupy.cuda.runtime.driverGetVersion()
    if not driver:
        return "NVIDIA's driver is not installed: install it, or use another backend"
    if driver < OLDEST_DRIVER:
        return f"NVIDIA's driver is too old (CUDA {_version(driver)}): install one for CUDA 12 or later"
    if not cupy.cuda.runtime.getDeviceCount():
        return "NVIDIA's driver finds no GPU: use another backend"
    compute = int(cupy.cuda.Device().compute_capability)
    if compute < OLDEST_COMPUTE:
        return f"this GPU is too old (compute capability {compute / 10}): 8.0 (Ampere) or later is needed"
    return None


def _lacking_compiler(load: Import) -> str | None:
    try:
        load("cupy_backends.cuda.libs.nvrtc").getVersion()
    except (ImportError, OSError, RuntimeError) as error:
        return f"NVIDIA's run-time compiler (NVRTC) cannot be loaded ({_one_line(error)}): {_EXTRA}"
    return None


def _without_cupy(error: ImportError) -> str:
    if getattr(error, "name", None) == "cupy":
        return f"CuPy is not installed: {_EXTRA}; an NVIDIA GPU and its driver are needed too"
    return f"CuPy cannot be imported ({_one_line(error)}): {_EXTRA}"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
