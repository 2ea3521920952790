"""A table of parameters beside the files: no sample gets the parameters of another one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lno.data.importing import Imported, import_files


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Files run_0.csv to run_11.csv; T is the number of the run everywhere."""
    files = [tmp_path / f"run_{k}.csv" for k in range(12)]
    for k, file in enumerate(files):
        file.write_text("x,T\n" + "".join(f"{x},{k}\n" for x in (0.0, 0.5, 1.0)))
    return files


def table(folder: Path, text: str) -> str:
    (folder / "cases.csv").write_text(text)
    return str(folder / "cases.csv")


def require_own_parameters(found: Imported) -> None:
    assert found.fields.parameters is not None and found.fields.names["parameters"] == ["Re"]
    np.testing.assert_array_equal(found.fields.parameters[:, 0], [y[0, 0] for y in found.fields.y])


def test_the_order_of_a_shell_is_not_taken_for_that_of_the_rows(runs: list[Path]) -> None:
    cases = table(runs[0].parent, "Re\n" + "".join(f"{k}\n" for k in range(12)))
    with pytest.raises(
        ValueError, match=r"row 3 may be that of run_10\.csv, .* or that of run_2\.csv"
    ):
        import_files(sorted(runs), outputs="T", parameters=cases)
    found = import_files(str(runs[0].parent / "run_*.csv"), outputs="T", parameters=cases)
    require_own_parameters(found)
    assert any("run_0.csv first and run_11.csv last" in note for note in found.notes)
    require_own_parameters(import_files(runs, outputs="T", parameters=cases))


@pytest.mark.parametrize("name", ["run_{}", "run_{}.csv"])
def test_rows_are_found_by_the_names_of_files(runs: list[Path], name: str) -> None:
    rows = [f"{name.format(k)},{k}\n" for k in np.random.default_rng(0).permutation(15)]
    cases = table(runs[0].parent, "case,Re\n" + "".join(rows))
    found = import_files(sorted(runs), outputs="T", parameters=cases)
    require_own_parameters(found)
    assert any("rows found by 'case', 3 of 15 not used" in note for note in found.notes)
    short = table(runs[0].parent, "case,Re\n" + "".join(r for r in rows if "run_7" not in r))
    with pytest.raises(ValueError, match="expected one row for the sample 'run_7', got 0"):
        import_files(runs, outputs="T", parameters=short)
    twice = table(runs[0].parent, "case,Re\n" + "".join([*rows, rows[0]]))
    with pytest.raises(ValueError, match="has two rows"):
        import_files(runs, outputs="T", parameters=twice)


def test_rows_are_found_by_the_column_that_tells_samples_apart(tmp_path: Path) -> None:
    points = tmp_path / "points.csv"
    points.write_text("run,x,T\n" + "".join(f"{k},{x},{k}\n" for k in (3, 1, 2) for x in (0, 1)))
    cases = table(tmp_path, "run,Re\n1.0,1\n2.0,2\n3.0,3\n")
    require_own_parameters(import_files(points, outputs="T", parameters=cases))
