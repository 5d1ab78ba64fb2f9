"""The bytes of a saved session."""
