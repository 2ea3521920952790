"""Coverage of the bounds of `lno reconstruct` for sensors unlike those of the calibration.

    python benchmarks/bounds.py [--samples 8]

New fields of Burgers' equation, observed by sensors at random places, at few places, at few times,
in half of the domain, and with errors. Bounds of 90 % should contain 90 % of the points on average
over fields. Takes some minutes on one CPU core; writes results/benchmarks/bounds.json.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from lno import Reconstructor
from lno.files import write_json
from lno.problems import Burgers
from lno.problems.make import make
from lno.training.device import hardware, one_thread

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "bounds.json"
SEED = 99  # of the fields: neither trained nor calibrated on
Choice = Callable[[np.random.Generator, np.ndarray], np.ndarray]


def at_random(count: int) -> Choice:
    return lambda random, inside: random.permutation(inside.ravel())[:count]


CASES: dict[str, tuple[Choice, float]] = {
    "82 at random": (at_random(82), 0.0),
    "512 at random": (at_random(512), 0.0),
    "8 places, 64 times": (lambda random, inside: inside[:, ::16].ravel(), 0.0),
    "128 places, 4 times": (lambda random, inside: inside[::16].ravel(), 0.0),
    "200 in half of the domain": (
        lambda random, inside: random.permutation(inside[:, :64].ravel())[:200],
        0.0,
    ),
    "82 at random, errors of 0.02": (at_random(82), 0.02),
    "82 at random, errors of 0.1": (at_random(82), 0.1),
    "410 at random, errors of 0.1": (at_random(410), 0.1),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=8)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # sensors in half of the domain are out of distribution
    reconstructor = Reconstructor.load(device="cpu")
    calibration = reconstructor.calibration
    assert calibration is not None
    fields = make(Burgers(), samples=options.samples, seed=SEED)
    x, y = np.asarray(fields.x), np.asarray(fields.y)
    early, late = reconstructor.completer.labels.low[0], reconstructor.completer.labels.high[0]
    rows = (reconstructor.axes()[0] >= early) & (reconstructor.axes()[0] <= late)
    inside = np.arange(rows.size * 128).reshape(rows.size, 128)[rows]
    measured = []
    with one_thread():
        for name, (choose, noise) in CASES.items():
            random = np.random.default_rng(0)
            shares, errors, effective, flagged = [], [], [], []
            for field in y:
                chosen = choose(random, inside)
                u = field[chosen] + noise * random.standard_normal((len(chosen), 1))
                found, truth = reconstructor(x[chosen], u, noise), field.reshape(rows.size, 128)
                covered = (found.lower <= truth) & (truth <= found.upper)
                shares.append([covered[rows].mean(), covered[~rows].mean()])
                errors.append(np.abs(found.mean - truth)[rows].mean() / np.abs(truth[rows]).mean())
                effective.append(reconstructor.effective_sensors(x[chosen]))
                flagged.append(found.flagged)
            within, beyond = np.mean(shares, axis=0)
            measured.append(
                {
                    "sensors": name,
                    "effective_sensors": float(np.mean(effective)),
                    "inside": float(within),
                    "outside": float(beyond),
                    "relative_mae": float(np.mean(errors)),
                    "flagged": float(np.mean(flagged)),
                }
            )
            shown = (100 * share for share in (within, beyond, np.mean(flagged)))
            print("{}: {:.0f} % inside, {:.0f} % outside, {:.0f} % flagged".format(name, *shown))
            result = {"rows": measured, "samples": len(y), "level": calibration.level}
            write_json(RESULT, {**result, "hardware": hardware(reconstructor.completer.device)})


if __name__ == "__main__":
    main()
