"""Constrained decoding: which tokens a turn may go on with, so that its answer has the form asked for."""
