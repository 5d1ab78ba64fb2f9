"""The states that are in memory: what a prompt can go on from, and when they are saved."""
