"""`ds4 pull`: fetch published model files."""
