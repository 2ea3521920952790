"""From a few sensors to the whole field."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_waves import SOME, WINDOW, bounds, sensors, waves

from lno import Operator, Propagation, RandomRatio, Window, cli
from lno.commands.reconstruct import reconstruct_file
from lno.data import Batch
from lno.data.sensors import SensorError
from lno.data.tables import write_csv
from lno.reconstruct import Reconstructor


def test_the_field_is_on_the_grid_and_passes_through_sensors_on_it(whole: Reconstructor) -> None:
    truth = waves(1, 7)
    inside = WINDOW.contains(truth.x, ["t", "x"])
    x, u = truth.x[inside][::11], np.asarray(truth.y)[0, inside][::11]
    found = replace(whole, calibration=SOME)(x, u)
    assert found.mean.shape == (17, 16)
    np.testing.assert_allclose(found.axes[1], np.arange(16) / 16)
    flat = found.mean.reshape(-1)[inside][::11]
    np.testing.assert_allclose(flat, u[:, 0], atol=1e-4)
    lower, upper = bounds(found)
    assert np.all(lower < found.mean)
    assert np.all(found.mean < upper)


def test_a_save_that_fails_leaves_all_files_as_they_were(
    whole: Reconstructor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace(whole, calibration=SOME).save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    other = replace(whole, completer=whole.completer.member(1))
    real = Operator.save

    def failing(self: Operator, path: Path, **keys: bool) -> None:
        if "propagator" in Path(path).name:
            raise OSError("disk full")
        real(self, path, **keys)

    monkeypatch.setattr(Operator, "save", failing)
    with pytest.raises(OSError, match="disk full"):
        other.save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert len(before) == 3


def test_a_completer_alone_reconstructs_its_window(
    whole: Reconstructor, folder: Path, tmp_path: Path
) -> None:
    alone, table = Reconstructor(whole.completer), sensors()
    found, both = alone(table[:, [1, 0]], table[:, 2:]), whole(table[:, [1, 0]], table[:, 2:])
    assert found.lower is found.upper is None and found.scores == ()
    assert both.lower is None  # without calibration nothing is made up
    inside = (both.axes[0] >= 0.25) & (both.axes[0] <= 0.75)
    np.testing.assert_allclose(found.axes[0], both.axes[0][inside])
    np.testing.assert_allclose(found.mean, both.mean[inside], atol=1e-5)
    with pytest.raises(SensorError, match=r"t = 0\.9 lies outside the domain, 0\.25 to 0\.75"):
        alone([[0.9, 0.5]], [[1.0]])
    fitted = alone.calibrated(waves(9, 1), [RandomRatio(0.1)])
    assert fitted.calibration is not None and fitted.calibration.outside == ()
    assert set(fitted.coverage(waves(9, 2), [RandomRatio(0.1)])) == {"inside", "all"}
    judged = fitted(table[:, [1, 0]], table[:, 2:])
    assert [score.name for score in judged.scores] == ["sensors", "residual"]
    lower, upper = bounds(judged)
    assert lower.shape == (int(inside.sum()), 16)
    assert np.all(lower < upper)
    with pytest.raises(ValueError, match="calibration is that of a completer alone"):
        Reconstructor(whole.completer, whole.propagator, fitted.calibration)
    replace(whole, calibration=SOME).save(tmp_path)
    alone.save(tmp_path)  # over one that had more
    assert [path.name for path in tmp_path.iterdir()] == ["completer.safetensors"]
    assert Reconstructor.load(tmp_path, "cpu").propagator is None
    write_csv(tmp_path / "s.csv", ["x", "t", "u"], table)
    drawn = {"model": tmp_path, "plot": tmp_path / "f.png", "device": "cpu"}
    reconstruct_file(tmp_path / "s.csv", tmp_path / "f.npz", **drawn)
    assert sorted(np.load(tmp_path / "f.npz").files) == ["t", "u", "x"]
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


def test_a_completer_that_is_not_conditional_has_residuals_too(whole: Reconstructor) -> None:
    plain = replace(whole, completer=replace(whole.completer, conditional=False))
    table = sensors()
    x, u = table[:, [1, 0]], table[:, 2:]
    residuals = [one._predict(x[None], u[None]).residuals for one in (plain, whole)]
    np.testing.assert_allclose(*residuals, atol=1e-4)
    assert not np.allclose(plain(x, u).mean, whole(x, u).mean, atol=1e-3)


def test_every_member_makes_one_pass(whole: Reconstructor, monkeypatch: pytest.MonkeyPatch) -> None:
    passes, real = [], Operator.predict_batch

    def counted(self: Operator, batch: Batch, *others: object, **named: object) -> object:
        passes.append((type(self.task).__name__, len(self.members)))
        return real(self, batch, *others, **named)

    monkeypatch.setattr(Operator, "predict_batch", counted)
    replace(whole, calibration=SOME)(sensors()[:, [1, 0]], sensors()[:, 2:])
    assert passes == [("Completion", 3), *[("Propagation", 1)] * 3]


def test_operators_that_do_not_belong_together_are_refused(whole: Reconstructor) -> None:
    with pytest.raises(ValueError, match="expected a completer and a propagator"):
        Reconstructor(whole.propagator, whole.completer)
    other = replace(whole.propagator, task=Propagation(Window("t", 0.1, 0.9)))
    with pytest.raises(ValueError, match="was trained for Window"):
        Reconstructor(whole.completer, other)
    scattered = replace(whole.propagator, labels=replace(whole.propagator.labels, grid=None))
    with pytest.raises(ValueError, match="trained on fields on a grid"):
        Reconstructor(whole.completer, scattered)
    with pytest.raises(ValueError, match=r"expected x \(n, 2\), the t, x of .* got \(1, 3, 2\)"):
        whole(np.zeros((1, 3, 2)), np.zeros((1, 3, 1)))
    for noise in (0.0, 0.1):
        with pytest.raises(ValueError, match="at least one sensor"):
            whole(np.zeros((0, 2)), np.zeros((0, 1)), noise)


def test_a_file_of_sensors_becomes_a_field_and_a_picture(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    write_csv(tmp_path / "s.csv", ["x", "t", "u"], sensors())
    words = ["lno", "reconstruct", str(tmp_path / "s.csv"), "--out", str(tmp_path / "f.npz")]
    words += ["--plot", str(tmp_path / "f.png"), "--model", str(folder), "--device", "cpu"]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 0, capsys.readouterr().err
    found = np.load(tmp_path / "f.npz", allow_pickle=False)
    assert {k: found[k].shape for k in found.files} == {
        "t": (17,),
        "x": (16,),
        "u": (17, 16),
        "lower": (17, 16),
        "upper": (17, 16),
        **dict.fromkeys(("score_values", "score_thresholds", "score_names"), (3,)),
    }
    assert found["score_names"].tolist() == ["sensors", "residual", "disagreement"]
    np.testing.assert_array_equal(found["score_thresholds"], [2, 99, 99])
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    assert Reconstructor.load(folder, "cpu").calibration == SOME


def test_a_folder_without_models_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="expected a folder with completer"):
        Reconstructor.load(tmp_path)
    with pytest.raises(ValueError, match=r"expected a name ending in \.vtu"):
        reconstruct_file("s.csv", tmp_path / "f.mat")


def test_several_samples_at_once_are_each_of_them(whole: Reconstructor) -> None:
    random = np.random.default_rng(0)
    x = np.stack((random.uniform(0.25, 0.75, (3, 9)), random.uniform(size=(3, 9))), -1)
    u = np.sin(2 * np.pi * x[..., 1:])
    together = whole._predict(x, u)
    assert together.fields.shape == (3, 3, 17 * 16)
    for k in range(3):
        alone = whole._predict(x[k : k + 1], u[k : k + 1])
        for name in ("fields", "residuals", "differences"):
            each, one = (getattr(found, name) for found in (together, alone))
            np.testing.assert_allclose(each[:, k], one[:, 0], atol=1e-5)
