"""`ds4 kv`: look at saved states, check them and clean them up."""
