"""How good a model's answers are: scored texts, recorded vectors, graded questions."""
