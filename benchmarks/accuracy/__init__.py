"""Accuracy of the solvers, one file for each problem."""
