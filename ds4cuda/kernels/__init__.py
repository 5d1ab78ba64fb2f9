"""Kernels of the CUDA backend, one folder each: a launcher with the contract, and `.cu` sources.

A kernel's NumPy counterpart stands in the tests, which run every kernel against it.
"""
