"""From a few sensors to the whole field: bounds that hold, and files that are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lno import Completion, Fields, Operator, Propagation, RandomRatio, Recipe, Window, cli
from lno.calibration import Calibration, calibrate, covered
from lno.commands.reconstruct import read_sensors, reconstruct_file
from lno.data.interpolate import interpolate_rbf
from lno.data.tables import write_csv
from lno.problems import Burgers
from lno.problems.make import make
from lno.reconstruct import PRETRAINED, Reconstructor

WINDOW = Window("t", 0.25, 0.75)
CONFIG = {"width": 24, "latents": 12, "blocks": 1, "heads": 2, "layers": 1}


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


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Reconstructor:
    keys = {"config": CONFIG, "members": 3, "device": "cpu", "progress": False}
    keys["recipe"] = Recipe(epochs=15, batch=8)
    data = waves(96, 0)
    completer = Completion(RandomRatio(0.05, 0.3), WINDOW, exact=True)
    return Reconstructor(
        Operator.fit(data, task=completer, **keys),
        Operator.fit(data, task=Propagation(WINDOW), **keys),
    )


@pytest.fixture(scope="module")
def folder(whole: Reconstructor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    replace(whole, calibration=Calibration(0.8, (9,), (3.0,), (4.0,))).save(path)
    return path


def sensors(count: int = 12, last: float = 0.75) -> np.ndarray:
    random = np.random.default_rng(3)
    t, x = random.uniform(0.25, last, count), random.uniform(size=count)
    return np.column_stack((x, t, np.sin(2 * np.pi * (x - 0.5 * t + 0.2))))


def test_the_field_is_on_the_grid_and_passes_through_sensors_on_it(whole: Reconstructor) -> None:
    truth = waves(1, 7)
    inside = WINDOW.contains(truth.x, ["t", "x"])
    x, u = truth.x[inside][::11], np.asarray(truth.y)[0, inside][::11]
    found = whole(x, u)
    assert found.mean.shape == (17, 16)
    np.testing.assert_allclose(found.axes[1], np.arange(16) / 16)
    flat = found.mean.reshape(-1)[inside][::11]
    np.testing.assert_allclose(flat, u[:, 0], atol=1e-4)
    assert np.all(found.lower < found.mean)
    assert np.all(found.mean < found.upper)


def test_calibrated_bounds_hold_on_samples_that_were_not_used(whole: Reconstructor) -> None:
    tasks = [Completion(RandomRatio(r), WINDOW, exact=True) for r in (0.05, 0.2)]
    fitted = whole.calibrated(waves(24, 1), tasks, level=0.8)
    shares = fitted.coverage(waves(24, 2), tasks, seed=5)
    for where in ("inside", "outside", "all"):
        assert shares[where] == pytest.approx(0.8, abs=0.07)
    with pytest.raises(ValueError, match="expected a pattern that says how many"):
        whole.misses(waves(3, 1), [Completion(RandomRatio(0.1, 0.3), WINDOW)])
    wider = whole.calibrated(waves(24, 1), tasks, level=0.95).calibration
    assert wider.sensors == fitted.calibration.sensors == (7, 29)
    assert all(a > b for a, b in zip(wider.inside, fitted.calibration.inside, strict=True))
    assert all(a > b for a, b in zip(wider.outside, fitted.calibration.outside, strict=True))
    for one in whole.misses(waves(24, 2), tasks, seed=5):
        assert covered([one], fitted.calibration)["all"] == pytest.approx(0.8, abs=0.1)


def test_coverage_follows_the_stated_level(whole: Reconstructor) -> None:
    tasks = [Completion(RandomRatio(0.1), WINDOW, exact=True)]
    fitted, tested = whole.misses(waves(24, 1), tasks), whole.misses(waves(24, 2), tasks, seed=5)
    levels = (0.5, 0.7, 0.9)
    curve = [covered(tested, calibrate(fitted, level))["all"] for level in levels]
    assert curve == pytest.approx(levels, abs=0.08)
    assert curve == sorted(curve)


def test_noisy_sensors_are_smoothed_and_widen_the_bounds(whole: Reconstructor) -> None:
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
    widths = [(r.upper - r.lower).reshape(-1)[inside].mean() for r in (clean, smooth)]
    assert widths[1] > 1.5 * widths[0]


def test_bounds_hold_with_noisy_sensors_too(whole: Reconstructor) -> None:
    tasks = [Completion(RandomRatio(0.3), WINDOW, exact=True)]
    known, truth = whole.calibrated(waves(24, 5), tasks), waves(6, 8)
    inside, random = WINDOW.contains(truth.x, ["t", "x"]), np.random.default_rng(0)
    contained = []
    for field in np.asarray(truth.y):
        chosen = random.permutation(inside.sum())[:40]
        x, u = truth.x[inside][chosen], field[inside][chosen]
        found = known(x, u + 0.2 * random.standard_normal(u.shape), 0.2)
        lower, upper = (v.reshape(-1)[inside] for v in (found.lower, found.upper))
        contained.append(((lower <= field[inside, 0]) & (field[inside, 0] <= upper)).mean())
    assert 0.8 < np.mean(contained) < 0.99


@pytest.mark.filterwarnings("ignore:these sensors do not belong")
def test_sensors_at_few_places_are_worth_less_than_as_many_everywhere(
    whole: Reconstructor,
) -> None:
    points = waves(1, 0).x
    points = points[WINDOW.contains(points, ["t", "x"])].reshape(-1, 16, 2)
    random = np.random.default_rng(1).permutation(points.reshape(-1, 2))[:32]
    assert whole.worth(random) == pytest.approx(32, rel=0.3)
    assert whole.worth(points.reshape(-1, 2)) == len(points) * 16  # no gap at all
    for few in (points[:, ::8], points[::4, :].reshape(-1, 2)[:32]):
        few = few.reshape(-1, 2)
        assert whole.worth(few) < 0.7 * len(few)
    narrow = replace(whole, calibration=Calibration(0.9, (4, 40), (9.0, 1.0), (1.0, 1.0), (1, 1)))
    wide = [
        (found.upper - found.lower)[6:11].mean()
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
    rows = np.concatenate((table, table + np.array([0, 0, 0.1])))
    write_csv(tmp_path / "s.csv", ["x", "t", "u"], rows)
    reconstruct_file(tmp_path / "s.csv", tmp_path / "f.npz", model=folder, noise=0.1)
    with pytest.raises(ValueError, match="at the same place: leave one out, or say how exact"):
        reconstruct_file(tmp_path / "s.csv", tmp_path / "f.npz", model=folder)


def test_fields_on_another_grid_are_not_compared_with(whole: Reconstructor) -> None:
    data, tasks = waves(4, 1), [Completion(RandomRatio(0.1), WINDOW)]
    squeezed = Fields(data.x**2, y=data.y, grid=data.grid, period=data.period, names=data.names)
    with pytest.raises(ValueError, match=r"expected whole fields on the regular grid \(17, 16\)"):
        whole.misses(squeezed, tasks)


def test_a_save_that_fails_leaves_both_files_as_they_were(
    whole: Reconstructor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole.save(tmp_path)
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


def test_members_disagree_more_where_no_sensor_is_near(whole: Reconstructor) -> None:
    table = sensors(40, last=0.35)  # all of them early
    found = whole(table[:, [1, 0]], table[:, 2:])
    width = found.upper - found.lower
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
    with pytest.raises(ValueError, match=r"expected x \(n, d\) and u \(n, 1\), got \(1, 3, 2\)"):
        whole(np.zeros((1, 3, 2)), np.zeros((1, 3, 1)))
    for noise in (0.0, 0.1):
        with pytest.raises(ValueError, match="has no points: expected at least one"):
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
    }
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    assert Reconstructor.load(folder, "cpu").calibration == Calibration(0.8, (9,), (3.0,), (4.0,))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0.5,1.5,0", "line 3: t = 1.5 lies outside of the domain, 0 to 1"),
        ("-0.1,0.5,0", "line 3: x = -0.1 lies outside of the domain, 0 to 1"),
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


def test_the_two_ends_of_a_period_are_one_place(whole: Reconstructor, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("u,x,t\n1,0.0,0.5\n1,1.0,0.5\n\n2,0.5,0.5\n")
    x, u = read_sensors(path, whole)
    np.testing.assert_allclose(x, [[0.5, 0.0], [0.5, 0.5]])
    np.testing.assert_allclose(u, [1, 2])
    path.write_text("u,x,t\n1,0.0,0.5\n2,1.0,0.5\n")
    with pytest.raises(ValueError, match="lines 2 and 3: two values"):
        read_sensors(path, whole)


def test_a_folder_without_models_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="expected a folder with completer"):
        Reconstructor.load(tmp_path)
    with pytest.raises(ValueError, match=r"expected a name ending in \.npz"):
        reconstruct_file("s.csv", tmp_path / "f.csv")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"sensors": (1, 2)}, "a value for every number of sensors"),
        ({"inside": (float("nan"),)}, r"Calibration.inside\[0\]"),
        ({"level": 90.0}, "Calibration.level"),
        ({"sensors": (0,)}, r"Calibration.sensors\[0\]"),
        (dict.fromkeys(("sensors", "inside", "outside", "usual"), (5, 2)), "sensors must grow"),
    ],
)
def test_impossible_calibrations_are_errors(keys: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Calibration(**keys)


def test_several_samples_at_once_are_each_of_them(whole: Reconstructor) -> None:
    random = np.random.default_rng(0)
    x = np.stack((random.uniform(0.25, 0.75, (3, 9)), random.uniform(size=(3, 9))), -1)
    u = np.sin(2 * np.pi * x[..., 1:])
    together = whole.members(x, u)
    assert together.shape == (3, 3, 17 * 16)
    for k in range(3):
        np.testing.assert_allclose(together[:, k], whole.members(x[k], u[k]), atol=1e-5)


def test_fields_unlike_all_that_the_models_know_are_told(
    whole: Reconstructor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tasks = [Completion(RandomRatio(0.1), WINDOW, exact=True)]
    known = whole.calibrated(waves(24, 5), tasks)
    table = sensors(14)
    x, u = table[:, [1, 0]], table[:, 2:]
    usual, noisy = known(x, u).surprise, np.random.default_rng(0).standard_normal(u.shape)
    assert usual < 1
    with pytest.warns(UserWarning, match="do not belong to a field"):
        assert known(x, noisy).surprise > 2
    with pytest.warns(UserWarning, match="calibrated for 14 sensors and more: with 2 they") as told:
        known(x[:2], np.array([[9.0], [-9.0]]))
    assert len(told) == 1  # what is usual with so few sensors was not tried
    assert known(x, noisy, noise=3.0).surprise == 0  # said to be that wrong, nothing is strange
    known.save(tmp_path)
    for values, strange in ((u, False), (noisy, True)):
        write_csv(tmp_path / "s.csv", ["x", "t", "u"], np.column_stack((table[:, :2], values)))
        words = ["lno", "reconstruct", str(tmp_path / "s.csv"), "--out", str(tmp_path / "f.npz")]
        monkeypatch.setattr("sys.argv", [*words, "--model", str(tmp_path), "--device", "cpu"])
        with pytest.raises(SystemExit) as left:
            cli.main()
        assert left.value.code == 0
        assert ("do not belong to a field" in capsys.readouterr().err) is strange


@pytest.mark.parametrize("noise", [float("nan"), -1.0, float("inf")])
def test_impossible_noise_is_an_error(noise: float, whole: Reconstructor) -> None:
    with pytest.raises(ValueError, match="noise must be"):
        whole([[0.5, 0.5]], [[1.0]], noise)


def test_one_sensor_is_enough(whole: Reconstructor) -> None:
    for noise in (0.0, 0.1):
        found = whole(np.array([[0.5, 0.5]]), np.array([[1.0]]), noise)
        assert np.isfinite(found.mean).all()
        assert np.all(found.lower < found.upper)


def test_the_models_of_the_package_see_new_fields_and_know_how_well() -> None:
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
        covered.append(((found.lower <= field) & (field <= found.upper)).mean())
        rbf = interpolate_rbf(x, u, points[inside], samples.period, neighbors=64)[:, 0]
        flat = field.reshape(-1)
        scale = np.abs(flat[inside]).mean()
        wrong.append(np.abs(found.mean.reshape(-1) - flat)[inside].mean() / scale)
        classical.append(np.abs(rbf - flat[inside]).mean() / scale)
    assert np.mean(wrong) < 0.01
    assert np.mean(wrong) < 0.2 * np.mean(classical)
    assert 0.8 < np.mean(covered) < 0.98  # 0.9 over many fields
