"""The problems: one file each, with all there is to say about it."""

from collections.abc import Sequence
from pathlib import Path

from lno.data import Fields
from lno.data.published import read
from lno.problems.airfoil import Airfoil
from lno.problems.burgers import Burgers
from lno.problems.darcy import Darcy
from lno.problems.elasticity import Elasticity
from lno.problems.ns2d import NS2d
from lno.problems.pipe import Pipe
from lno.problems.plasticity import Plasticity
from lno.problems.problem import Problem, Protocol

PROBLEMS: dict[str, type[Problem]] = {
    "darcy": Darcy,
    "ns2d": NS2d,
    "airfoil": Airfoil,
    "elasticity": Elasticity,
    "plasticity": Plasticity,
    "pipe": Pipe,
    "burgers": Burgers,
}

__all__ = [
    "PROBLEMS",
    "Airfoil",
    "Burgers",
    "Darcy",
    "Elasticity",
    "NS2d",
    "Pipe",
    "Plasticity",
    "Problem",
    "Protocol",
    "read_published",
]


def read_published(
    name: str,
    paths: Sequence[str | Path],
    protocol: str = "standard",
    counts: tuple[int, int] | None = None,
) -> Fields:
    """Read the published files of a problem: training samples first, then test samples.

        fields = read_published("ns2d", ["NavierStokes_V1e-5_N1200_T20.mat"])
        train, test = fields.split(*fields.provenance["split"])

    Args:
        name: a key of `PROBLEMS`.
        paths: its files, in the order of `PROBLEMS[name].published[protocol].files`.
        protocol: a key of `PROBLEMS[name].published`: "standard" or "reference".
        counts: numbers of training and test samples, where they are not the protocol's.

    The provenance names the problem, the protocol, the files with their SHA-256, and the split.
    """
    readable = {key: problem for key, problem in PROBLEMS.items() if problem.published}
    if name not in readable:
        raise ValueError(f"expected a problem among {', '.join(readable)}, got {name!r}")
    layouts = readable[name].published
    if protocol not in layouts:
        raise ValueError(f"expected a protocol among {', '.join(layouts)}, got {protocol!r}")
    layout, chosen = layouts[protocol], readable[name].protocols[protocol]
    if counts is None:
        counts = layout.split or (chosen.train, chosen.test)
    return read(layout, paths, counts, problem=name, protocol=protocol)
