"""What the latent positions of trained operators look at, in the encoder and in the decoder.

A latent position reads a weighted mean over the points, and a point reads a weighted mean over the
latent positions. Both are pictured for a few positions and counted for all: the effective number of
points, or of positions, is the exponential of the entropy of their weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure

from lno.data import Fields
from lno.experiments.ablations import paper_run
from lno.experiments.queue import train_operators
from lno.experiments.runs import RunSpec
from lno.files import replacing
from lno.operator import Operator
from lno.problems import PROBLEMS
from lno.report.positions import load_positions, position_maps
from lno.report.tables import MISSING, Table
from lno.training.precision import matmul_precision

SPECS: tuple[RunSpec, ...] = tuple(map(paper_run, ("darcy", "airfoil", "elasticity")))
SEED = 0
SHOWN = 6  # latent positions in a picture
SAMPLE = 0  # of the test samples


def path_of(spec: RunSpec, results: Path) -> Path:
    """The file beside the run."""
    return spec.path(results, SEED).with_name(f"{spec.name(SEED)}-positions.npz")


def missing(results: Path, specs: Sequence[RunSpec] | None = None) -> list[RunSpec]:
    """The specs that have no file."""
    return [spec for spec in specs or SPECS if not path_of(spec, results).exists()]


def make(
    results: Path,
    specs: Sequence[RunSpec],
    device: str = "auto",
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Write the files of specs; operators that are not in the cache are retrained."""
    for spec in specs:
        [operator] = train_operators(spec, [SEED], device, say)
        *_, test = spec.samples(device)
        save(path_of(spec, results), operator, test.subset([SAMPLE]), spec.problem)


def weights_of(
    operator: Operator, sample: Fields
) -> tuple[Float[np.ndarray, "n m"], Float[np.ndarray, "q m"]]:
    """How much each latent position reads of each point, and each query point of each of them.

    Args:
        operator: its first member is asked.
        sample: one sample.
    """
    if not operator.model.has_latents:
        raise ValueError(
            f"{operator.kind} has no latent positions: expected a model that has, like lno"
        )
    task = operator.task
    prepared = task.prepare(sample)
    batch = task.observe(prepared.batch([0]), prepared.grid, torch.Generator().manual_seed(0))
    ready = task.model_input(operator.normalizers.encode(batch)).to(operator.device)
    with torch.inference_mode(), matmul_precision("fp32"):
        model = operator.model.eval()
        both = model.latent_weights(ready.x, ready.inputs, ready.x_query, ready.mask)
    read, write = (weights[0].double().cpu().numpy() for weights in both)
    return read, write


def effective(weights: Float[np.ndarray, "a b"]) -> Float[np.ndarray, " a"]:
    """How many of b are read in each of the rows, which sum to one: the exponential of the entropy.

    >>> effective(np.array([[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0, 0]])).round(6)
    array([4., 2.])
    """
    logarithms = np.log(np.where(weights > 0, weights, 1.0))
    return np.exp(-(weights * logarithms).sum(-1))


def typical(
    read: Float[np.ndarray, "n m"], write: Float[np.ndarray, "q m"], count: int = SHOWN
) -> Int[np.ndarray, " k"]:
    """Latent positions that are much read, and read different parts of the input.

    The most read one; then again and again, among the half that is read more, the one that differs
    most from all chosen ones. They differ by the share of their weights that is on other points.
    """
    used = write.sum(0)
    able = np.argsort(-used, kind="stable")[: max(count, len(used) // 2)]
    chosen = [int(able[0])]
    distance = np.full(len(able), np.inf)
    for _ in range(min(count, len(able)) - 1):
        apart = np.abs(read[:, able] - read[:, chosen[-1:]]).sum(0) / 2
        distance = np.minimum(distance, apart)
        chosen.append(int(able[distance.argmax()]))
    return np.array(chosen)


def save(path: Path, operator: Operator, sample: Fields, problem: str) -> None:
    """Write what latent positions look at in one sample; see `lno.report.positions`."""
    read, write = weights_of(operator, sample)
    prepared = operator.task.prepare(sample)
    if not prepared.same_points:
        raise ValueError("expected queries at the observed points, to draw both in one picture")
    places, view = prepared.geometry_of(0), PROBLEMS[problem].view if problem in PROBLEMS else None
    seen = np.arange(len(places))
    if view is not None:  # others would leave a picture of that part empty
        left, right, bottom, top = view
        inside = (places >= (left, bottom)) & (places <= (right, top))
        seen = np.flatnonzero(inside.all(1))
    chosen = typical(read[seen], write[seen])
    [names] = (prepared.geometry or {"x": prepared.names["x"][: prepared.space]}).values()
    arrays: dict[str, Any] = {
        "read": (read[:, chosen].T * len(read)).astype(np.float16),
        "write": write[:, chosen].T.astype(np.float16),
        "chosen": chosen,
        "first": write.argmax(1).astype(np.uint16),
        "effective_points": (effective(read.T) / len(read)).astype(np.float32),
        "effective_latents": effective(write).astype(np.float16),
        "positions": places.astype(np.float32),
        "names_positions": np.array(names),
        "grid": np.array(prepared.grid or (), np.int64),
    }
    if (cells := prepared[0].cells) is not None:
        arrays["cells"] = np.asarray(cells, np.int32)
    if view is not None:
        arrays["view"] = np.array(view)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def table(results: Path, specs: Sequence[RunSpec] | None = None) -> Table:
    """How far latent positions look, of all of them."""
    rows = []
    for spec in specs or SPECS:
        label = f"{spec.problem}, {spec.epochs} epochs"
        if not path_of(spec, results).exists():
            rows.append([label, *[MISSING] * 4])
            continue
        found = load_positions(path_of(spec, results))
        share = 100 * found["effective_points"]
        many = found["effective_latents"].astype(np.float32)
        ranges = [
            f"{np.median(v):.2g}{unit} ({v.min():.2g} to {v.max():.2g})"
            for v, unit in ((share, " %"), (many, ""))
        ]
        rows.append([label, str(len(share)), *ranges, str(len(np.unique(found["first"])))])
    header = [
        "LNO",
        "latent positions",
        "points a position attends to",
        "positions a point attends to",
        "positions with the largest weight at some point",
    ]
    note = (
        "Effective numbers, the exponential of the entropy of the attention weights: median "
        "(minimum to maximum). Points as a share of all. One test sample, seed 0. `lno reproduce "
        "positions`"
    )
    return Table("What the latent positions attend to", header, rows, [note])


def figures(results: Path) -> list[tuple[str, Figure]]:
    """A picture for each problem that has a file, with what it shows."""
    drawn = []
    for spec in SPECS:
        if path_of(spec, results).exists():
            name = PROBLEMS[spec.problem].title
            caption = (
                f"{name}: what latent positions look at. Left: the position that each point reads "
                "most of, in its colour, and how many it reads. Right: some positions; above, what "
                "they read of the input, as a multiple of the mean over the points, and below, how "
                "much of them is read where."
            )
            drawn.append((caption, position_maps(path_of(spec, results), name)))
    return drawn
