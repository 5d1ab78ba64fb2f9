"""Our own GGUF reader and writer."""
