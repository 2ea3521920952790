"""NetCDF files of samples that differ in their points."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.io import netcdf_file

import lno
from lno import Fields
from lno.data.grids import grid_points

LATTICE = grid_points(np.linspace(0, 1, 5), np.linspace(0, 2, 4))


@pytest.mark.parametrize("regular", [True, False])
def test_samples_with_gaps_of_their_own_are_written_as_to_xarray_gives_them(
    tmp_path: Path, regular: bool
) -> None:
    random = np.random.default_rng(0)
    kept = [np.sort(random.permutation(20)[:n]) for n in (17, 12, 20)]
    x = [LATTICE[rows] + (0 if regular else 0.1 * random.normal(size=(1, 2))) for rows in kept]
    y = [random.normal(size=(len(rows), 2)) for rows in kept]
    data = Fields(x, y=y, grid=(5, 4), grid_index=kept)
    lno.write(tmp_path / "a.nc", data)
    expected = data.to_xarray()
    dimensions = ("sample", "x0", "x1") if regular else ("sample", "point")
    with netcdf_file(tmp_path / "a.nc", mmap=False) as file:
        assert file.variables["y0"].dimensions == expected["y0"].dims == dimensions
        for name in ("y0", "y1", "x0", "x1"):
            np.testing.assert_array_equal(file.variables[name][:], expected[name])
        assert np.isnan(file.variables["y1"][:]).sum() == 11


def test_clouds_of_different_sizes_are_lists_that_end_with_nan(tmp_path: Path) -> None:
    x = [np.random.default_rng(n).uniform(size=(n, 2)) for n in (20, 24)]
    data = Fields(x, y=[places[:, :1] for places in x])
    lno.write(tmp_path / "a.nc", data)
    with netcdf_file(tmp_path / "a.nc", mmap=False) as file:
        for name in ("y0", "x1"):
            assert file.variables[name].dimensions == ("sample", "point")
            np.testing.assert_array_equal(file.variables[name][:], data.to_xarray()[name])
