"""`write`: values at points into files that other programs read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lno.data import columns
from lno.data.checks import described, require_path
from lno.data.exports.netcdf import write_netcdf
from lno.data.exports.result import Result, of_arrays, of_fields
from lno.data.exports.vtu import write_vtu
from lno.data.fields import Fields
from lno.data.tables import write_columns
from lno.files import replacing

SUFFIXES = (".vtu", ".nc", ".csv", ".npz", ".h5")
OF_ONE_SAMPLE = (".vtu", ".csv")


def write(
    path: str | Path,
    points: Any,
    values: Any = None,
    *,
    names: Mapping[str, Sequence[str]] | None = None,
    units: Mapping[str, Sequence[str]] | None = None,
    cells: Any = None,
    grid: Sequence[int] | None = None,
    sample: int | None = None,
) -> None:
    """Write values at points for another program, atomically.

    | name | program | holds |
    |---|---|---|
    | `.vtu` | ParaView, VTK | one sample with its mesh, at the nodes' positions in space |
    | `.nc` | xarray, Panoply, MATLAB | grids with named axes, else lists of points |
    | `.csv` | Excel, anything | one sample, a row for each point |
    | `.npz` | NumPy | all arrays: `x`, `u`, `x_query`, `y`, and names |
    | `.h5` | `lno` | everything, see `Fields.save` |

    Args:
        path: the file; its ending says which kind.
        points: positions (n, d), or `Fields`, whose outputs are written where their nodes are.
        values: at the points: (n, c), (s, n, c) for s samples, or a mapping from names to (n,) or
            (s, n). With `Fields`, such a mapping adds to the outputs.
        names: of coordinates and channels, `{"x": [...], "y": [...]}`; not with `Fields`.
        units: in the same form; with `Fields`, `{"y": [...]}` are those of the values.
        cells: triangles (m, 3) or quadrilaterals (m, 4) between the points; not with `Fields`.
        grid: the shape of the grid that the points form, in C order; not with `Fields`.
        sample: write this sample of `Fields` only.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write(folder / "a.csv", np.array([[0.0], [0.5]]), {"p": np.array([1.0, 2.0])})
    >>> (folder / "a.csv").read_text().split()
    ['x0,p', '0.0,1.0', '0.5,2.0']
    """
    suffix = require_suffix(path)
    if isinstance(points, Fields):
        if any(v is not None for v in (names, cells, grid)):
            raise ValueError("Fields have names, cells and a grid: pass none beside them")
        data = points if values is None else _with_values(points, values, units or {})
        data = data if sample is None else data.subset([sample])
        require_suffix(path, len(data))
        if suffix in WRITERS:
            WRITERS[suffix](path, of_fields(data))
            return
    else:
        if sample is not None:
            raise ValueError("sample: chooses one of several in Fields; here there are none")
        result = of_arrays(points, values, names or {}, units or {}, cells, grid)
        require_suffix(path, len(result))
        if suffix in WRITERS:
            WRITERS[suffix](path, result)
            return
        data = _as_fields(result)
    if suffix == ".npz":
        _write_npz(path, data)
    else:
        data.save(path)


def require_suffix(path: str | Path, samples: int = 1) -> str:
    """The ending of a file that can be written; raises where it cannot: before the work.

    Args:
        path: the file.
        samples: that it is to hold.
    """
    require_path("path", path)
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        listed = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        raise ValueError(f"cannot write {path}: expected a name ending in {listed}")
    if samples > 1 and suffix in OF_ONE_SAMPLE:
        raise ValueError(
            f"cannot write {path}: a {suffix} file holds one sample, not {samples}. Choose one, "
            "sample=k or --sample k, or write .nc, .npz or .h5"
        )
    return suffix


def _write_csv(path: str | Path, result: Result) -> None:
    table = result.coordinates | result.nodes | result.values
    write_columns(path, list(table), [column[0] for column in table.values()])


def _write_npz(path: str | Path, data: Fields) -> None:
    if data.is_ragged and len(data) > 1:
        raise ValueError(
            "samples differ in their number of points: write one of them, sample=k, or a .h5 file"
        )
    keys = ("x", "u", "x_query", "y", "parameters", "cells", "grid_index")
    present = {key: column for key in keys if (column := getattr(data, key)) is not None}
    arrays = {
        key: np.stack(list(c)) if isinstance(c, columns.Ragged) else np.asarray(c)
        for key, c in present.items()
    }
    labels = {f"names_{key}": np.array(v, str) for key, v in data.names.items()}
    labels |= {f"units_{key}": np.array(v, str) for key, v in data.units.items()}
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays, **labels)


def _as_fields(result: Result) -> Fields:
    """Arrays as data, which are saved as such."""
    labels = (list(result.coordinates), list(result.values))
    x, y = (np.stack(list(v.values()), -1) for v in (result.coordinates, result.values))
    return Fields(
        x[0],
        y=y,
        cells=result.cells,
        grid=result.grid,
        names=dict(zip("xy", labels, strict=True)),
        units={key: [result.units[n] for n in v] for key, v in zip("xy", labels, strict=True)},
    )


def _with_values(data: Fields, values: Any, units: Mapping[str, Sequence[str]]) -> Fields:
    """The data with further outputs: arrays (n,), (s, n) or lists of arrays by name."""
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise TypeError(
            "values: expected a mapping from names to arrays beside Fields, like {'lower': array "
            f"(samples, points)}}, got {described(values)}"
        )
    each: list[list[np.ndarray]] = [[] if s.y is None else [s.y] for s in data]
    for name, given in values.items():
        rows = list(given) if len(data) > 1 or isinstance(given, list | tuple) else [given]
        if len(rows) != len(data):
            raise ValueError(f"values[{name!r}]: expected {len(data)} samples, got {len(rows)}")
        for k, row in enumerate(rows):
            column, points = columns.as_real(name, row), len(data[k].x_query)
            if column.size != points:
                raise ValueError(
                    f"values[{name!r}], sample {k}: expected a number for each of the {points} "
                    f"points, got shape {column.shape}"
                )
            each[k].append(column.reshape(-1, 1))
    return data.replace(
        y=[np.concatenate(parts, -1) for parts in each],
        names={**data.names, "y": [*data.names["y"], *values]},
        units={**data.units, "y": [*data.units["y"], *units.get("y", [""] * len(values))]},
    )


WRITERS: dict[str, Callable[[str | Path, Result], None]] = {
    ".vtu": write_vtu,
    ".nc": write_netcdf,
    ".csv": _write_csv,
}
