"""What the bounds of `lno reconstruct` contain where sensors are not as those that calibrated them.

    python benchmarks/bounds.py [--samples 8]

Fields of Burgers' equation that no model was trained on, seen by sensors at random places, at few
places, at few times, in half of the domain, and with errors. A stated 90 % should contain 90 %.
Takes some minutes on one CPU core; writes results/benchmarks/bounds.json.
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
SEED = 99  # of the fields, with which nothing was made
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
    warnings.simplefilter("ignore")  # half of the domain is strange, and that is said
    whole = Reconstructor.load(device="cpu")
    fields = make(Burgers(), samples=options.samples, seed=SEED)
    x, y = np.asarray(fields.x), np.asarray(fields.y)
    early, late = whole.completer.labels.low[0], whole.completer.labels.high[0]
    rows = (whole.axes()[0] >= early) & (whole.axes()[0] <= late)
    inside = np.arange(rows.size * 128).reshape(rows.size, 128)[rows]
    told = []
    with one_thread():
        for name, (choose, noise) in CASES.items():
            random = np.random.default_rng(0)
            shares, errors, worth = [], [], []
            for field in y:
                chosen = choose(random, inside)
                u = field[chosen] + noise * random.standard_normal((len(chosen), 1))
                found, truth = whole(x[chosen], u, noise), field.reshape(rows.size, 128)
                contained = (found.lower <= truth) & (truth <= found.upper)
                shares.append([contained[rows].mean(), contained[~rows].mean()])
                errors.append(np.abs(found.mean - truth)[rows].mean() / np.abs(truth[rows]).mean())
                worth.append(whole.worth(x[chosen]))
            within, beyond = np.mean(shares, axis=0)
            told.append(
                {
                    "sensors": name,
                    "worth": float(np.mean(worth)),
                    "inside": float(within),
                    "outside": float(beyond),
                    "relative_mae": float(np.mean(errors)),
                }
            )
            print(f"{name}: {100 * within:.0f} % inside, {100 * beyond:.0f} % outside", flush=True)
            result = {"rows": told, "samples": len(y), "level": whole.calibration.level}
            write_json(RESULT, {**result, "hardware": hardware(whole.completer.device)})


if __name__ == "__main__":
    main()
