"""The long-context story test: a story with facts in it, and what must be recalled of them."""
