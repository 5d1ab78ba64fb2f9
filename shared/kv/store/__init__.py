"""A directory of cache files: what to look for, what to keep, what to drop."""
