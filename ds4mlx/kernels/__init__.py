"""Custom Metal kernels of the forward pass, one folder an operation.

A folder holds the operation's contract (module docstring), its Metal text, a function `build` that makes
the launching function for one set of dimensions, and `fallback`, the same in plain array operations.
`headers/` has the Metal functions that several kernels share. See docs/kernels.md.
"""
