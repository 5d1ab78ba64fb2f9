"""`ds4 bench`: speed over growing contexts."""
