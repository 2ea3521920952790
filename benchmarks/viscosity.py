"""Fields of another viscosity: how many are flagged, and what bounds contain of the others.

    python benchmarks/viscosity.py [--samples 128] [--device cpu]

The models that come with the package are for Burgers' equation with ν = 0.01. Fields of other
viscosities have the same initial values and are observed at the same random places. Over those that
are not flagged as out of distribution, bounds of 90 % should still contain 80 % of the points.
Takes about ten minutes on one CPU core; writes results/benchmarks/viscosity.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from lno import RandomRatio, Reconstructor
from lno.calibration import flags
from lno.files import write_json
from lno.problems import Burgers
from lno.problems.make import make
from lno.training.device import hardware, one_thread

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "viscosity.json"
SEED = 7919  # of the fields: not used to train, to calibrate or to choose the method
TRAINED = 0.01
VISCOSITIES = (TRAINED, 0.005, 0.015, 0.02, 0.05, 0.1)
RATIOS = (0.005, 0.01)  # 41 and 82 sensors
FEWEST = 16  # fields that a mean is taken over; fewer count as none


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    reconstructor = Reconstructor.load(device=options.device)
    calibration = reconstructor.calibration
    assert calibration is not None
    rows = []
    with one_thread():
        for viscosity in VISCOSITIES:
            fields = make(Burgers(viscosity=viscosity), options.samples, SEED)
            for found in reconstructor.nonconformity(fields, [RandomRatio(r) for r in RATIOS]):
                flagged, limits = flags(found, calibration), calibration.at(found.sensors)
                contained = {
                    name: (getattr(found, name) <= getattr(limits, name)).mean(1)
                    for name in ("inside", "outside")
                }
                row = {
                    "viscosity": viscosity,
                    "sensors": found.sensors,
                    "flagged": float(flagged.mean()),
                    "not_flagged": int((~flagged).sum()),
                }
                enough = row["not_flagged"] >= FEWEST
                for name, shares in contained.items():
                    row[name] = float(shares[~flagged].mean()) if enough else None
                    row[f"{name}_all"] = float(shares.mean())
                for name in ("residual", "disagreement"):
                    median = np.median(getattr(found, name))
                    row[name] = float(median / getattr(limits, name))
                rows.append(row)
                print(row, flush=True)
            result = {"rows": rows, "samples": options.samples, "level": calibration.level}
            result |= {"trained": TRAINED, "fewest": FEWEST}
            write_json(RESULT, {**result, "hardware": hardware(reconstructor.completer.device)})


if __name__ == "__main__":
    main()
