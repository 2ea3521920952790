"""`lno data make`, `lno data read` and `lno data info --plot`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lno.config import from_dict
from lno.data import Fields, published
from lno.files import require_folder
from lno.problems import PROBLEMS
from lno.problems.make import Problem, make_file
from lno.report import plots
from lno.training.device import pick_solver_device
from lno.training.progress import progress


def make_data(
    name: str,
    samples: int,
    out: str | Path,
    *,
    seed: int = 0,
    device: str = "auto",
    settings: Sequence[str] = (),
    grid: int | None = None,
    every: int | None = None,
) -> Fields:
    """Make a data set of a problem; see `lno data make --help`."""
    require_h5(out)
    given = dict(setting.partition("=")[::2] for setting in settings)
    given |= {k: str(v) for k, v in (("grid", grid), ("every", every)) if v is not None}
    problem = build_problem(name, given)
    where = str(pick_solver_device(device))
    with progress(f"making {name}", samples) as update:
        return make_file(problem, samples, out, seed, where, update)


def build_problem(name: str, settings: Mapping[str, str]) -> Problem:
    """A problem by name, with some of its parameters set by text."""
    if name not in PROBLEMS:
        raise ValueError(f"no problem {name!r}: expected one of {', '.join(PROBLEMS)}")
    cls = PROBLEMS[name]
    defaults = {f.name: f.default for f in dataclasses.fields(cls)}
    if "grid" in settings and "every" in defaults:
        settings = {"every": "1", **settings}  # the default belongs to the default grid
    values: dict[str, Any] = {}
    for key, text in settings.items():
        kind = int if isinstance(defaults.get(key), int) else float
        try:
            values[key] = kind(text)
        except ValueError:
            raise ValueError(f"{key}: expected {_article(kind)}, got {text!r}") from None
    return from_dict(cls, values)


def read_published(name: str, paths: Sequence[Path], out: str | Path, protocol: str) -> Fields:
    """Convert published files; see `lno data read --help`."""
    require_h5(out)
    fields = published.read(name, paths, protocol)
    fields.save(out)
    return fields


def draw_samples(fields: Fields, path: str | Path) -> None:
    """A page of pictures of the first samples: first and last channels of input and answer."""
    if fields.grid is None or len(fields.grid) != 2:
        raise ValueError("--plot draws data on a grid of two axes, which these are not")
    rows = []
    for k in range(min(4, len(fields))):
        sample, row = fields[k], []
        for key, values in (("u", sample.u), ("y", sample.y)):
            if values is None or len(values) != math.prod(fields.grid):
                continue
            names = fields.names[key]
            shown = sorted({0, len(names) - 1}) if names else []
            row += [(names[c], values[:, c].reshape(fields.grid)) for c in shown]
        rows.append(row)
    x = fields[0].x_query
    plane = plots.Plane(tuple(fields.names["x"]), tuple(x.min(0)), tuple(x.max(0)))  # type: ignore[arg-type]
    plots.save(plots.gallery(plane, rows), path)


def require_h5(out: str | Path) -> None:
    """Raise unless an HDF5 file can be written there: that is better said before the work."""
    if Path(out).suffix not in (".h5", ".hdf5"):
        raise ValueError(f"cannot write {out}: expected a name ending in .h5")
    require_folder(Path(out).parent)


def _article(kind: type) -> str:
    return "a whole number" if kind is int else "a number"
