"""From a few sensors to the whole field: bounds that hold, and sensors that are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lno import Completion, Fields, Operator, Propagation, RandomRatio, Recipe, Window, cli
from lno.calibration import Calibration, Nonconformity, calibrate, coverage, flags, promise
from lno.commands.reconstruct import reconstruct_file
from lno.data import Batch
from lno.data.interpolate import interpolate_rbf
from lno.data.sensors import SensorError
from lno.data.tables import write_csv
from lno.problems import Burgers
from lno.problems.make import make
from lno.reconstruct import PRETRAINED, Reconstruction, Reconstructor

WINDOW = Window("t", 0.25, 0.75)
CONFIG = {"width": 24, "latents": 12, "blocks": 1, "heads": 2, "layers": 1}


SOME = Calibration(0.8, 9, (9,), (3.0,), (4.0,), (99.0,), (99.0,))


def waves(samples: int, seed: int) -> Fields:
    """Travelling waves of random phase and speed on a periodic line."""
    random = np.random.default_rng(seed)
    t, x = np.linspace(0, 1, 17), np.arange(16) / 16
    points = np.stack(np.meshgrid(t, x, indexing="ij"), -1).reshape(-1, 2)
    phase, speed = random.uniform(size=(2, samples, 1))
    u = np.sin(2 * np.pi * (points[:, 1] - speed * points[:, 0] + phase))
    return Fields(
        points,
        y=u[..., None],
        grid=(17, 16),
        period=(None, 1.0),
        names={"x": ["t", "x"], "y": ["u"]},
    )


@pytest.fixture(scope="session")
def whole() -> Reconstructor:
    """Trained for a few seconds, not calibrated."""
    keys = {"config": CONFIG, "members": 3, "device": "cpu", "progress": False}
    keys["recipe"] = Recipe(epochs=15, batch=8)
    data = waves(96, 0)
    pattern = Completion(RandomRatio(0.05, 0.3), WINDOW)
    return Reconstructor(
        Operator.fit(data, task=pattern, conditional=True, **keys),
        Operator.fit(data, task=Propagation(WINDOW), **keys),
    )


@pytest.fixture(scope="session")
def folder(whole: Reconstructor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    replace(whole, calibration=SOME).save(path)
    return path


@pytest.fixture(scope="session")
def scored(whole: Reconstructor) -> dict[float, tuple[list[Nonconformity], list[Nonconformity]]]:
    """Of fields to calibrate on and of others, by the share of points that is observed."""
    return {
        r: tuple(whole.nonconformity(waves(40, k), [RandomRatio(r)], seed=k) for k in (1, 2))
        for r in (0.05, 0.2)
    }


def calibrated(whole: Reconstructor, scored: dict, ratio: float = 0.2) -> Reconstructor:
    return replace(whole, calibration=calibrate(scored[ratio][0], 0.9))


def bounds(found: Reconstruction) -> tuple[np.ndarray, np.ndarray]:
    assert found.lower is not None and found.upper is not None
    return found.lower, found.upper


def sensors(count: int = 12, last: float = 0.75) -> np.ndarray:
    random = np.random.default_rng(3)
    t, x = random.uniform(0.25, last, count), random.uniform(size=count)
    return np.column_stack((x, t, np.sin(2 * np.pi * (x - 0.5 * t + 0.2))))


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


def test_too_few_fields_are_refused_before_the_work(whole: Reconstructor) -> None:
    with pytest.raises(ValueError, match="need at least 9 held-out fields, got 8"):
        whole.calibrated(waves(8, 1), [RandomRatio(0.1)])
    with pytest.raises(ValueError, match="no bounds without calibration"):
        whole.coverage(waves(8, 1), [RandomRatio(0.1)])


def test_calibrated_bounds_hold_on_other_fields(
    whole: Reconstructor, scored: dict[float, tuple[list[Nonconformity], list[Nonconformity]]]
) -> None:
    fitted, tested = ([*scored[0.05][k], *scored[0.2][k]] for k in (0, 1))
    calibration, wider = (calibrate(fitted, level) for level in (0.8, 0.95))
    shares = coverage(tested, calibration)
    assert set(shares) == {"inside", "outside", "all"}
    for one in (shares, *(coverage([one], calibration) for one in tested)):
        assert one["all"] == pytest.approx(0.82, abs=0.1)
    assert wider.sensors == calibration.sensors == (7, 29)
    for name in ("inside", "outside"):
        pairs = zip(getattr(wider, name), getattr(calibration, name), strict=True)
        assert all(a > b for a, b in pairs)
    with pytest.raises(ValueError, match="expected a pattern with a definite number"):
        whole.nonconformity(waves(3, 1), [RandomRatio(0.1, 0.3)])


def test_coverage_follows_the_stated_level(
    scored: dict[float, tuple[list[Nonconformity], list[Nonconformity]]],
) -> None:
    fitted, tested = scored[0.2]
    levels = (0.5, 0.7, 0.9)
    curve = [coverage(tested, calibrate(fitted, level))["all"] for level in levels]
    assert curve == pytest.approx(levels, abs=0.1)
    assert curve == sorted(curve)


def test_calibrating_is_scoring_and_choosing_factors(whole: Reconstructor) -> None:
    patterns, data = [RandomRatio(0.1), RandomRatio(0.05)], waves(9, 1)
    once = whole.calibrated(data, patterns)
    assert once.calibration == calibrate(whole.nonconformity(data, patterns), 0.9)
    assert once.calibration is not None and once.calibration.fields == 9
    assert once.coverage(data, patterns)["all"] == 1  # with 9 fields, none may have a point outside


@pytest.mark.filterwarnings("ignore:out of distribution")  # where the noise is not told
def test_noisy_sensors_are_smoothed_and_widen_the_bounds(
    whole: Reconstructor, scored: dict[float, tuple[list[Nonconformity], list[Nonconformity]]]
) -> None:
    whole = calibrated(whole, scored)
    truth, random = waves(1, 7), np.random.default_rng(0)
    inside = WINDOW.contains(truth.x, ["t", "x"])
    x, u = truth.x[inside][::3], np.asarray(truth.y)[0, inside][::3]
    noise = 0.3
    wrong = u + noise * random.standard_normal(u.shape)
    exact, smooth, clean = whole(x, wrong), whole(x, wrong, noise), whole(x, u)
    errors = [
        np.abs(r.mean.reshape(-1) - np.asarray(truth.y)[0, :, 0])[inside].mean()
        for r in (exact, smooth)
    ]
    assert errors[1] < 0.9 * errors[0]
    widths = [
        (upper - lower).reshape(-1)[inside].mean()
        for lower, upper in (bounds(clean), bounds(smooth))
    ]
    assert widths[1] > 1.5 * widths[0]


def test_bounds_hold_with_noisy_sensors_too(
    whole: Reconstructor, scored: dict[float, tuple[list[Nonconformity], list[Nonconformity]]]
) -> None:
    known, truth = calibrated(whole, scored), waves(6, 8)
    inside, random = WINDOW.contains(truth.x, ["t", "x"]), np.random.default_rng(0)
    contained = []
    for field in np.asarray(truth.y):
        chosen = random.permutation(inside.sum())[:40]
        x, u = truth.x[inside][chosen], field[inside][chosen]
        found = known(x, u + 0.2 * random.standard_normal(u.shape), 0.2)
        lower, upper = (v.reshape(-1)[inside] for v in bounds(found))
        contained.append(((lower <= field[inside, 0]) & (field[inside, 0] <= upper)).mean())
    assert 0.8 < np.mean(contained) < 0.99


def test_sensors_at_few_places_count_for_less_than_as_many_everywhere(
    whole: Reconstructor,
) -> None:
    points = waves(1, 0).x
    points = points[WINDOW.contains(points, ["t", "x"])].reshape(-1, 16, 2)
    random = np.random.default_rng(1).permutation(points.reshape(-1, 2))[:32]
    assert whole.effective_sensors(random) == pytest.approx(32, rel=0.3)
    assert whole.effective_sensors(points.reshape(-1, 2)) == len(points) * 16  # no gap at all
    for few in (points[:, ::8], points[::4, :].reshape(-1, 2)[:32]):
        few = few.reshape(-1, 2)
        assert whole.effective_sensors(few) < 0.7 * len(few)
    narrow = replace(
        whole, calibration=Calibration(0.9, 9, (4, 40), (9.0, 1.0), *[(99.0, 99.0)] * 3)
    )
    wide = [
        (bounds(found)[1] - bounds(found)[0])[6:11].mean()
        for x in (random, points[:, ::8].reshape(-1, 2)[:32])
        for found in [narrow(x, np.sin(2 * np.pi * x[:, 1:]))]
    ]
    assert wide[1] > wide[0]


def test_several_measurements_at_one_place_are_averaged(
    whole: Reconstructor, folder: Path, tmp_path: Path
) -> None:
    table = sensors()
    x, u = table[:, [1, 0]], table[:, 2:]
    twice, both = np.concatenate((x, x)), np.concatenate((u - 0.1, u + 0.1))
    once, averaged = whole(x, u, 0.1), whole(twice, both, 0.1)
    np.testing.assert_allclose(averaged.mean, once.mean, atol=1e-4)
    again = whole(twice[::-1], both[::-1], 0.1)
    np.testing.assert_allclose(again.mean, averaged.mean, atol=1e-6)  # in any order
    rows = np.concatenate((table, table + np.array([0, 0, 0.1])))
    write_csv(tmp_path / "s.csv", ["x", "t", "u"], rows)
    reconstruct_file(tmp_path / "s.csv", tmp_path / "f.npz", model=folder, noise=0.1)
    with pytest.raises(ValueError, match="at the same place: leave one out, or say how exact"):
        reconstruct_file(tmp_path / "s.csv", tmp_path / "f.npz", model=folder)


def test_fields_on_another_grid_are_not_compared_with(whole: Reconstructor) -> None:
    data, patterns = waves(4, 1), [RandomRatio(0.1)]
    squeezed = Fields(data.x**2, y=data.y, grid=data.grid, period=data.period, names=data.names)
    with pytest.raises(ValueError, match=r"expected whole fields on the regular grid \(17, 16\)"):
        whole.nonconformity(squeezed, patterns)


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

    def counted(self: Operator, batch: Batch, noise: float = 0.0) -> object:
        passes.append((type(self.task).__name__, len(self.members)))
        return real(self, batch, noise)

    monkeypatch.setattr(Operator, "predict_batch", counted)
    replace(whole, calibration=SOME)(sensors()[:, [1, 0]], sensors()[:, 2:])
    assert passes == [("Completion", 3), *[("Propagation", 1)] * 3]


@pytest.mark.filterwarnings("ignore:out of distribution")
def test_members_disagree_more_where_no_sensor_is_near(whole: Reconstructor) -> None:
    table = sensors(40, last=0.35)  # all of them early
    lower, upper = bounds(replace(whole, calibration=SOME)(table[:, [1, 0]], table[:, 2:]))
    width = upper - lower
    assert width[4:6].mean() < width[10:12].mean()


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


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0.5,1.5,0", "line 3: t = 1.5 lies outside the domain, 0 to 1"),
        ("-0.1,0.5,0", "line 3: x = -0.1 lies outside the domain, 0 to 1"),
        ("0.5,0.9,0", "line 3: this model was trained to observe t from 0.25 to 0.75 only"),
        ("0.25,0.5,3", "lines 2 and 3: two values, 1 and 3, at the same place"),
        ("0.5,nan,0", "line 3, column 't': expected a number, got 'nan'"),
        ("0.5,half,0", "line 3, column 't': expected a number, got 'half'"),
        ("0.5,0.5", "line 3: expected 3 cells, got 2"),
    ],
)
def test_sensors_that_cannot_be_used_are_named_by_their_line(
    row: str, message: str, folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "s.csv"
    path.write_text(f"x,t,u\n0.25,0.5,1\n{row}\n")
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        reconstruct_file(path, tmp_path / "f.npz", model=folder, device="cpu")
    assert not (tmp_path / "f.npz").exists()


@pytest.mark.parametrize(
    ("x", "u", "message"),
    [
        ([0.5, 1.5], 0.0, r"sensor 1: x = 1\.5 lies outside the domain, 0 to 1: leave it out"),
        ([0.9, 0.5], 0.0, "sensor 1: this model was trained to observe t from 0.25 to 0.75 only"),
        ([0.5, 0.25], 3.0, "sensors 0 and 1: two values, 1 and 3, at the same place"),
        ([0.5, np.nan], 0.0, "sensor 1: expected finite numbers"),
        ([0.5, 0.5], np.inf, "sensor 1: expected finite numbers"),
    ],
)
def test_python_users_are_told_which_sensor_is_wrong(
    x: list[float], u: float, message: str, whole: Reconstructor
) -> None:
    with pytest.raises(SensorError, match=message) as caught:
        whole([[0.5, 0.25], x], [[1.0], [u]])
    assert caught.value.sensors[-1] == 1


def test_the_two_ends_of_a_period_are_one_place(whole: Reconstructor) -> None:
    x, u = whole.validated([[0.5, 0.0], [0.5, 1.0], [0.5, 0.5]], [[1.0], [1.0], [2.0]])
    np.testing.assert_allclose(x, [[0.5, 0.0], [0.5, 0.5]])
    np.testing.assert_allclose(u, [[1], [2]])
    with pytest.raises(SensorError, match="sensors 0 and 1: two values"):
        whole.validated([[0.5, 0.0], [0.5, 1.0]], [[1.0], [2.0]])
    x, u = whole.validated([[0.5, 0.0], [0.5, 1.0]], [[1.0], [2.0]], noise=0.1)
    np.testing.assert_allclose(np.hstack((x, u)), [[0.5, 0.0, 1.5]])


def test_a_folder_without_models_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="expected a folder with completer"):
        Reconstructor.load(tmp_path)
    with pytest.raises(ValueError, match=r"expected a name ending in \.npz"):
        reconstruct_file("s.csv", tmp_path / "f.csv")


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


def test_fields_out_of_distribution_are_reported(
    whole: Reconstructor,
    scored: dict[float, tuple[list[Nonconformity], list[Nonconformity]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = calibrated(whole, scored)  # with 29 sensors
    table = sensors(29)
    x, u = table[:, [1, 0]], table[:, 2:]
    noisy = np.random.default_rng(0).standard_normal(u.shape)
    found = known(x, u)
    assert not found.flagged
    assert [score.name for score in found.scores] == ["sensors", "residual", "disagreement"]
    with pytest.warns(UserWarning, match="out of distribution: the residuals of the completer"):
        found = known(x, noisy)
    assert found.flagged and found.scores[1].flagged
    with pytest.warns(
        UserWarning, match="calibrated for 29 sensors or more: with 2, they"
    ) as caught:
        assert known(x[:2], np.array([[9.0], [-9.0]])).flagged
    assert len(caught) == 1  # one warning with all reasons
    assert not known(x, noisy, noise=3.0).flagged  # residuals within the noise are none
    known.save(tmp_path)
    for values, warned, strict in ((u, False, True), (noisy, True, False), (noisy, True, True)):
        write_csv(tmp_path / "s.csv", ["x", "t", "u"], np.column_stack((table[:, :2], values)))
        words = ["lno", "reconstruct", str(tmp_path / "s.csv"), "--out", str(tmp_path / "f.npz")]
        words += ["--model", str(tmp_path), "--device", "cpu", *["--strict"] * strict]
        monkeypatch.setattr("sys.argv", words)
        with pytest.raises(SystemExit) as left:
            cli.main()
        assert left.value.code == (3 if warned and strict else 0)
        assert ("out of distribution" in capsys.readouterr().err) is warned
        stored = np.load(tmp_path / "f.npz", allow_pickle=False)
        assert (stored["score_values"] > stored["score_thresholds"]).any() == warned
    (tmp_path / "calibration.json").unlink()
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 1
    assert "--strict: without calibration" in capsys.readouterr().err


def test_other_dynamics_are_flagged_by_the_propagator_and_widen_the_bounds(
    whole: Reconstructor, scored: dict[float, tuple[list[Nonconformity], list[Nonconformity]]]
) -> None:
    """Standing waves are not among the travelling waves, though each moment looks like one."""
    known, usual = calibrated(whole, scored), scored[0.2][1][0]
    fields = waves(40, 2)
    t, x = np.asarray(fields.x).T
    u = np.cos(4 * np.pi * t) * np.sin(2 * np.pi * x + np.linspace(0, 6, 40)[:, None])
    standing = fields.replace(y=u[..., None])
    [other] = known.nonconformity(standing, [RandomRatio(0.2)])
    assert np.median(other.disagreement) > 2 * np.median(usual.disagreement)
    limits = known.calibration.at(29)
    assert np.mean(other.disagreement > limits.disagreement) > 0.5
    assert np.mean(usual.disagreement > limits.disagreement) < 0.1
    within = np.mean(other.outside <= limits.outside)
    scale = (other.residual * other.disagreement)[:, None]
    fixed = limits.outside * np.median(usual.residual * usual.disagreement)
    assert within > np.mean(other.outside * scale <= fixed)  # than bounds of the spread alone


@pytest.mark.parametrize("noise", [float("nan"), -1.0, float("inf")])
def test_impossible_noise_is_an_error(noise: float, whole: Reconstructor) -> None:
    with pytest.raises(ValueError, match="noise must be"):
        whole([[0.5, 0.5]], [[1.0]], noise)


def test_one_sensor_is_enough(whole: Reconstructor) -> None:
    for noise in (0.0, 0.1):
        with pytest.warns(UserWarning, match="calibrated for 9 sensors or more: with 1, they"):
            found = replace(whole, calibration=SOME)([[0.5, 0.5]], [[1.0]], noise)
        assert np.isfinite(found.mean).all()
        lower, upper = bounds(found)
        assert np.all(lower < upper)


def test_the_models_of_the_package_reconstruct_new_fields_within_their_bounds() -> None:
    assert sum(path.stat().st_size for path in PRETRAINED.glob("*")) < 8e6
    whole, samples = Reconstructor.load(device="cpu"), make(Burgers(), samples=6, seed=99)
    truth = np.asarray(samples.y).reshape(6, 128, 128)
    random, wrong, covered, classical = np.random.default_rng(0), [], [], []
    points = np.asarray(samples.x)
    inside = np.flatnonzero(WINDOW.contains(points, ["t", "x"]))
    for field in truth:
        chosen = random.choice(inside, 82, replace=False)  # 1 % of the points there
        x, u = points[chosen], field.reshape(-1, 1)[chosen]
        found = whole(x, u)
        lower, upper = bounds(found)
        covered.append(((lower <= field) & (field <= upper)).mean())
        rbf = interpolate_rbf(x, u, points[inside], samples.period, neighbors=64)[:, 0]
        flat = field.reshape(-1)
        scale = np.abs(flat[inside]).mean()
        wrong.append(np.abs(found.mean.reshape(-1) - flat)[inside].mean() / scale)
        classical.append(np.abs(rbf - flat[inside]).mean() / scale)
    assert np.mean(wrong) < 0.01
    assert np.mean(wrong) < 0.2 * np.mean(classical)
    assert promise(0.9) in " ".join((PRETRAINED / "README.md").read_text().split())
    assert 0.8 < np.mean(covered) < 0.99  # at least 0.9 on average over many fields


def test_fields_of_another_viscosity_are_flagged_or_contained() -> None:
    whole = Reconstructor.load(device="cpu")
    assert whole.calibration is not None
    flagged = {}
    for viscosity in (0.01, 0.005, 0.05):
        fields = make(Burgers(viscosity=viscosity), samples=4, seed=99)
        [found] = whole.nonconformity(fields, [RandomRatio(0.01)])
        flagged[viscosity] = flags(found, whole.calibration).mean()
        assert coverage([found], whole.calibration)["outside"] > 0.7
    assert flagged[0.01] <= 0.25
    assert flagged[0.005] >= 0.75
    assert flagged[0.05] == 1
