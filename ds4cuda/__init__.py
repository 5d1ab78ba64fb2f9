"""The CUDA backend: CuPy RawKernels behind the same Engine and Session protocols.

Its engine is not part of this version; `ds4 doctor` says so. The package keeps the place and the import
rules: it may import `shared`, never `apps` or `ds4mlx`.
"""
