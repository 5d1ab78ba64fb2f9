"""`ds4 chat`: one conversation in the terminal, one-shot answers, and the engine's diagnostics."""
