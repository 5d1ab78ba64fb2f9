"""The MLX backend: the model on Apple's array library, on Metal and on the CPU."""
