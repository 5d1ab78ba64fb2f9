"""Launches a compiled kernel: the Python side of runtime/.

Launches are made one at a time. Each is deterministic: only the seed decides in which order threads run.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.ksim.build import KernelLibrary, kernel_library, runtime_library
from tests.ksim.errors import KernelError

CUDA, FULL, FLUSHES_SUBNORMALS = 1, 2, 4
READ_ONLY, WRITABLE = 0, 1
METAL_THREADGROUP_MEMORY = 32 * 1024
CUDA_STATIC_SHARED_MEMORY = 48 * 1024


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("source", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("mode", ctypes.c_uint32),
        ("argument", ctypes.c_uint32),
        ("data", ctypes.c_void_p),
        ("host", ctypes.c_void_p),
    )


# What a launch counts; shared: bytes of threadgroup memory.
COUNTERS = ("switches", "barriers", "warp_collectives", "threads", "shared")


class _Launch(ctypes.Structure):
    _fields_ = (
        ("entry", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("buffers", ctypes.c_void_p),
        ("buffer_count", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("grid", ctypes.c_uint32 * 3),
        ("threadgroup", ctypes.c_uint32 * 3),
        ("dynamic_shared", ctypes.c_uint32),
        ("shared_limit", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("switch_limit", ctypes.c_uint64),
        ("deadline", ctypes.c_double),
        ("counters", ctypes.c_uint64 * len(COUNTERS)),
        ("fail_offset", ctypes.c_uint64),
        ("error", ctypes.c_char * 768),
    )


@dataclass(slots=True)
class Limits:
    """When a kernel counts as stuck: seconds of processor time and thread switches, in one launch."""

    deadline: float = float(os.environ.get("KSIM_DEADLINE", "120"))
    switches: int = 1_000_000_000


@dataclass(slots=True)
class Counts:
    """What the last launch did, and what all launches of this process took (with the copies in)."""

    launches: int = 0
    seconds: float = 0.0
    last: list[int] = field(default_factory=list)

    def of_last(self, name: str) -> int:
        """One of COUNTERS, of the last launch."""
        return self.last[COUNTERS.index(name)]


limits = Limits()
counts = Counts()
_lock = threading.RLock()


@contextmanager
def limited(*, deadline: float | None = None, switches: int | None = None) -> Iterator[None]:
    """Changes the limits for a while."""
    before = limits.deadline, limits.switches
    limits.deadline = before[0] if deadline is None else deadline
    limits.switches = before[1] if switches is None else switches
    try:
        yield
    finally:
        limits.deadline, limits.switches = before


@functools.cache
def _runtime() -> ctypes.CDLL:
    runtime = ctypes.CDLL(str(runtime_library()), mode=ctypes.RTLD_GLOBAL)
    runtime.ksim_launch.argtypes = [ctypes.c_void_p]
    runtime.ksim_release.argtypes = []
    return runtime


@dataclass(frozen=True, slots=True)
class Place:
    """A buffer of a kernel: its name in errors, its argument's index, whether the kernel may write it."""

    name: str
    argument: int
    writable: bool


class Plan:
    """A kernel with the places of its buffers, ready to be launched again and again."""

    def __init__(
        self, kernel: KernelLibrary, entry: str, places: Sequence[Place], arguments: int, flags: int
    ) -> None:
        # A kernel's library needs the executor's symbols, so that one is loaded first (build_kernel).
        self.path = kernel.path
        self.places = tuple(places)
        self.arguments = (ctypes.c_void_p * max(arguments, 1))()
        self._buffers = (_Buffer * max(len(places), 1))()
        for buffer, place in zip(self._buffers, places, strict=False):
            buffer.name = place.name.encode()
            buffer.mode = WRITABLE if place.writable else READ_ONLY
            buffer.argument = place.argument
        self._launch = _Launch()
        self._launch.entry = ctypes.cast(getattr(kernel.library, entry), ctypes.c_void_p)
        self._launch.arguments = ctypes.addressof(self.arguments)
        self._launch.buffers = ctypes.addressof(self._buffers)
        self._launch.buffer_count = len(places)
        self._launch.flags = flags

    @contextmanager
    def launched(
        self,
        sources: Sequence[tuple[int | None, int]],
        grid: Sequence[int],
        threadgroup: Sequence[int],
        *,
        seed: int,
        shared_limit: int,
        dynamic_shared: int = 0,
    ) -> Iterator[list[int]]:
        """Runs the kernel; inside the block its buffers can still be read.

        Args:
            sources: for each place an address to copy from (None: 0xFF bytes) and the size in bytes.
            grid: Metal: threads; CUDA: blocks.
            threadgroup: threads in each.
            seed: 0 runs threads in order, another number in an order of its own.
            shared_limit: bytes of threadgroup memory a kernel may declare.
            dynamic_shared: bytes of CUDA's dynamic shared memory.

        Yields:
            The address of each buffer's contents after the run.

        Raises:
            KernelError: the kernel did something wrong.
        """
        runtime, launch = _runtime(), self._launch
        with _lock:
            for buffer, (source, size) in zip(self._buffers, sources, strict=False):
                buffer.source, buffer.size = source, size
            launch.grid[:] = grid
            launch.threadgroup[:] = threadgroup
            launch.seed, launch.shared_limit, launch.dynamic_shared = seed, shared_limit, dynamic_shared
            launch.deadline, launch.switch_limit = limits.deadline, limits.switches
            started = time.perf_counter()
            try:
                failed = runtime.ksim_launch(ctypes.byref(launch))
                counts.launches += 1
                counts.seconds += time.perf_counter() - started
                counts.last = launch.counters[:]
                if failed:
                    where = _source_line(self.path, launch.fail_offset) if launch.fail_offset else ""
                    raise KernelError(launch.error.decode(errors="replace") + where)
                yield [buffer.host for buffer in self._buffers[: len(self.places)]]
            finally:
                runtime.ksim_release()


@functools.cache
def _source_line(library: Path, offset: int) -> str:
    """Says " at file:line" of an instruction: the kernel's own line where a header's function was inlined."""
    tools = map(shutil.which, ("llvm-symbolizer-19", "llvm-symbolizer", "addr2line"))
    tool = next((path for path in tools if path), None)
    if tool is None:
        return ""
    command = [tool, "-i", "-e", str(library), hex(offset - 1)]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    places = [line.rsplit("/", 1)[-1] for line in lines if re.search(r":[1-9]", line)]
    own = [place for place in places if re.match(r"(kernel|header)\.", place)]
    found = (own or places)[:1]
    return f" at {':'.join(found[0].split(':')[:2])}" if found else ""


def build_kernel(source: str, language: str, check: str) -> KernelLibrary:
    """build.kernel_library, with the executor that the kernel's library calls loaded first."""
    _runtime()
    return kernel_library(source, language, check)
