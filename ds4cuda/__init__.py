"""The CUDA backend: kernels launched through CuPy behind the same Engine and Session protocols.

CuPy is imported only when this backend is chosen. The package may import `shared`, never `apps` or `ds4mlx`.
"""
