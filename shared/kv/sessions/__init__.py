"""Named chat sessions on disk."""
