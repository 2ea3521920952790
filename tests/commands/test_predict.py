"""`lno predict` writes files of other programs, of one sample or of all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import Run
from scipy.io import netcdf_file

from lno import Fields, Operator


@pytest.fixture
def files(operator: Operator, line_fields: Fields, tmp_path: Path) -> Path:
    operator.save(tmp_path / "m.safetensors")
    line_fields.replace(grid=(24,)).split(3)[0].save(tmp_path / "data.h5")
    return tmp_path


def test_files_of_one_sample_need_a_choice_before_the_work(run: Run, files: Path) -> None:
    words = ("predict", files / "m.safetensors", files / "data.h5", "--out", files / "a.vtu")
    done = run(*words)
    assert done.returncode == 1 and not (files / "a.vtu").exists()
    assert "a .vtu file holds one sample, not 3. Choose one, sample=k or --sample k" in done.stderr
    done = run(*words, "--sample", 1, "--plot", files / "a.png")
    assert done.returncode == 0, done.stderr
    assert (files / "a.vtu").read_bytes().startswith(b"<?xml") and (files / "a.png").exists()
    done = run(*words, "--sample", 7)
    assert done.returncode == 1 and "data.h5 has 3, counted from 0" in done.stderr
    assert "bug" not in done.stderr


def test_the_folder_of_a_run_stands_for_its_model(run: Run, files: Path) -> None:
    (files / "m.safetensors").rename(files / "model.safetensors")
    assert run("predict", files, files / "data.h5", "--out", files / "a.h5").returncode == 0
    assert "df" in run("info", files).stdout
    (files / "model.safetensors").unlink()
    done = run("predict", files, files / "data.h5", "--out", files / "a.h5")
    assert "model.safetensors does not exist: expected a model" in done.stderr
    assert "model.safetensors does not exist" in run("info", files).stderr


def test_several_samples_fit_into_a_grid_with_names(
    run: Run, files: Path, operator: Operator
) -> None:
    done = run("predict", files / "m.safetensors", files / "data.h5", "--out", files / "a.nc")
    assert done.returncode == 0, done.stderr
    data = Fields.load(files / "data.h5")
    with netcdf_file(files / "a.nc", mmap=False) as file:
        assert file.variables["df"].dimensions == ("sample", "x0")
        expected = operator.predict(data)[..., 0]
        np.testing.assert_allclose(file.variables["df"][:], expected, atol=1e-6)


def test_volumes_of_loose_points_are_not_drawn_and_said_so_before_the_work(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).uniform(size=(4, 30, 3))
    data = Fields(x, x[..., :1], y=x[..., 1:2], names={"x": ["x", "y", "z"]})
    config = {"width": 8, "latents": 4, "blocks": 1, "heads": 2}
    Operator.fit(data, epochs=1, config=config, progress=False).save(tmp_path / "m.safetensors")
    data.subset([0]).save(tmp_path / "data.h5")
    words = ("predict", tmp_path / "m.safetensors", tmp_path / "data.h5", "--out")
    with monkeypatch.context() as patch:
        patch.delattr(Operator, "predict")
        done = run(*words, tmp_path / "a.vtu", "--plot", tmp_path / "a.png")
    assert done.returncode == 1 and not (tmp_path / "a.vtu").exists()
    assert "cannot draw points over x, y, z" in done.stderr and ".vtu file" in done.stderr
    assert run(*words, tmp_path / "a.vtu").returncode == 0


def test_names_and_units_are_kept_at_other_points(run: Run, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, load = random.uniform(size=(30, 1)), random.uniform(size=(4, 1))
    data = Fields(
        x,
        y=load[:, None] * np.sin(x)[None],
        parameters=load,
        names={"x": ["s"], "y": ["T"], "parameters": ["load"]},
        units={"x": ["m"], "y": ["K"], "parameters": ["N"]},
    )
    config = {"width": 8, "latents": 4, "blocks": 1, "heads": 2}
    Operator.fit(data, epochs=1, config=config, progress=False).save(tmp_path / "m.safetensors")
    (tmp_path / "new.csv").write_text("s [m];load\n0,1;2\n0,2;2\n")
    (tmp_path / "at.csv").write_text("s\n0.3\n0.4\n0.5\n")
    words = ("predict", tmp_path / "m.safetensors", tmp_path / "new.csv", "--at")
    assert run(*words, tmp_path / "at.csv", "--out", tmp_path / "a.h5").returncode == 0
    found = Fields.load(tmp_path / "a.h5")
    assert found[0].x_query.ravel().tolist() == [0.3, 0.4, 0.5]
    assert found.names == {**data.names, "u": []} and found.units == {**data.units, "u": []}
