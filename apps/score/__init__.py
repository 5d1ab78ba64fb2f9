"""`ds4 score`: how well a model predicts given continuations."""
