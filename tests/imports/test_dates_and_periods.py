"""Parts of dates, and numbers that come again after a period, as parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plates import LAT, LON, NODES, RE, N, S, T, same, sample_columns, write_csv

from lno import Fields
from lno.data.importing import Imported, import_files
from lno.data.importing.dates import PARTS, with_date_parts
from lno.data.imports import Source, Variable

MONTHS = np.arange("1999-11", "2000-04", dtype="M8[M]")  # five of them, over the end of a year
NUMBERS = [11.0, 12.0, 1.0, 2.0, 3.0]
SST = np.arange(60.0).reshape(S, 3, 4)


def numbers(fields: Fields, k: int = 0) -> list[float]:
    assert fields.parameters is not None
    return fields.parameters[:, k].tolist()


def netcdf(path: Path, time: Any, **attributes: str) -> Path:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    axes = {"lat": LAT, "lon": LON, "time": ("time", time, attributes)}
    data = xarray.Dataset({"sst": (("time", "lat", "lon"), SST)}, axes)
    data.to_netcdf(path / "a.nc", engine="h5netcdf")
    return path / "a.nc"


def npz(path: Path, time: np.ndarray, **how: Any) -> Imported:
    np.savez(path / "a.npz", sst=SST, lat=LAT, lon=LON, time=time)
    return import_files(path / "a.npz", outputs="sst", axes="lat,lon", sample="time", **how)


def test_parts_are_those_of_xarray() -> None:
    xarray = pytest.importorskip("xarray")
    dates = np.random.default_rng(0).integers(-3e18, 5e18, 200).view("M8[ns]")
    for part, of in PARTS.items():
        expected = getattr(xarray.DataArray(dates).dt, part)
        for unit in ("ns", "s", "h"):
            assert np.array_equal(of(dates.astype(f"M8[{unit}]")), expected), (part, unit)


def test_the_month_of_a_netcdf_file_and_of_a_dataset(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    how = {"outputs": "sst", "sample": "time", "parameters": ["time.month:month", "time.year"]}
    path = netcdf(tmp_path, MONTHS.astype("M8[ns]"))
    done = import_files(path, **how)
    assert numbers(done.fields) == NUMBERS
    assert done.fields.names["parameters"] == ["month", "time.year"]
    assert [row[:2] for row in done.table if "time" in row[1]] == [
        ["sample", "time"],
        ["parameters", "time.month"],
        ["parameters", "time.year"],
    ]
    with xarray.open_dataset(path) as data:
        assert same(Fields.from_xarray(data, **how), done.fields)
    with xarray.open_dataset(path, decode_times=False) as data:
        assert same(Fields.from_xarray(data, **how), done.fields)


def test_a_file_for_each_date(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    axes = {"lat": LAT, "lon": LON}
    for k, month in enumerate(MONTHS):
        whole = xarray.Dataset({"sst": (("lat", "lon"), SST[k])}, axes)
        whole.assign_coords(time=month.astype("M8[ns]")).to_netcdf(tmp_path / f"{k}.nc")
    found = Fields.from_files(
        str(tmp_path / "*.nc"), outputs="sst", sample="file", parameters="time.month"
    )
    assert numbers(found) == NUMBERS


@pytest.mark.parametrize("ending", ["", "-15", "-15T23:30", "-15 23:30:00Z", "-15T23:30+13:00"])
def test_a_column_of_dates_tells_samples_apart_and_gives_their_month(
    ending: str, tmp_path: Path
) -> None:
    dates = np.repeat([f"{month}{ending}" for month in MONTHS], N)
    x, y = np.tile(NODES, (S, 1)).T
    path = write_csv(tmp_path / "a.csv", {"date": dates, "x": x, "y": y, "T": T.ravel()})
    how = {"sample": "date", "positions": "x,y", "outputs": "T", "parameters": "date.month"}
    found = Fields.from_files(path, **how)
    assert (numbers(found), found.names["parameters"]) == (NUMBERS, ["date.month"])
    pandas = pytest.importorskip("pandas")
    table = pandas.read_csv(path)
    assert same(Fields.from_dataframe(table, **how), found)
    table["date"] = pandas.to_datetime(table["date"])
    assert same(Fields.from_dataframe(table, **how), found)


def test_dates_in_the_table_of_parameters(tmp_path: Path) -> None:
    for k in range(S):
        write_csv(tmp_path / f"{k}.csv", sample_columns(k))
    cases = write_csv(tmp_path / "cases.csv", {"Re": RE, "day": [f"{m}-02" for m in MONTHS]})
    found = Fields.from_files(
        str(tmp_path / "?.csv"),
        positions="x,y",
        outputs="T",
        parameters=f"{cases}:Re,day.month",
    )
    assert np.array_equal(found.parameters, np.column_stack((RE, NUMBERS)))


@pytest.mark.parametrize("unit", ["M", "D", "ns"])
def test_dates_of_numpy(unit: str, tmp_path: Path) -> None:
    found = npz(tmp_path, MONTHS.astype(f"M8[{unit}]"), parameters="time.month").fields
    assert numbers(found) == NUMBERS


def test_a_variable_that_is_called_like_a_part_is_itself() -> None:
    number = Variable("t.month", (2,), lambda: np.zeros(2))
    source = Source("a", {"t": Variable("t", (2,), lambda: np.ones(2)), "t.month": number})
    assert with_date_parts(source, ["t.month"]) is source


def test_parameters_are_kept_modulo_their_period(tmp_path: Path) -> None:
    since_1970 = np.array([-1, 0, 143, 144, 636], np.int32)
    done = npz(tmp_path, since_1970, parameters="time:month", period="lon=360,month=12")
    assert numbers(done.fields) == [11.0, 0.0, 11.0, 0.0, 0.0]
    assert done.fields.period == (None, 360.0)
    assert "month: modulo 12, 0 to 11" in done.notes
    day = np.array([-1e-20, 0.25, 365.0, 365.25, 366.25])
    done = npz(tmp_path, day, parameters="time", period={"time": 365.25})
    assert numbers(done.fields) == [0.0, 0.25, 365.0, 0.0, 1.0]


def test_the_column_of_samples_may_be_a_parameter_with_a_period(tmp_path: Path) -> None:
    x, y = np.tile(NODES, (S, 1)).T
    month = np.repeat([143, 144, 145, 155, 156], N)
    path = write_csv(tmp_path / "a.csv", {"month": month, "x": x, "y": y, "T": T.ravel()})
    found = Fields.from_files(
        path, sample="month", positions="x,y", outputs="T", parameters="month", period="month=12"
    )
    assert numbers(found) == [11.0, 0.0, 1.0, 11.0, 0.0]


def test_the_unit_of_a_remainder_counts_from_nowhere(tmp_path: Path) -> None:
    path = netcdf(tmp_path, np.arange(11, 16), units="months since 1970-01-01")
    how = {"outputs": "sst", "sample": "time", "parameters": "time:month"}
    found = Fields.from_files(path, **how, period="month=12")
    assert numbers(found) == [11.0, 0.0, 1.0, 2.0, 3.0]
    assert found.units["parameters"] == ["months"]


@pytest.mark.parametrize(
    ("time", "how", "message"),
    [
        (
            MONTHS,
            "time.monht",
            r"no part 'monht' of dates \(did you mean 'month'\?\); expected one",
        ),
        (MONTHS, "tim.month", r"has no variable 'tim\.month' for parameters"),
        (MONTHS, "time", r"time: expected real numbers, got dates.*time\.month"),
        (np.arange(S), "time.month", "expected dates in 'time', got numbers. If they count months"),
        (np.array(["2000-01", "2000-02", "May", "", ""]), "time.month", "entry 3: expected a date"),
        (np.array(["2000-13"] * S), "time.month", "expected a date like 2020-01-31, got '2000-13'"),
    ],
)
def test_mistakes(time: np.ndarray, how: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        npz(tmp_path, time, parameters=how)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "attributes",
    [
        {"units": "months since 1970-01-01"},
        {"units": "days since yesterday"},
        {"units": "days since 1970-01-01", "calendar": "lunar"},
    ],
)
def test_dates_that_cannot_be_decoded(attributes: dict[str, str], tmp_path: Path) -> None:
    path = netcdf(tmp_path, np.arange(S), **attributes)
    with pytest.raises(ValueError, match=r"time: cannot read dates from numbers in .* since"):
        import_files(path, outputs="sst", sample="time", parameters="time.month")


def test_a_missing_date_is_a_missing_parameter(tmp_path: Path) -> None:
    times = MONTHS.astype("M8[ns]")
    times[2] = "NaT"
    path = netcdf(tmp_path, times)
    with pytest.raises(ValueError, match=r"parameters: 'time\.month' is NaN in sample 2: fill it"):
        import_files(path, outputs="sst", sample="time", parameters="time.month")


def test_a_period_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="period: no 'monat'; expected one of lat, lon, time"):
        npz(tmp_path, np.arange(S), parameters="time", period="monat=12")
