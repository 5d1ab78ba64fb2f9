"""`ds4 serve`: the HTTP server around one engine."""
