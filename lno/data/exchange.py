"""`Fields` from and to the files and objects of other libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from lno.data.fields import Fields

Names = str | Sequence[str] | None


class Exchange:
    """The part of `Fields` that talks to other programs and to people."""

    @staticmethod
    def from_files(
        paths: str | Path | Sequence[str | Path],
        *,
        positions: Names = None,
        inputs: Names = None,
        outputs: Names = None,
        parameters: Names = None,
        covariates: Names = None,
        weights: Names = None,
        background: Names = None,
        cells: Names = None,
        sample: str | None = None,
        time: str | None = None,
        axes: Names = None,
        grid: str = "endpoints",
        log: Names = None,
        period: Mapping[str, float] | Names = None,
        units: Mapping[str, str] | Names = None,
        split: str | Sequence[int] | None = None,
    ) -> Fields:
        """Import NPZ, CSV, HDF5, NetCDF, MATLAB and mesh files; see docs/data.md, "Your data".

        A variable is named as in the file, several with commas, "x,y"; columns of an array get
        names after a colon, "nodes:lon,lat". What is not said is guessed from names and shapes;
        `lno data import` prints what was understood.

        Args:
            paths: files of one format, or patterns like "runs/*.csv".
            positions: coordinates of the points.
            inputs: values at the points that are given.
            outputs: values at the points that are wanted; a point where one is NaN is left out.
            parameters: numbers of a whole sample; parts of dates, "time.month" (year, month, day,
                dayofyear, hour); columns of a CSV file with a row for each sample,
                "cases.csv:Re,angle".
            covariates: known at all points, but no positions.
            weights: the size that each point stands for.
            background: a known first guess of the outputs.
            cells: triangles or quadrilaterals between the points.
            sample: a column, an axis (name or number) or a variable along it that tells samples
                apart; "file": each file is one.
            time: the time of each point, or along an axis: the last coordinate.
            axes: the coordinates along the axes of a grid.
            grid: where the points of a grid without coordinates lie, as `points` of `lno.grid`.
            log: channels of which the natural logarithm is kept.
            period: of coordinates, {"lon": 360}. Parameters are kept modulo their period.
            units: of coordinates and channels, {"T": "K"}.
            split: how many samples are for training, validation and testing, in this order:
                (800, 100, 100). Two numbers: of training and testing. None: `lno train` splits at
                random.

        >>> import tempfile, numpy as np
        >>> path = Path(tempfile.mkdtemp()) / "plates.npz"
        >>> np.savez(path, nodes=np.random.rand(6, 2), T=np.ones((4, 6, 1)), load=np.arange(4.0))
        >>> names = {"positions": "nodes:x,y", "outputs": "T:temperature", "parameters": "load"}
        >>> from lno import Fields
        >>> Fields.from_files(path, **names)
        Fields(4 samples: no values at 6 points of x, y, parameters load → temperature at the same
        points)
        """
        how = {key: value for key, value in locals().items() if key != "paths"}
        from lno.data.importing import import_files

        return import_files(paths, **how).fields

    @staticmethod
    def from_xarray(dataset: Any, **names: Any) -> Fields:
        """From an `xarray.Dataset` or `DataArray`; NaN is not there. Arguments as `from_files`."""
        from lno.data.importing import import_sources
        from lno.data.imports.netcdf import from_dataset

        return import_sources([from_dataset(dataset)], names, {}).fields

    @staticmethod
    def from_dataframe(table: Any, **names: Any) -> Fields:
        """From a `pandas.DataFrame` with a row for each point. Arguments as `from_files`."""
        from lno.data.importing import import_sources
        from lno.data.imports.dataframe import from_frame

        return import_sources([from_frame(table)], names, {}).fields

    def to_xarray(self) -> Any:
        """An `xarray.Dataset`: a variable for each channel, over samples and the grid or points.

        Points that a sample does not have are NaN.
        """
        from lno.data.exports.xarray_pandas import dataset_parts
        from lno.data.imports.source import missing_extra

        try:
            import xarray
        except ImportError as error:
            raise missing_extra("to_xarray", "xarray") from error

        coordinates, variables, attributes = dataset_parts(cast("Fields", self))
        return xarray.Dataset(variables, coordinates, attributes)

    def to_dataframe(self) -> Any:
        """A `pandas.DataFrame` with a row for each point of each sample.

        Where outputs are at other points than observations, both have rows, with NaN for what is
        not known there.
        """
        from lno.data.exports.xarray_pandas import table_columns
        from lno.data.imports.source import missing_extra

        try:
            import pandas
        except ImportError as error:
            raise missing_extra("to_dataframe", "pandas") from error
        return pandas.DataFrame(table_columns(cast("Fields", self)))

    def _repr_html_(self) -> str:
        from lno.data import notebook

        return notebook.table(cast("Fields", self))

    def plot(self, k: int = 0, *, channels: Any = None, at: Any = None) -> Any:
        """A matplotlib figure of sample k: its mesh and channels where its nodes lie in space.

        Args:
            k: the number of the sample.
            channels: names of channels to draw; None: the first and the last of u and of y.
            at: which slice of three dimensions, like `{"z": 0.5}`; None: the last one.
        """
        from lno.data import pictures

        return pictures.sample_picture(cast("Fields", self), k, channels, at)
