"""Directional steering: what is taken out of a block's output, and how such directions are found."""
