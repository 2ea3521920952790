"""Nodes of a unit square with a hole somewhere else than in the data, as a table.

python examples/square_with_hole.py holed_poisson.npz --corner 0.33 0.42 --out new_domain.csv

The domains of holed_poisson.npz have one mesh, which is moved with the hole. Its nodes are moved on
here: they are interpolated between the domains whose holes are next to the new one. With
--scattered, the same domain gets nodes at random places, as from another mesh generator.
"""

import argparse

import numpy as np
from scipy.interpolate import RegularGridInterpolator

SIZE = 0.3  # of the hole

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("data", help="holed_poisson.npz")
parser.add_argument("--corner", nargs=2, type=float, default=(0.33, 0.42), help="lower left, x y")
parser.add_argument("--scattered", action="store_true")
parser.add_argument("--out", default="new_domain.csv")
chosen = parser.parse_args()

with np.load(chosen.data) as file:
    nodes, corners = file["positions"], file["parameters"]
sides = [np.unique(corners[:, k]) for k in (0, 1)]
order = np.lexsort((corners[:, 1], corners[:, 0]))  # the first coordinate varies slowest
domains = nodes[order].reshape(len(sides[0]), len(sides[1]), *nodes.shape[1:])
new = RegularGridInterpolator(sides, domains)(chosen.corner)[0]

if chosen.scattered:
    random = np.random.default_rng(0)
    anywhere = random.uniform(size=(20 * len(new), 2))
    inside = (np.abs(anywhere - chosen.corner - SIZE / 2) < SIZE / 2).all(1)
    s, zero = random.uniform(size=(len(new) // 32, 1)), np.zeros((len(new) // 32, 1))
    square = np.concatenate(
        [np.hstack(edge) for edge in ((s, zero), (s, zero + 1), (zero, s), (zero + 1, s))]
    )
    boundary = np.concatenate((square, chosen.corner + SIZE * square))
    new = np.concatenate((boundary, anywhere[~inside][: len(new) - len(boundary)]))

np.savetxt(chosen.out, new, "%.6f", ",", header="x,y", comments="")
print(f"wrote {chosen.out}: {len(new)} nodes")
