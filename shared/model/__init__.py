"""The model: its shape, files, memory, and the NumPy reference."""
