"""Figures of the ledger: what is drawn is what the runs say."""

import dataclasses
import itertools

import numpy as np
import pytest

from lno.ledger import Run
from lno.report import plots, runs
from lno.report.runs import grouped


def a_run(**change):
    values = {
        "problem": "darcy",
        "model": "lno",
        "recipe": "paper",
        "protocol": "standard",
        "seed": 0,
        "epochs": 500,
        "steps": 40,
        "task": {"kind": "steady"},
        "hardware": "one CPU",
        "seconds": 8.0,
        "parameters": 1,
        "data_hash": "ab",
        "config": {},
        "metrics": {"test": {"relative_l2": 0.01}},
        "precision": "tf32",
    }
    return Run(**{**values, **change})


def curve(errors, losses=None, every=10):
    losses = errors if losses is None else losses
    rows = enumerate(zip(errors, losses, strict=True), start=1)
    return [{"step": every * k, "seconds": 2.0 * k, "loss": b, "error": a} for k, (a, b) in rows]


def named(axis):
    """The lines with a name, by it."""
    return {line.get_label(): line for line in axis.lines if not line.get_label().startswith("_")}


def band_of(axis):
    """Positions, lower and upper limit of the only band."""
    (band,) = axis.collections
    points = np.unique(band.get_paths()[0].vertices, axis=0)
    x = np.unique(points[:, 0])
    sides = [points[points[:, 0] == at, 1] for at in x]
    return x, np.array([s.min() for s in sides]), np.array([s.max() for s in sides])


THREE = np.array([[0.4, 0.2, 0.05, 0.03], [0.5, 0.1, 0.04, 0.02], [0.3, 0.3, 0.06, 0.04]])


@pytest.fixture
def three():
    """Three seeds of one setup, trained together as members, not in order."""
    return [a_run(seed=s, members=3, curve=curve(THREE[s].tolist())) for s in (1, 0, 2)]


def test_seeds_belong_together_and_nothing_else_does(three):
    other = [
        a_run(**change)
        for change in (
            {"problem": "ns2d"},
            {"model": "transolver"},
            {"recipe": "fast"},
            {"epochs": 20},
            {"precision": "mixed"},
            {"protocol": "small"},
        )
    ]
    groups = grouped([*other, *three])
    assert len(groups) == 1 + len(other)
    sizes = {len(g.runs): g for g in groups}
    assert [run.seed for run in sizes[3].runs] == [0, 1, 2]
    assert sum(len(g.runs) for g in groups) == 3 + len(other)
    keys = [(g.problem, g.model, g.recipe, g.epochs) for g in groups]
    assert keys == sorted(keys)
    mixed = [*three, *other]
    for order in itertools.islice(itertools.permutations(mixed), 0, 5000, 997):
        assert grouped(order) == groups


@pytest.mark.parametrize(
    ("change", "label"),
    [
        ({}, "LNO, paper, 500 epochs"),
        ({"model": "transolver", "epochs": 1}, "Transolver, paper, 1 epoch"),
        ({"precision": "mixed"}, "LNO, paper, 500 epochs, mixed"),
        ({"model": "rbf", "recipe": "none", "epochs": 0, "precision": "fp32"}, "RBF, fp32"),
        ({"model": "new"}, "new, paper, 500 epochs"),
    ],
)
def test_labels(change, label):
    assert grouped([a_run(**change)])[0].label == label


def test_the_ledger_is_read_whole_and_in_order(tmp_path, three):
    paths = [run.save(tmp_path, f"seed{run.seed}") for run in three]
    paths.append(a_run(problem="burgers").save(tmp_path, "a"))
    benchmarks = tmp_path / "benchmarks" / "old"
    benchmarks.mkdir(parents=True)
    (benchmarks / "speed.json").write_text("{}")
    (tmp_path / "darcy" / "lno" / "seed0.npz").write_bytes(b"a picture's data")
    found = runs.load_runs(tmp_path)
    assert [path for path, _ in found] == sorted(paths)
    assert all(run == Run.load(path) for path, run in found)


@pytest.mark.parametrize("content", ['{"problem": "dar', "[]", "{}", ""])
def test_a_damaged_file_is_named(tmp_path, three, content):
    three[0].save(tmp_path, "good")
    bad = tmp_path / "ns2d" / "lno" / "bad.json"
    bad.parent.mkdir(parents=True)
    bad.write_text(content)
    with pytest.raises(ValueError, match="not a run of the ledger") as caught:
        runs.load_runs(tmp_path)
    assert str(bad) in str(caught.value)


def test_curves_are_the_mean_in_a_band_of_all_seeds(three):
    figure = runs.learning_curves(grouped(three))
    (axis,) = figure.axes
    line = named(axis)["LNO, paper, 500 epochs"]
    np.testing.assert_allclose(line.get_xdata(), [125, 250, 375, 500])
    np.testing.assert_allclose(line.get_ydata(), 100 * THREE.mean(0))
    x, low, high = band_of(axis)
    np.testing.assert_allclose(x, [125, 250, 375, 500])
    np.testing.assert_allclose(low, 100 * THREE.min(0))
    np.testing.assert_allclose(high, 100 * THREE.max(0))
    assert axis.get_yscale() == "log" and "%" in axis.get_ylabel()


def test_time_is_that_of_one_seed(three):
    """Members share the time of all, as in the tables."""
    figure = runs.error_against_time(grouped(three))
    (axis,) = figure.axes
    line = named(axis)["LNO, paper, 500 epochs"]
    np.testing.assert_allclose(line.get_xdata(), np.array([2, 4, 6, 8]) / 3)
    np.testing.assert_allclose(line.get_ydata(), 100 * THREE.mean(0))
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")


def test_one_seed_has_no_band(three):
    figure = runs.learning_curves(grouped(three[:1]))
    assert not figure.axes[0].collections


def test_curves_that_do_not_correspond_are_drawn_one_by_one():
    errors = [0.3, 0.2, 0.1]
    both = [a_run(seed=s, curve=curve(errors, every=e)) for s, e in ((0, 10), (1, 11))]
    for draw in (runs.learning_curves, runs.error_against_time):
        (axis,) = draw(grouped(both)).axes
        assert not axis.collections
        assert len(axis.lines) == 2 and len(named(axis)) == 1
        for line in axis.lines:
            np.testing.assert_allclose(line.get_ydata(), [30, 20, 10])
            assert line.get_linewidth() < 1


def test_rows_without_an_error_are_left_out():
    run = a_run(curve=curve([None, 0.2, None, 0.1], [4.0, 3.0, 2.0, 1.0]))
    (axis,) = runs.learning_curves(grouped([run])).axes
    (line,) = named(axis).values()
    np.testing.assert_allclose(line.get_xdata(), [250, 500])
    np.testing.assert_allclose(line.get_ydata(), [20, 10])


def test_without_a_validation_error_the_loss_is_shown_apart(three):
    blind = a_run(model="transolver", curve=curve([None] * 3, [0.5, 0.4, 0.3]))
    above, below = runs.learning_curves(grouped([*three, blind])).axes
    assert list(named(above)) == ["LNO, paper, 500 epochs"]
    np.testing.assert_allclose(
        named(below)["Transolver, paper, 500 epochs"].get_ydata(), [0.5, 0.4, 0.3]
    )
    assert "loss" in below.get_ylabel() and "%" not in below.get_ylabel()
    assert list(named(runs.error_against_time(grouped([*three, blind])).axes[0])) == list(
        named(above)
    )


def test_a_colour_for_each_model_and_a_line_style_for_each_way_to_train():
    ways = [("paper", 100), ("paper", 500), ("fast", 150)]
    made = [
        a_run(model=m, recipe=r, epochs=e, curve=curve([0.2, 0.1]))
        for m in ("lno", "transolver", "fno")
        for r, e in ways
    ]
    groups = grouped(made)
    lines = named(runs.learning_curves(groups).axes[0])
    colours, styles = {}, {}
    for group in groups:
        line = lines[group.label]
        colours.setdefault(group.model, set()).add(line.get_color())
        styles.setdefault((group.recipe, group.epochs), set()).add(str(line._unscaled_dash_pattern))
    for table in (colours, styles):
        assert all(len(values) == 1 for values in table.values())
        assert len(set.union(*table.values())) == 3


def test_named_groups_keep_their_name_and_a_look_of_their_own():
    [one] = grouped([a_run(curve=curve([0.2, 0.1]))])
    both = [dataclasses.replace(one, name=name) for name in ("first", "second")]
    lines = named(runs.learning_curves(both).axes[0])
    assert list(lines) == [f"{name}: LNO, paper, 500 epochs" for name in ("first", "second")]
    assert len({str(line._unscaled_dash_pattern) for line in lines.values()}) == 2


def test_labels_say_the_problem_and_the_protocol_where_these_differ():
    shown = {"curve": curve([0.2, 0.1])}
    both = grouped([a_run(**shown), a_run(problem="ns2d", protocol="small", **shown)])
    assert list(named(runs.learning_curves(both).axes[0])) == [
        "darcy: LNO, paper, 500 epochs (standard)",
        "ns2d: LNO, paper, 500 epochs (small)",
    ]


def test_histograms_have_every_sample_of_every_seed():
    random = np.random.default_rng(0)
    ours = np.exp(random.normal(-5, 0.4, (3, 200)))
    theirs = np.exp(random.normal(-4, 0.8, 70))
    groups = grouped(
        [a_run(seed=s, samples={"test": ours[s].tolist()}) for s in range(3)]
        + [a_run(model="transolver", samples={"test": theirs.tolist()})]
        + [a_run(model="rbf", samples={"train": [0.1]})]
    )
    axes = runs.error_histograms(groups).axes
    assert len(axes) == 2
    edges = axes[0].patches[-1].get_data().edges
    np.testing.assert_allclose(np.diff(np.log(edges)), np.log(edges[1] / edges[0]))
    for axis, errors in zip(axes, (ours.ravel(), theirs), strict=True):
        data = axis.patches[-1].get_data()
        np.testing.assert_array_equal(data.edges, edges)
        counts = data.values * len(errors) / 100
        np.testing.assert_allclose(counts, np.histogram(100 * errors, edges)[0], atol=1e-9)
        assert counts.sum() == pytest.approx(len(errors))
        (median,) = axis.lines
        np.testing.assert_allclose(median.get_xdata(), 100 * np.median(errors))
        assert axis.get_ylim() == axes[0].get_ylim()


@pytest.mark.parametrize("errors", [[0.0, 0.0], [0.0, 0.01, 0.02], [0.01, 0.01]])
def test_histograms_of_exact_and_of_equal_errors_lose_none(errors):
    (axis,) = runs.error_histograms(grouped([a_run(samples={"test": errors})])).axes
    assert axis.patches[-1].get_data().values.sum() == pytest.approx(100)


def test_rollouts_are_the_mean_of_each_frame():
    frames = np.array([[0.01, 0.02, 0.04], [0.03, 0.05, 0.06]])
    both = [a_run(problem="ns2d", seed=s, frames=frames[s].tolist()) for s in (0, 1)]
    (axis,) = runs.rollout_errors(grouped([*both, a_run(problem="ns2d", model="transolver")])).axes
    ((label, line),) = named(axis).items()
    assert label == "LNO, paper, 500 epochs"
    np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3])
    np.testing.assert_allclose(line.get_ydata(), [2, 3.5, 5])
    _, low, high = band_of(axis)
    np.testing.assert_allclose(low, [1, 2, 4])
    np.testing.assert_allclose(high, [3, 5, 6])


@pytest.mark.parametrize(
    "draw",
    [runs.learning_curves, runs.error_against_time, runs.error_histograms, runs.rollout_errors],
)
def test_nothing_to_show_is_no_figure(draw):
    assert draw([]) is None
    assert draw(grouped([a_run(), a_run(model="rbf")])) is None


def test_every_figure_can_be_written(tmp_path, three):
    """Short axes, a single point and a start at zero seconds among them."""
    short = a_run(model="transolver", curve=curve([0.1], every=1))
    start = a_run(model="fno", epochs=5, curve=curve([0.1, 0.09]))
    start.curve[0]["seconds"] = 0.0
    full = [a_run(samples={"test": [0.1, 0.2]}, frames=[0.1])]
    for name, figure in {
        "curves": runs.learning_curves(grouped([*three, short, start])),
        "short": runs.learning_curves(grouped([short])),
        "time": runs.error_against_time(grouped([*three, short, start])),
        "samples": runs.error_histograms(grouped(full)),
        "frames": runs.rollout_errors(grouped(full)),
    }.items():
        plots.save(figure, tmp_path / f"{name}.png", dpi=40)
        assert (tmp_path / f"{name}.png").stat().st_size > 0
