"""Block formats and roundings, in NumPy."""
