"""`Fields` to and from xarray and pandas."""

from __future__ import annotations

import numpy as np
import pytest
from plates import EXPECTED, LAT, LON, ROLES, SST, S, long_columns, same

from lno import Fields, grid

xarray = pytest.importorskip("xarray")
pandas = pytest.importorskip("pandas")


def gappy() -> Fields:
    data = xarray.DataArray(SST, {"lat": LAT, "lon": LON}, ("time", "lat", "lon"), "sst")
    return Fields.from_xarray(data, units={"sst": "K"})


def test_a_cloud_goes_to_xarray_and_back() -> None:
    data = EXPECTED.to_xarray()
    assert data["T"].dims == ("sample", "point") and data["Re"].dims == ("sample",)
    assert data["x"].dims == ("point",)
    assert same(Fields.from_xarray(data, **ROLES))


def test_a_grid_with_gaps_goes_to_xarray_and_back() -> None:
    fields = gappy()
    data = fields.to_xarray()
    assert data["sst"].dims == ("sample", "lat", "lon") and data["sst"].attrs["units"] == "K"
    assert np.array_equal(data["sst"].values, SST, equal_nan=True)
    assert np.array_equal(data["lat"], LAT) and np.array_equal(data["lon"], LON)
    assert same(Fields.from_xarray(data), fields)


def test_samples_on_different_grids_keep_their_own_positions() -> None:
    places = np.stack([grid((3, 2)), grid((3, 2), high=2.0)])
    data = Fields(places, y=places[..., :1], grid=(3, 2)).to_xarray()
    assert data["y0"].dims == ("sample", "point")
    np.testing.assert_array_equal(data["x0"], places[..., 0])


def test_ragged_samples_are_padded_with_nan() -> None:
    x = [np.arange(n)[:, None] * 1.0 for n in (2, 3)]
    fields = Fields(x, y=[v + 1 for v in x], names={"x": ["r"], "y": ["p"]})
    data = fields.to_xarray()
    assert np.array_equal(data["p"], [[1, 2, np.nan], [1, 2, 3]], equal_nan=True)
    assert data["r"].dims == ("sample", "point")
    assert same(Fields.from_xarray(data, positions="r", outputs="p"), fields)


def test_observations_and_outputs_at_different_points() -> None:
    x, q = np.zeros((2, 1)), np.ones((3, 1))
    fields = Fields(x, np.zeros((S, 2, 1)), q, np.ones((S, 3, 1)), names={"u": ["p"], "y": ["p"]})
    data = fields.to_xarray()
    assert data["p (input)"].dims == ("sample", "observed point")
    assert data["p"].dims == ("sample", "point")
    table = fields.to_dataframe()
    assert len(table) == 5 * S
    assert table["p"].notna().sum() == 3 * S and table["p (input)"].notna().sum() == 2 * S


def test_a_table_and_back() -> None:
    table = EXPECTED.to_dataframe()
    expected = long_columns()
    for name in ("x", "y", "a", "T", "Re"):
        assert np.array_equal(table[name], expected[name])
    assert same(Fields.from_dataframe(table, **ROLES))
    indexed = table.set_index("sample")
    assert same(Fields.from_dataframe(indexed, sample="sample", **ROLES))


def test_gaps_in_a_table() -> None:
    table = pandas.DataFrame({"x": [0.0, 1, 2], "T": pandas.array([1.0, None, 3.0], "Float64")})
    fields = Fields.from_dataframe(table)
    assert fields.x.ravel().tolist() == [0.0, 2.0] and fields.y.ravel().tolist() == [1.0, 3.0]


def test_mistakes_in_tables() -> None:
    table = EXPECTED.to_dataframe()
    with pytest.raises(ValueError, match=r"the table has no column 'U' for inputs; it holds"):
        Fields.from_dataframe(table, positions="x", inputs="U", outputs="T")
    words = table.assign(T=["warm"] + ["cold"] * (len(table) - 1))
    with pytest.raises(ValueError, match="row 0, column 'T': expected a number, got 'warm'"):
        Fields.from_dataframe(words, **ROLES)
    with pytest.raises(TypeError, match=r"table: expected a pandas\.DataFrame, got the list"):
        Fields.from_dataframe([1])
    with pytest.raises(TypeError, match=r"dataset: expected an xarray\.Dataset, got the int 3"):
        Fields.from_xarray(3)


def test_dates_are_days() -> None:
    times = np.array(["2000-01-01", "2000-01-02", "2000-01-11"], "M8[D]")
    data = xarray.Dataset(
        {"T": (("run", "time"), np.arange(6.0).reshape(2, 3))}, {"time": times.astype("M8[ns]")}
    )
    fields = Fields.from_xarray(data, outputs="T", sample="run", time="time")
    assert fields.x.ravel().tolist() == [0.0, 1.0, 10.0]
    assert fields.units["x"] == ["days"]
