"""`ds4 eval`: questions with known answers."""
