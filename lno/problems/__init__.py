"""The partial differential equations: one file each, with its random inputs and its solver."""

from lno.problems.burgers import Burgers
from lno.problems.darcy import Darcy
from lno.problems.ns2d import NS2d

PROBLEMS = {"burgers": Burgers, "darcy": Darcy, "ns2d": NS2d}

__all__ = ["PROBLEMS", "Burgers", "Darcy", "NS2d"]
