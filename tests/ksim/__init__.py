"""Runs Metal and CUDA kernels on the CPU, one fiber a GPU thread, and finds their mistakes.

It proves logic, indexing and synchronisation; neither that Apple's compiler takes a kernel nor its speed.
"""

from tests.ksim.cuda import RawKernel, RawModule
from tests.ksim.errors import KernelError
from tests.ksim.metal import metal_kernel
from tests.ksim.toolchain import clang_missing

__all__ = ["KernelError", "RawKernel", "RawModule", "clang_missing", "metal_kernel"]
