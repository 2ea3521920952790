"""One field of Burgers' equation in two stages, and patterns of its sensors: Figures 6 and 7.

The models are those that come with the package; the field is a held-out test sample.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from lno.data import Fields
from lno.data.observe import Intervals, Pattern, RandomRatio
from lno.experiments.datasets import protocol_of
from lno.experiments.inverse import SENSORS, STEPS, at_the_ends
from lno.experiments.presets import RATIOS, WINDOW
from lno.files import replacing
from lno.problems import PROBLEMS
from lno.problems.make import make as make_samples
from lno.reconstruct import PRETRAINED, Reconstructor
from lno.report.stages import load_stages, observation_patterns, two_stages
from lno.report.tables import MISSING, Table

PATTERNS: dict[str, Pattern] = {
    **{f"{100 * ratio:g} %, random": RandomRatio(ratio) for ratio in RATIOS},
    **{f"grid of interval {step}": Intervals((step, step)) for step in STEPS},
}
RECONSTRUCTED = ("1 %, random", "grid of interval 16")
SAMPLE = 10  # of the test samples: one that has both signs
COMMAND = "lno reproduce stages"


def path_of(results: Path) -> Path:
    """The file in the ledger."""
    return results / "burgers" / "lno" / "stages.npz"


def held_out_sample() -> Fields:
    """One of the test samples, made without the others."""
    protocol = protocol_of("burgers")
    problem = PROBLEMS["burgers"](**protocol.parameters)
    return make_samples(problem, 1, first=protocol.train + protocol.test // 2 + SAMPLE)


def sensors_of(pattern: Pattern, sample: Fields) -> np.ndarray:
    """The numbers of the observed points among those of the whole field."""
    t = np.asarray(sample.x_query)[:, sample.names["x"].index(WINDOW.coordinate)]
    inside = np.flatnonzero((t >= WINDOW.low) & (t <= WINDOW.high))
    grid = sample.grid
    assert grid is not None
    window = (len(inside) // grid[1], grid[1])
    real, generator = torch.ones(1, len(inside), dtype=torch.bool), torch.Generator()
    index, mask = pattern.draw(real, window, generator.manual_seed(SENSORS))
    return inside[np.sort(index[0][mask[0]].numpy())]


def make(
    results: Path, folder: Path = PRETRAINED, device: str = "auto", sample: Fields | None = None
) -> None:
    """Reconstruct the field from some patterns and write the file."""
    whole = held_out_sample() if sample is None else sample
    models = Reconstructor.load(folder, device)
    places, values = np.asarray(whole.x_query), np.asarray(whole.y)[0, :, 0]
    index = {name: sensors_of(pattern, whole) for name, pattern in PATTERNS.items()}
    ends = at_the_ends(whole).numpy()
    window = WINDOW.contains(places, whole.names["x"])
    fields, errors = [], []
    for name in RECONSTRUCTED:
        seen = index[name]
        with warnings.catch_warnings():  # that grids are not what bounds were calibrated for
            warnings.simplefilter("ignore")
            found = models(places[seen], values[seen, None])
        difference = np.abs(found.mean.ravel() - values)
        fields.append(found.mean)
        errors.append(
            [difference[where].mean() / np.abs(values[where]).mean() for where in (window, ends)]
        )
    t, x = models.axes()
    inside, at_ends = np.array(errors, np.float32).T
    with replacing(path_of(results)) as temporary, temporary.open("wb") as file:
        np.savez_compressed(
            file,
            allow_pickle=False,
            truth=values.reshape(models.grid).astype(np.float32),
            t=t.astype(np.float32),
            x=x.astype(np.float32),
            window=np.array((WINDOW.low, WINDOW.high)),
            patterns=np.array(list(PATTERNS)),
            fields=np.array(fields, np.float16),
            reconstructed=np.array([list(PATTERNS).index(name) for name in RECONSTRUCTED]),
            inside=inside,
            ends=at_ends,
            **{f"index_{k}": found for k, found in enumerate(index.values())},
        )


def table(results: Path) -> Table:
    """Errors of the field that is pictured."""
    title = "One field in two stages"
    header = ["sensors", "number", "inside the window", "at t = 0 and t = 1"]
    if not path_of(results).exists():
        return Table(
            title, header, [[name, *[MISSING] * 3] for name in RECONSTRUCTED], [f"`{COMMAND}`"]
        )
    found, rows = load_stages(path_of(results)), []
    for k, inside, ends in zip(found["reconstructed"], found["inside"], found["ends"], strict=True):
        count = len(found[f"index_{k}"])
        errors = (f"{100 * error:.2f} %" for error in (inside, ends))
        rows.append([str(found["patterns"][k]), f"{count:,}", *errors])
    note = (
        "Relative MAE of one held-out field of Burgers' equation, by the models that come with the "
        f"package. `{COMMAND}`"
    )
    return Table(title, header, rows, [note])


def figures(results: Path) -> list[tuple[str, Figure]]:
    """Patterns of sensors and the two stages, with what they show; none where there is no file."""
    path = path_of(results)
    if not path.exists():
        return []
    patterns = (
        "Burgers' equation is observed between the dashed lines: at a random share of the points "
        "there, or on a grid of them (Figures 6 and 7 of the paper)."
    )
    stages = (
        "Two stages: a completer reconstructs the field between the dashed lines from the sensors, "
        "a propagator extrapolates it to all times. Models shipped with the package."
    )
    return [(patterns, observation_patterns(path)), (stages, two_stages(path))]
