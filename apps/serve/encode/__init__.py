"""What clients get: one thin encoder for each dialect over the same turn events."""
