"""Points without a value are left out; samples remember where in the grid the others lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from plates import NODES, SST, A, N, S, T, write_csv

from lno.data.importing import Imported, import_files


def imported(path: Path, arrays: dict[str, Any], **how: Any) -> Imported:
    np.savez(path / "a.npz", **arrays)
    return import_files(path / "a.npz", **how)


def test_gaps_that_all_samples_have_keep_positions_shared(tmp_path: Path) -> None:
    sst = SST.copy()
    sst[3, 0, 0] = 1.0
    fields = imported(tmp_path, {"sst": sst}).fields
    there = np.flatnonzero(~np.isnan(sst[0]))
    assert fields.x.shape == (11, 2) and not fields.is_ragged
    assert np.array_equal(fields.grid_index[:, 0], there)
    assert np.array_equal(fields.y[..., 0], sst.reshape(S, -1)[:, there])


def test_samples_without_any_value_are_left_out_with_their_parameters(tmp_path: Path) -> None:
    t = T.copy()
    t[[1, 3]] = np.nan
    done = imported(
        tmp_path, {"nodes": NODES, "T": t, "n": np.arange(S)}, outputs="T", parameters="n"
    )
    assert done.fields.parameters.ravel().tolist() == [0, 2, 4]
    assert np.array_equal(done.fields.y[..., 0], T[[0, 2, 4]])
    assert "left out 2 samples without any value: 1, 3" in done.notes


def test_samples_that_are_padded_with_nan_become_ragged(tmp_path: Path) -> None:
    nodes, t = np.stack([NODES] * S), T.copy()
    nodes[2, 4:], t[2, 4:] = np.nan, np.nan
    fields = imported(tmp_path, {"nodes": nodes, "T": t, "a": A}, outputs="T", inputs="a").fields
    assert [len(sample.x) for sample in fields] == [N, N, 4, N, N]
    assert np.array_equal(fields[2].u[:, 0], A[2, :4])


def test_cells_with_a_missing_corner_go_too(tmp_path: Path) -> None:
    t = T.copy()
    t[:, 1] = np.nan
    cells = np.array([[0, 1, 2], [2, 3, 4]])
    done = imported(tmp_path, {"nodes": NODES, "T": t, "cells": cells}, outputs="T")
    assert done.fields.cells.tolist() == [[1, 2, 3]]  # 2, 3, 4 of before
    assert np.array_equal(done.fields.x[done.fields.cells[0]], NODES[[2, 3, 4]])
    assert "left out 1 cells with such a corner" in done.notes


def test_cells_when_samples_lack_different_points(tmp_path: Path) -> None:
    t = T.copy()
    t[1, 0] = np.nan
    fields = imported(
        tmp_path, {"nodes": NODES, "T": t, "cells": np.array([[0, 1, 2], [2, 3, 4]])}, outputs="T"
    ).fields
    assert fields[0].cells.tolist() == [[0, 1, 2], [2, 3, 4]]
    assert fields[1].cells.tolist() == [[1, 2, 3]]


def test_stations_that_are_silent_on_some_days(tmp_path: Path) -> None:
    columns = {
        "day": [1, 1, 1, 2, 2, 2],
        "lon": [7.0, 8.0, 9.0] * 2,
        "lat": [46.0, 47.0, 48.0] * 2,
        "elevation": [500.0, 2000.0, 300.0] * 2,
        "T": ["10", "1.5", "12", "11", "NA", "13"],
    }
    path = write_csv(tmp_path / "stations.csv", columns)
    fields = import_files(path, outputs="T", covariates="elevation", sample="day").fields
    assert fields.names["x"] == ["lon", "lat", "elevation"] and fields.space == 2
    assert [len(sample.x) for sample in fields] == [3, 2]
    assert fields[1].y.ravel().tolist() == [11.0, 13.0]
    assert fields[1].x[:, 2].tolist() == [500.0, 300.0]
