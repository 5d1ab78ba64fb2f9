"""Runs Metal and CUDA kernels on the CPU, one fiber a GPU thread, and finds their mistakes."""

from tests.ksim.kernels_on_cpu import KernelError, RawKernel, RawModule, clang_missing, metal_kernel

__all__ = ["KernelError", "RawKernel", "RawModule", "clang_missing", "metal_kernel"]
