"""The HTTP endpoints: parse, hand a turn to the worker, encode what comes back."""
