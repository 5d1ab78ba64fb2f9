"""`ds4 imatrix`: importances of the columns of expert matrices."""
