"""The partial differential equations: one file each, with its random inputs and its solver."""

from lno.problems.burgers import Burgers

PROBLEMS = {"burgers": Burgers}

__all__ = ["PROBLEMS", "Burgers"]
