"""Files of other programs: a reader for each format, found by the suffix."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from lno.data.checks import require_path
from lno.data.foreign import ForeignFileError
from lno.data.imports import mesh
from lno.data.imports.delimited import read_delimited
from lno.data.imports.hdf5 import read_hdf5
from lno.data.imports.matlab import read_mat
from lno.data.imports.netcdf import read_netcdf
from lno.data.imports.numpy_files import read_npy, read_npz
from lno.data.imports.source import Source, Variable
from lno.files import require_regular

__all__ = ["READERS", "Source", "Variable", "expand", "in_natural_order", "open_files"]

READERS: dict[str, Callable[[Path], Source]] = {
    ".npz": read_npz,
    **dict.fromkeys((".csv", ".tsv", ".txt"), read_delimited),
    **dict.fromkeys((".h5", ".hdf5", ".hdf"), read_hdf5),
    **dict.fromkeys((".nc", ".nc4", ".cdf"), read_netcdf),
    ".mat": read_mat,
    **dict.fromkeys(mesh.SUFFIXES, mesh.read_mesh),
}
KNOWN = ".npz, .npy, .csv, .h5, .nc, .mat, or a mesh (.vtu, .vtk, .msh, …)"
PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".joblib")


def open_files(paths: str | Path | Sequence[str | Path]) -> list[Source]:
    """What each file holds; .npy files, of one array each, are taken together.

    Args:
        paths: files, or patterns like "runs/*.csv", whose files come in natural order: 2 before 10.
    """
    files = expand(paths)
    suffixes = sorted({file.suffix.lower() for file in files})
    if len(suffixes) > 1:
        raise ForeignFileError(
            f"expected files of one kind, got {', '.join(suffixes)}: import them one by one"
        )
    kind = f"a file to import ({KNOWN})"
    for file in files:
        _require_readable(file, kind)
    if suffixes == [".npy"]:
        return [read_npy(files)]
    if suffixes[0] not in READERS:
        advice = ""
        if suffixes[0] in PICKLES:
            advice = ". Pickles can run any code and are never opened here: save with numpy.savez"
        raise ForeignFileError(
            f"{files[0]}: cannot import files that end in {suffixes[0] or 'nothing'!r}: expected "
            f"{KNOWN}{advice}"
        )
    return [READERS[suffixes[0]](file) for file in files]


def expand(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    """The files that paths and patterns name, at least one."""
    several = list(paths) if isinstance(paths, list | tuple) else [paths]
    for path in several:
        require_path("paths", path)
    files = [file for path in several for file in _matching(str(path))]
    if not files:
        raise ValueError("paths: expected at least one file")
    return files


def _matching(path: str) -> list[Path]:
    if Path(path).exists() or not glob.has_magic(path):
        return [Path(path)]
    found = [Path(match) for match in glob.glob(path, recursive=True)]  # noqa: PTH207 absolute too
    if not found:
        raise FileNotFoundError(f"no files match {path!r} in {Path.cwd()}")
    return [Path(match) for match in in_natural_order(map(str, found))]


def in_natural_order(names: Iterable[str]) -> list[str]:
    """Names in the order of the numbers in them.

    >>> in_natural_order(["run_10", "run_2"])
    ['run_2', 'run_10']
    """

    def parts(name: str) -> list[tuple[bool, int, str]]:
        pieces = re.split(r"(\d+)", name)
        return [(p.isdecimal(), int(p) if p.isdecimal() else 0, p) for p in pieces]

    return sorted(names, key=parts)


def _require_readable(path: Path, kind: str) -> None:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name the files in it, like '{path}/*.csv'")
    try:
        require_regular(path, kind)
        with path.open("rb") as file:
            first = file.read(1)
    except PermissionError as error:
        raise PermissionError(
            f"cannot read {path}: permission denied. Ask its owner for the right to read it"
        ) from error
    if not first:
        raise ForeignFileError(f"{path} is empty: expected {kind}")
