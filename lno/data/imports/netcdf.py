"""NetCDF files and `xarray.Dataset`: variables whose axes have names. Needs xarray and h5netcdf."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from lno.data.checks import described
from lno.data.foreign import ForeignFileError
from lno.data.imports.hdf5 import opened
from lno.data.imports.source import Source, Variable, missing_extra, reading
from lno.text import visible

KIND = "a NetCDF file"
SINCE = " since "  # in the units of times: days since 1970-01-01
CLASSIC = (b"CDF\x01", b"CDF\x02")  # version 3, which SciPy reads; version 4 is HDF5


def read_netcdf(path: Path) -> Source:
    """The variables of a NetCDF file; fill values become NaN: not there."""
    try:
        import h5netcdf  # noqa: F401
        import xarray
    except ImportError as error:
        raise missing_extra(path, "xarray and h5netcdf") from error
    with path.open("rb") as file:
        classic = file.read(4) in CLASSIC
    if not classic and not h5py.is_hdf5(path):
        raise ForeignFileError(f"{path} is not {KIND}: it is damaged, or of another program")
    engine: Any = "scipy" if classic else "h5netcdf"

    def load(name: str) -> np.ndarray:
        with reading(path, KIND):
            if not classic:
                with h5py.File(path, "r") as stored:
                    opened(path, name, stored)
            with xarray.open_dataset(path, engine=engine, decode_times=False) as data:
                return np.asarray(data[name].values)

    notes = []
    if not classic:
        with reading(path, KIND), h5py.File(path, "r") as stored:
            stored.attrs.get("_nc3_strict")  # where this fails, h5netcdf prints a traceback too
    with reading(path, KIND), _header(path, engine) as data:
        variables = {
            str(name): _variable(path, str(name), v, load) for name, v in data.variables.items()
        }
        if not classic:
            with h5py.File(path, "r") as stored:
                groups = [name for name in stored if isinstance(stored[name], h5py.Group)]
            notes = [f"groups are not read: {', '.join(groups)}"] if groups else []
    return Source(str(path), variables, notes=tuple(notes))


def _header(path: Path, engine: Any) -> Any:
    """The file, whose values are not read yet."""
    import xarray

    try:
        return xarray.open_dataset(path, engine=engine, decode_times=False)
    except MemoryError:  # numbers in a damaged header are taken for the lengths of texts and lists
        raise ForeignFileError(
            f"{path} is not {KIND}, or damaged: its header asks for more memory than there is"
        ) from None


def from_dataset(dataset: Any) -> Source:
    """The variables of an `xarray.Dataset` or `DataArray`; dates become days since the first."""
    if hasattr(dataset, "to_dataset") and not hasattr(dataset, "data_vars"):
        dataset = dataset.to_dataset(name=dataset.name or "values")
    if not hasattr(dataset, "data_vars"):
        raise TypeError(f"dataset: expected an xarray.Dataset, got {described(dataset)}")

    def load(name: str) -> np.ndarray:
        return np.asarray(dataset[name].values)

    variables = {
        str(name): _variable("the dataset", str(name), v, load)
        for name, v in dataset.variables.items()
    }
    return Source("the dataset", variables)


def _variable(where: object, name: str, found: Any, load: Callable[[str], np.ndarray]) -> Variable:
    kind, unit = found.dtype.kind, str(found.attrs.get("units", ""))
    dated = kind == "M" or (kind in "iuf" and SINCE in unit)
    if kind == "M":
        unit = "days"

    def read() -> np.ndarray:
        if kind not in "biufM":
            raise ForeignFileError(
                f"{where}, {visible(name)}: expected real numbers, got values of type {found.dtype}"
            )
        values = load(name)
        if kind != "M":
            return values
        days = (values - values.min()) / np.timedelta64(1, "D")
        return np.asarray(days, np.float64)

    def texts() -> list[str]:
        return [str(value) for value in load(name).ravel()]

    def dates() -> np.ndarray:
        return load(name) if kind == "M" else _decoded(where, name, load(name), found.attrs)

    axes = tuple(map(str, found.dims))
    shape, is_number = tuple(found.shape), kind in "biufM"
    return Variable(name, shape, read, is_number, axes, unit, texts, dates if dated else None)


def _decoded(
    where: object, name: str, values: np.ndarray, attributes: Mapping[str, Any]
) -> np.ndarray:
    """Dates from numbers like days since 1970-01-01, by the CF conventions."""
    import xarray

    how = {key: attributes[key] for key in ("units", "calendar") if key in attributes}
    try:
        found = xarray.decode_cf(xarray.Dataset({"dates": ("n", values.ravel(), how)}))["dates"]
        return found.values.astype("M8[us]").reshape(values.shape)
    except Exception as error:  # libraries raise a dozen types, also for dates of other calendars
        units = ", ".join(visible(value) for value in how.values())
        raise ForeignFileError(
            f"{where}, {visible(name)}: cannot read dates from numbers in {units}: expected days, "
            f"hours, minutes or seconds since a date of the usual calendar. Else take "
            f"{visible(name)!r} itself, with a period"
        ) from error
