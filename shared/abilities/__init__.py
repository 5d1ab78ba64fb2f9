"""What the embedded model is to be able to do: cases of each ability, run and judged."""
