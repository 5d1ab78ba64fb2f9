"""`ds4 vectors`: recorded numbers of a model, checked and made."""
