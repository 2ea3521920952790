"""Numerical methods and grids that several problems share."""
