"""Stress around a hole of random shape, and the ten numbers that the shape is drawn from.

python examples/elasticity_parameters.py --samples 500 --out elasticity.npz

The radius of the hole is r(θ) = 0.2 + 0.2 / (1 + exp(g(θ))), so that g is the logarithm of the odds
(0.4 − r) / (r − 0.2). It is a sum of a_k (c_k cos kθ + s_k sin kθ) over k = 1, …, 5 with known
amplitudes a_k. The parameters are c_1, s_1, …, c_5, s_5, standard normal numbers.

The file holds the arrays positions (samples, 972, 2), sigma (samples, 972), parameters
(samples, 10) and cells, the quadrilaterals between the points, which all samples share. With --csv,
one more hole, the next of the sequence, is written as a table.
"""

import argparse

import numpy as np
import torch

from lno.problems import Elasticity
from lno.problems.make import generator, make

NAMES = [f"{wave}{k}" for k in range(1, 6) for wave in ("cos", "sin")]

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--samples", type=int, default=500)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", default="elasticity.npz")
parser.add_argument("--csv", help="a file for one more hole")
chosen = parser.parse_args()

problem, count = Elasticity(), chosen.samples
fields = make(problem, count + 1, chosen.seed)
redrawn = fields.provenance.get("redrawn", {})  # holes that were replaced; there should be none
parameters = np.stack(
    [problem.draw(generator(chosen.seed, k, redrawn.get(str(k), 0))) for k in range(count + 1)]
)

# The parameters determine the shape: from them alone, the mesh is that of the data.
nodes = torch.from_numpy(problem.nodes(parameters))
again = problem.sample(nodes, nodes)[0].numpy()
assert np.abs(again - fields.x).max() < 1e-6, "the parameters do not give these positions"

x, sigma = np.asarray(fields.x), np.asarray(fields.y)[..., 0]
np.savez_compressed(
    chosen.out,
    positions=x[:count],
    sigma=sigma[:count],
    parameters=parameters[:count].astype(np.float32),
    cells=fields.cells,
)
print(f"wrote {chosen.out}: {count} holes, {len(NAMES)} parameters, {x.shape[1]} points each")
if chosen.csv:
    known = np.repeat(parameters[count:], x.shape[1], axis=0)
    table = np.column_stack((x[count], known, sigma[count]))
    header = ",".join(("x", "y", *NAMES, "sigma"))
    np.savetxt(chosen.csv, table, "%.7g", ",", header=header, comments="")
    print(f"wrote {chosen.csv}: one more hole")
