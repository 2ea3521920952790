"""Every mistake gets one clear sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run
from plates import (
    EXPECTED,
    NODES,
    RE,
    ROLES,
    SST,
    A,
    N,
    S,
    T,
    long_columns,
    sample_columns,
    stacked,
    write_csv,
)
from wrong_values import shows

from lno import Fields
from lno.data.importing import LAYOUT, import_files
from lno.data.importing import ROLES as ROLE_NAMES

FROM_ARRAYS = {**ROLES, "positions": "nodes:x,y"}


def npz(path: Path, **changes: Any) -> Path:
    np.savez(path / "a.npz", **{k: v for k, v in {**stacked(), **changes}.items() if v is not None})
    return path / "a.npz"


def table(path: Path, **changes: Any) -> Path:
    return write_csv(path / "a.csv", {**long_columns(), **changes})


def text(path: Path, content: str, name: str = "a.csv") -> Path:
    (path / name).write_text(content)
    return path / name


def with_nan(values: np.ndarray, *at: int) -> np.ndarray:
    changed = values.astype(float)
    changed[at] = np.nan
    return changed


def word(values: np.ndarray, row: int, entry: str) -> list[str]:
    found = [str(v) for v in values]
    found[row] = entry
    return found


Make = Callable[[Path], Any]
MISTAKES: dict[str, tuple[Make, dict[str, Any], str]] = {
    "wrong column": (
        table,
        {**ROLES, "outputs": "t"},
        r"a\.csv has no column 't' for outputs \(did you mean 'T'\?\); it holds case, x, y, a, T",
    ),
    "wrong variable": (
        npz,
        {**FROM_ARRAYS, "positions": "node"},
        r"no variable 'node' for positions \(did you mean 'nodes'\?\); it holds nodes \(7, 2\)",
    ),
    "wrong axis": (npz, {**FROM_ARRAYS, "axes": "lat"}, "no variable 'lat' for axes; it holds"),
    "wrong sample": (
        table,
        {**ROLES, "sample": "cases"},
        r"no column 'cases' for sample \(did you mean 'case'\?\)",
    ),
    "unknown argument": (
        npz,
        {"output": "T"},
        r"no argument 'output' \(did you mean 'outputs'\?\)",
    ),
    "unit of nothing": (
        npz,
        {**FROM_ARRAYS, "units": {"t": "K"}},
        r"units: no 't' \(did you mean 'T'",
    ),
    "period of nothing": (
        npz,
        {**FROM_ARRAYS, "period": "z=1"},
        "period: no 'z'; expected one of x, y",
    ),
    "negative period": (npz, {**FROM_ARRAYS, "period": "x=-1"}, "period of x: expected a positive"),
    "period without number": (
        npz,
        {**FROM_ARRAYS, "period": "x=b"},
        "period of x: expected a number",
    ),
    "pair without value": (
        npz,
        {**FROM_ARRAYS, "units": "x"},
        "units: expected pairs like lon=360",
    ),
    "mixed shapes": (
        lambda path: npz(path, T=T[:, :4]),
        FROM_ARRAYS,
        r"the shapes do not fit together: positions nodes \(7, 2\), inputs a \(5, 7, 1\), outputs "
        r"T \(5, 4\), parameters Re \(5,\)\. Expected positions",
    ),
    "too many parameters": (
        lambda path: npz(path, Re=np.ones((4, 2))),
        FROM_ARRAYS,
        r"the shapes do not fit together: .*parameters Re \(4, 2\)",
    ),
    "text in numbers": (
        lambda path: table(path, T=word(long_columns()["T"], 3, "warm")),
        ROLES,
        r"a\.csv, line 5, column 'T': expected a number, got 'warm'",
    ),
    "decimal comma": (
        lambda path: text(path, 'x,y,T\n0,1,"2,5"\n'),
        {"positions": "x,y", "outputs": "T"},
        r"line 2, column 'T': expected a number, got '2,5': write decimals with a point",
    ),
    "one number for each sample": (
        lambda path: npz(path, nodes=None),
        {"inputs": "a", "outputs": "Re"},
        r"Re \(5,\) has one number for each sample: expected values at points",
    ),
    "complex outputs": (
        lambda path: npz(path, T=T * 1j, nodes=None, Re=None),
        {},
        r"cannot tell what is to be learned",
    ),
    "two decimal marks": (
        lambda path: text(path, "x;y;T\n0;1;2,5\n0;1.5;3\n"),
        {"positions": "x,y", "outputs": "T"},
        r"expected one decimal mark, got '2,5' in line 2 and '1\.5' in line 3: write decimals with",
    ),
    "infinity": (
        lambda path: table(path, T=word(long_columns()["T"], 0, "inf")),
        ROLES,
        "line 2, column 'T': expected a number, got 'inf'",
    ),
    "text in an array": (
        lambda path: npz(path, T=np.full((S, N), "warm")),
        FROM_ARRAYS,
        r"a\.npz, T: expected real numbers, got text",
    ),
    "NaN in inputs": (
        lambda path: npz(path, a=with_nan(A[..., None], 2, 3)),
        FROM_ARRAYS,
        r"inputs: 'a' is NaN at 1 points that have outputs, first at sample 2, "
        rf"x = {NODES[3, 0]:g}, y = {NODES[3, 1]:g}\. Fill them, leave 'a' out",
    ),
    "NaN in parameters": (
        lambda path: npz(path, Re=with_nan(RE, 1)),
        FROM_ARRAYS,
        "parameters: 'Re' is NaN in sample 1: fill it",
    ),
    "no values at all": (
        lambda path: npz(path, T=np.full((S, N), np.nan)),
        FROM_ARRAYS,
        "no point of any sample has a value",
    ),
    "empty cell in samples": (
        lambda path: table(path, case=word(long_columns()["case"], 2, "")),
        ROLES,
        "'case' has no value in row 3",
    ),
    "parameter that changes": (
        lambda path: table(path, Re=np.arange(S * N)),
        ROLES,
        r"case 0\.0: the parameter 'Re' goes from 0 to 6 within a sample: expected one number",
    ),
    "log of negative numbers": (
        npz,
        {**FROM_ARRAYS, "log": "a"},
        rf"log of a: expected positive numbers, got {(A <= 0).sum()} that are not, down to "
        rf"{A.min():g}",
    ),
    "wrong number of names": (
        npz,
        {**FROM_ARRAYS, "outputs": "T:u,v"},
        "T has 1 columns, and 2 names were given: u, v",
    ),
    "one variable twice": (
        npz,
        {**FROM_ARRAYS, "inputs": "T"},
        "'T' was named for inputs and for outputs",
    ),
    "nothing to go by": (
        lambda path: npz(path, b=A, c=A),
        {},
        r"cannot tell what is to be learned from .*a\.npz: say which variables are outputs .*It "
        r"holds nodes \(7, 2\), a \(5, 7, 1\)",
    ),
    "no positions in a table": (
        lambda path: text(path, "p,q\n1,2\n3,4\n"),
        {"outputs": "q"},
        "say which columns are the positions of the points; it holds p, q",
    ),
    "no header": (
        lambda path: text(path, "1,2\n3,4\n"),
        {},
        "line 1: expected the names of the col",
    ),
    "header alone": (lambda path: text(path, "x,T\n"), {}, "has no rows below its header"),
    "short row": (
        lambda path: text(path, "x,T\n1,2\n3\n"),
        {},
        "line 3: expected 2 cells as in the header, got 1",
    ),
    "column twice": (lambda path: text(path, "x,T,x\n1,2,3\n"), {}, "column 'x' appears more than"),
    "empty": (lambda path: text(path, ""), {}, r"a\.csv is empty: expected a file to import"),
    "folder": (lambda path: path, {}, r"is a folder: name the files in it, like '.*/\*\.csv'"),
    "nowhere": (
        lambda path: path / "b.csv",
        {},
        r"b\.csv does not exist: expected a file to import",
    ),
    "no match": (lambda path: str(path / "run*.csv"), {}, r"no files match '.*run\*\.csv' in "),
    "no files": (lambda path: [], {}, "paths: expected at least one file"),
    "unknown suffix": (
        lambda path: text(path, "a", "a.xyz"),
        {},
        r"a\.xyz: cannot import files that end in '\.xyz': expected \.npz, \.npy, \.csv",
    ),
    "pickle": (
        lambda path: text(path, "a", "a.pt"),
        {},
        r"cannot import files that end in '\.pt'.*Pickles can run any code",
    ),
    "two formats": (
        lambda path: [npz(path), table(path)],
        ROLES,
        r"expected files of one kind, got \.csv, \.npz",
    ),
    "other columns in the second file": (
        lambda path: [
            write_csv(path / "a.csv", sample_columns(0)),
            text(path, "x,y,a,Re\n1,2,3,4\n", "b.csv"),
        ],
        ROLES,
        r"b\.csv has no column 'T' for outputs",
    ),
    "rows of parameters": (
        lambda path: [
            write_csv(path / "a.csv", sample_columns(0)),
            text(path, "Re\n1\n2\n", "cases.csv"),
        ][:1],
        {**ROLES, "parameters": "cases.csv:Re"},
        r"cases\.csv: expected a row of parameters for each of the 1 samples, got 2",
    ),
    "not a name": (
        npz,
        {"outputs": 3},
        "outputs: expected names of variables as text, got the int 3",
    ),
    "empty name": (
        npz,
        {"outputs": "T:"},
        "outputs: expected names like 'a,b', or 'nodes:lon,lat'",
    ),
    "grid": (
        npz,
        {"grid": "cell"},
        "grid: expected one of endpoints, no-endpoint, centres, got 'ce",
    ),
    "contradiction": (
        lambda path: npz(path, nodes=np.zeros((N, 2))),
        FROM_ARRAYS,
        r"a\.npz: x, sample 0: points 0 and 1 are the same position .* keep one, or their mean",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gets_one_clear_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make, how, message = MISTAKES[name]
    with pytest.raises((ValueError, OSError, TypeError), match=message) as caught:
        import_files(make(tmp_path), **how)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["paths", *ROLE_NAMES, *LAYOUT])
def test_values_of_every_type(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = npz(tmp_path)

    def call(value: Any) -> None:
        given = {"paths": path, "positions": "nodes", "outputs": "T", name: value}
        import_files(given.pop("paths"), **given)

    # Files that do not exist are named themselves.
    wrong = [line for line in shows(name, call) if "does not exist: expected a file" not in line]
    assert not wrong, "\n".join(wrong)


def test_a_data_file_of_our_own(tmp_path: Path) -> None:
    EXPECTED.save(tmp_path / "a.h5")
    with pytest.raises(ValueError, match="a data file of lno already: use it as it is"):
        Fields.from_files(tmp_path / "a.h5")


def test_permission_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table(tmp_path)

    def deny(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", deny)  # the tests may run as root, who may read everything
    with pytest.raises(PermissionError, match=r"cannot read .*a\.csv: permission denied\. Ask"):
        Fields.from_files(path, **ROLES)


@pytest.mark.parametrize(
    ("suffix", "module", "packages"),
    [(".nc", "xarray", "xarray and h5netcdf"), (".vtu", "meshio", "meshio")],
)
def test_a_missing_extra_is_named(
    suffix: str, module: str, packages: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    path = text(tmp_path, "a", f"a{suffix}")
    message = rf"needs {packages}, which is not installed: pip install '.*\[formats\]'"
    with pytest.raises(ValueError, match=message):
        Fields.from_files(path)


def test_missing_extras_of_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, method in (("xarray", "to_xarray"), ("pandas", "to_dataframe")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ValueError, match=rf"{method} needs {module}, which is not installed"):
            getattr(EXPECTED, method)()


def test_one_sample_is_said(tmp_path: Path, run: Run) -> None:
    path = write_csv(tmp_path / "a.csv", sample_columns(0))
    done = run("data", "import", path, "--out", tmp_path / "a.h5", "--outputs", "T")
    assert done.returncode == 0
    assert "one sample only: enough to predict from, not to train on" in done.stdout


def test_the_command_says_it_in_one_line(tmp_path: Path, run: Run) -> None:
    words = ("data", "import", npz(tmp_path), "--out", tmp_path / "a.h5")
    done = run(*words, "--outputs", "temperature")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert not (tmp_path / "a.h5").exists()
    assert "expected a name ending in .h5" in run(*words[:4], tmp_path / "a.nc").stderr


def test_the_file_that_is_read_is_not_overwritten(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "a.h5"
    path.write_bytes(b"precious")
    done = run("data", "import", path, "--out", path)
    assert "it is read from, and would be lost" in done.stderr
    assert path.read_bytes() == b"precious"


def test_points_without_a_value_are_counted(tmp_path: Path, run: Run) -> None:
    np.savez(tmp_path / "a.npz", sst=SST)
    done = run("data", "import", tmp_path / "a.npz", "--out", tmp_path / "a.h5")
    assert "left out 6 of 60 points (10.0 %) without a value" in done.stdout
