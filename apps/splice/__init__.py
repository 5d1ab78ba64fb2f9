"""`ds4 splice`: a model file of mixed layers from two."""
