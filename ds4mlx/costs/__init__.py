"""What the operations of a step cost: counted from a model's shape, and timed on the device at hand.

Whoever runs a model needs none of it.
"""
