"""`lno train` calibrates, `lno predict` writes bounds and warns, `lno evaluate` measures them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import Run
from small_operators import Trained, lines

from lno import Fields, Operator
from lno.data.division import Division


@pytest.fixture(scope="module")
def folder(line: Trained, cloud: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Calibrated models, and samples in files."""
    path = tmp_path_factory.mktemp("trust")
    line.operator.save(path / "line.safetensors")
    cloud.operator.save(path / "cloud.safetensors")
    line.test.save(path / "test.h5")
    first = line.test.subset([0])
    _write(path / "one.csv", first)
    _write(path / "large.csv", first.replace(u=1000 * np.asarray(first.u)))
    rows = [f"{a},{b}" for a, b in cloud.test[0].x[:7]]
    (path / "seven.csv").write_text("\n".join(["x0,x1", *rows]))
    return path


def _write(path: Path, fields: Fields) -> None:
    [sample] = fields
    assert sample.parameters is not None
    rows = [
        f"{x[0]},{u[0]},{sample.parameters[0]}" for x, u in zip(sample.x, sample.u, strict=True)
    ]
    path.write_text("\n".join(["x0,f,b", *rows]))


def test_bounds_are_columns(run: Run, folder: Path, tmp_path: Path, line: Trained) -> None:
    words = ("predict", folder / "line.safetensors", folder / "one.csv", "--bounds", 0.9, "--out")
    done = run(*words, tmp_path / "a.csv")
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "bounds of 90 %" in done.stdout
    header, *rows = (tmp_path / "a.csv").read_text().splitlines()
    assert header == "x0,df,power,df_lower,power_lower,df_upper,power_upper"
    table = np.array([row.split(",") for row in rows], float)
    expected = line.operator.predict(line.test.subset([0]), bounds=0.9)
    np.testing.assert_allclose(table[:, 1:3], expected.prediction[0], rtol=1e-4)
    np.testing.assert_allclose(table[:, 3:5], expected.lower[0], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(table[:, 5:7], expected.upper[0], rtol=1e-3, atol=1e-3)


def test_bounds_in_files_of_several_samples(
    run: Run, folder: Path, tmp_path: Path, line: Trained
) -> None:
    expected = line.operator.predict(line.test, bounds=0.9)
    words = ("predict", folder / "line.safetensors", folder / "test.h5", "--bounds", 0.9, "--out")
    assert run(*words, tmp_path / "a.npz").returncode == 0
    assert run(*words, tmp_path / "a.h5").returncode == 0
    fields = Fields.load(tmp_path / "a.h5")
    assert fields.names["y"][2:] == ["df_lower", "power_lower", "df_upper", "power_upper"]
    together = (expected.prediction, expected.lower, expected.upper)
    assert np.array_equal(fields.y, np.concatenate(together, -1))


@pytest.mark.parametrize("options", [(), ("--bounds", 0.9)])
def test_out_of_distribution_is_a_warning_and_an_exit_code(
    run: Run, folder: Path, tmp_path: Path, options: tuple[object, ...]
) -> None:
    words = ("predict", folder / "line.safetensors", "--out", tmp_path / "a.csv", *options)
    assert run(*words, folder / "one.csv", "--strict").returncode == 0
    (tmp_path / "a.csv").unlink()
    done = run(*words, folder / "large.csv", "--strict")
    assert done.returncode == 3
    assert "warning: out of distribution: the largest value of f is" in done.stderr
    assert (tmp_path / "a.csv").exists()  # written all the same
    done = run(*words, folder / "large.csv")
    assert done.returncode == 0 and "warning: out of distribution" in done.stderr


def test_what_a_model_without_calibration_cannot_do_is_said(
    run: Run, folder: Path, tmp_path: Path, line: Trained
) -> None:
    bare = tmp_path / "bare.safetensors"
    Operator.fit(lines(12), epochs=1, progress=False, config={"width": 8, "latents": 4}).save(bare)
    words = ("predict", bare, folder / "one.csv", "--out", tmp_path / "a.csv")
    done = run(*words, "--bounds", 0.9)
    assert done.returncode == 1 and "operator.calibrated(held_out)" in done.stderr
    done = run(*words, "--strict")
    assert done.returncode == 1 and "calibrate the model" in done.stderr
    assert not (tmp_path / "a.csv").exists()
    assert run(*words).returncode == 0
    assert "none: not calibrated" in run("info", bare).stdout
    assert "90 %, calibrated on 40 held-out" in run("info", folder / "line.safetensors").stdout


def test_query_points_that_are_taken_for_the_geometry_are_said(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    words = ("predict", folder / "cloud.safetensors", folder / "seven.csv", "--out")
    done = run(*words, tmp_path / "a.csv")
    assert done.returncode == 0
    assert "warning: x: a sample has 7 points" in done.stderr and "x_query (--at" in done.stderr


def test_evaluate_measures_bounds_and_scores(run: Run, folder: Path) -> None:
    done = run("evaluate", folder / "line.safetensors", "--data", folder / "test.h5")
    assert done.returncode == 0, done.stderr
    assert "inside the bounds of 90 %: df 9" in done.stdout
    assert "out of distribution: " in done.stdout


def test_train_calibrates_where_enough_samples_are_held_out(run: Run, tmp_path: Path) -> None:
    """A tenth of the training samples; the same as with the Python functions."""
    lines(96).save(tmp_path / "many.h5")
    words = ("--epochs", 1, "--model", "deeponet", "--device", "cpu", "--out")
    done = run("train", tmp_path / "many.h5", *words, tmp_path / "many")
    assert done.returncode == 0, done.stderr
    assert "lno predict --bounds 0.9, calibrated on 9 held-out samples: on average" in done.stdout
    loaded = Operator.load(tmp_path / "many" / "model.safetensors", "cpu")
    _, held_out, _ = Division().split(lines(96))
    assert held_out is not None
    assert loaded.calibrated(held_out).trust == loaded.trust
    lines(12).save(tmp_path / "few.h5")
    done = run("train", tmp_path / "few.h5", *words, tmp_path / "few")
    assert "no bounds: they are calibrated on 9 validation samples or more. Import" in done.stdout
    assert Operator.load(tmp_path / "few" / "model.safetensors", "cpu").trust.bounds is None
