"""A small data set, as `Fields` and as arrays, for files of every format."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lno import Fields

S, N = 5, 7
RANDOM = np.random.default_rng(0)
NODES = RANDOM.uniform(size=(N, 2)).round(6)
A = RANDOM.normal(size=(S, N)).round(6)
T = RANDOM.normal(size=(S, N)).round(6)
RE = RANDOM.uniform(1, 2, S).round(6)
NAMES = {"x": ["x", "y"], "u": ["a"], "y": ["T"], "parameters": ["Re"]}
EXPECTED = Fields(NODES, A[..., None], y=T[..., None], parameters=RE[:, None], names=NAMES)
ROLES: dict[str, Any] = {"positions": "x,y", "inputs": "a", "outputs": "T", "parameters": "Re"}

# A grid in time with gaps: (time, lat, lon), NaN at a place that changes and one that does not.
LAT, LON = np.array([-30.0, 0.0, 30.0]), np.array([0.0, 90.0, 180.0, 270.0])
SST = RANDOM.normal(size=(S, 3, 4)).round(6)
SST[:, 1, 2] = np.nan
SST[3, 0, 0] = np.nan


def write_csv(path: Path, columns: Mapping[str, Sequence[Any] | np.ndarray]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def sample_columns(k: int) -> dict[str, np.ndarray]:
    """Sample k as the columns of a table."""
    x, y = NODES.T
    return {"x": x, "y": y, "a": A[k], "T": T[k], "Re": np.full(N, RE[k])}


def long_columns() -> dict[str, np.ndarray]:
    """All samples in one table, with a column that tells them apart."""
    tables = [{"case": np.full(N, 10 * k), **sample_columns(k)} for k in range(S)]
    return {name: np.concatenate([t[name] for t in tables]) for name in tables[0]}


def stacked(nodes: str = "nodes") -> dict[str, np.ndarray]:
    """Arrays with an axis of samples."""
    return {nodes: NODES, "a": A[..., None], "T": T[..., None], "Re": RE}


def same(found: Fields, expected: Fields = EXPECTED) -> bool:
    """Whether all values and meaning are the same, bit by bit."""
    return found.digest == expected.digest
