"""What latent positions look at, and a field in two stages: files of the ledger and figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import deformed
import numpy as np
import pytest
import torch
from command_line import lno
from matplotlib.layout_engine import ConstrainedLayoutEngine
from small_inverse import OURS, PROPAGATOR

from lno import Fields, Operator
from lno.data.observe import Intervals, RandomRatio
from lno.experiments import positions, report, runs, stages
from lno.experiments.positions import effective, typical, weights_of
from lno.experiments.presets import WINDOW
from lno.experiments.queue import train_operators
from lno.experiments.runs import RunSpec
from lno.reconstruct import Reconstructor
from lno.report.positions import load_positions, position_maps
from lno.report.stages import load_stages, observation_patterns, two_stages

CONFIG = {"width": 16, "latents": 9, "blocks": 1, "heads": 2, "layers": 1}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the time of drawing is that of arranging."""
    monkeypatch.setattr(ConstrainedLayoutEngine, "execute", lambda engine, figure: None)


def fitted(data: Fields, **more: object) -> Operator:
    keys = {"epochs": 1, "config": CONFIG, "device": "cpu", "progress": False, "validation": 0.0}
    return Operator.fit(data, **{**keys, **more})


# -- latent positions ------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", ["elasticity", "airfoil"])
def test_the_file_holds_what_the_model_weighs(problem: str, tmp_path: Path) -> None:
    data = deformed.MAKE[problem](4)
    operator, sample = fitted(data), data.subset([2])
    read, write = weights_of(operator, sample)
    n = len(read)
    assert read.shape == write.shape == (n, 9)
    np.testing.assert_allclose(read.sum(0), 1, rtol=1e-5)
    np.testing.assert_allclose(write.sum(1), 1, rtol=1e-5)
    x = operator.normalizers.encode(sample.batch([0])).x
    scores = operator.model.encoder.scores(operator.model.trunk(x))[0].detach()
    np.testing.assert_allclose(write, torch.softmax(scores, -1), rtol=1e-4, atol=1e-7)
    positions.save(tmp_path / "a.npz", operator, sample, problem)
    found = load_positions(tmp_path / "a.npz")
    chosen = found["chosen"]
    assert len(set(chosen.tolist())) == len(chosen) == positions.SHOWN
    np.testing.assert_allclose(found["read"], n * read[:, chosen].T, rtol=2e-3, atol=1e-6)
    np.testing.assert_allclose(found["read"].astype(float).mean(1), 1, rtol=2e-3)
    np.testing.assert_allclose(found["write"], write[:, chosen].T, rtol=2e-3, atol=1e-6)
    np.testing.assert_array_equal(found["first"], write.argmax(1))
    np.testing.assert_allclose(found["effective_points"], effective(read.T) / n, rtol=1e-5)
    assert (tmp_path / "a.npz").stat().st_size < 100_000


def test_a_picture_shows_what_is_in_its_file(tmp_path: Path) -> None:
    data = deformed.elasticity(4)
    positions.save(tmp_path / "a.npz", fitted(data), data.subset([0]), "elasticity")
    found, figure = load_positions(tmp_path / "a.npz"), position_maps(tmp_path / "a.npz", "a title")
    axes = np.reshape(figure.axes, (2, 1 + positions.SHOWN))
    for k, number in enumerate(found["chosen"], start=1):
        top, share = (float(found[key][k - 1].max()) for key in ("read", "write"))
        assert axes[0, k].get_title() == f"{number} reads up to {top:.2g}×"
        assert axes[1, k].get_title() == f"and is read up to {100 * share:.0f} %"
        shown = axes[1, k].collections[0].get_array()
        assert float(shown.max()) == pytest.approx(share, rel=1e-3)
    assert figure.get_suptitle() == "a title"
    (tmp_path / "b.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-80])
    with pytest.raises(ValueError, match=r"b\.npz: damaged"):
        position_maps(tmp_path / "b.npz", "")
    np.savez(tmp_path / "c.npz", read=np.ones(3))
    with pytest.raises(ValueError, match=r"c\.npz: damaged.*write"):
        load_positions(tmp_path / "c.npz")


def test_effective_numbers_count_what_is_read() -> None:
    weights = np.zeros((3, 8))
    weights[0, 3] = 1
    weights[1, :5] = 0.2
    weights[2] = np.array([0.5, 0.25, 0.125, 0.125, 0, 0, 0, 0])  # an entropy of 1.75 bits
    np.testing.assert_allclose(effective(weights), [1, 5, 2**1.75])


def test_typical_positions_are_read_and_look_at_different_places() -> None:
    """Of copies only one is shown, and of positions that nobody reads none."""
    read = np.kron(np.eye(4), np.ones((5, 3))) / 5  # four places, three positions at each
    used = np.array([[9, 8, 7], [6, 5, 4], [0.1, 0.1, 0.1], [3, 2, 9.5]]).ravel()
    write = np.tile(used / used.sum(), (20, 1))
    chosen = typical(read, write, 3)
    assert chosen[0] == 11 and sorted(k // 3 for k in chosen) == [0, 1, 3]


def test_models_without_latent_positions_are_refused() -> None:
    data = deformed.elasticity(4)
    config = {"width": 8, "heads": 2, "blocks": 1}
    operator = fitted(data, model="deeponet", config=config)
    with pytest.raises(ValueError, match="deeponet has no latent positions: expected a model that"):
        weights_of(operator, data.subset([0]))


def test_one_command_makes_the_files_and_the_report_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LNO_DATA", str(tmp_path / "cache"))
    deformed.shrink_presets(monkeypatch)
    made = {name: deformed.MAKE[name](5) for name in ("elasticity", "airfoil")}
    monkeypatch.setattr(runs, "dataset", lambda problem, *_: made[problem].split(4, 1))
    specs = tuple(RunSpec(name, "lno", "paper", 1, "fp32") for name in made)
    monkeypatch.setattr(positions, "SPECS", specs)
    results = tmp_path / "results"
    words = ["reproduce", "positions", "--results", results, "--device", "cpu"]
    assert "elasticity" in lno(capsys, *words, "--dry-run") and not results.exists()
    assert positions.table(results).markdown().count("missing") == 8
    assert not positions.figures(results)
    shown = lno(capsys, *words, "--problems", "elasticity")
    assert "missing" not in shown and [s.problem for s in positions.missing(results)] == ["airfoil"]
    train_operators(specs[1], [0], "cpu")
    assert " 0.0" in lno(capsys, *words, "--dry-run")  # its operator is in the cache
    lno(capsys, *words)
    assert "nothing is missing" in lno(capsys, *words, "--dry-run")
    titles = [caption for caption, _ in positions.figures(results)]
    assert len(titles) == 2 and titles[0].startswith("Elasticity")
    monkeypatch.setattr("lno.report.html.picture", lambda figure, text, *_: text)
    page = report.page(results)
    assert page.count("what latent positions look at") == 2
    assert "`lno reproduce positions`" in report.markdown(results)


# -- two stages ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(root: Path) -> Path:
    """A folder with a completer and a propagator of small fields."""
    operators = [
        train_operators(replace(spec, epochs=1), [0], "cpu")[0] for spec in (OURS, PROPAGATOR)
    ]
    Reconstructor(*operators).save(root / "pair")
    return root / "pair"


def test_the_stages_of_a_field(
    pair: Path, root: Path, samples: tuple[Fields, Fields, Fields], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        stages,
        "PATTERNS",
        {"1 %, random": RandomRatio(0.05), "grid of interval 16": Intervals((4, 4))},
    )
    results, sample = root / "staged", samples[2].subset([1])
    assert stages.table(results).markdown().count("missing") == 6 and not stages.figures(results)
    stages.make(results, pair, "cpu", sample)
    found = load_stages(stages.path_of(results))
    truth = np.asarray(sample.y)[0, :, 0].reshape(32, 32)
    np.testing.assert_allclose(found["truth"], truth, rtol=1e-6)
    t = found["t"]
    inside = (t >= WINDOW.low) & (t <= WINDOW.high)
    for k in range(2):
        row = found[f"index_{k}"] // 32
        assert inside[row].all() and len(row) == len(set(found[f"index_{k}"].tolist()))
    rows, columns = np.unravel_index(found["index_1"], (32, 32))
    assert set(np.diff(np.unique(rows))) == set(np.diff(np.unique(columns))) == {4}
    assert rows.min() == np.flatnonzero(inside)[0]
    error = np.abs(found["fields"][0].astype(float) - truth)
    expected = error[inside].mean() / np.abs(truth[inside]).mean()
    assert float(found["inside"][0]) == pytest.approx(expected, rel=1e-2)
    ends = [0, 31]
    expected = error[ends].mean() / np.abs(truth[ends]).mean()
    assert float(found["ends"][0]) == pytest.approx(expected, rel=1e-2)
    text = stages.table(results).markdown()
    assert f"| {len(found['index_0'])} | {100 * found['inside'][0]:.2f} % |" in text


def test_figures_of_stages_show_sensors_window_and_fields(
    pair: Path, root: Path, samples: tuple[Fields, Fields, Fields]
) -> None:
    results = root / "drawn"
    stages.make(results, pair, "cpu", samples[2].subset([0]))
    found = load_stages(path := stages.path_of(results))
    patterns = observation_patterns(path)
    drawn = [axis for axis in patterns.axes if axis.get_title()]
    assert len(drawn) == len(stages.PATTERNS) + 1
    for k, axis in enumerate(drawn[:-1]):
        dots = axis.lines[0].get_xydata()
        row, column = np.unravel_index(found[f"index_{k}"], found["truth"].shape)
        np.testing.assert_allclose(dots, np.stack((found["x"][column], found["t"][row]), 1))
        assert sorted(line.get_ydata()[0] for line in axis.lines[1:]) == [WINDOW.low, WINDOW.high]
    both = two_stages(path)
    titles = [axis.get_title() for axis in both.axes if axis.get_title()]
    assert len(titles) == 5 * len(stages.RECONSTRUCTED)
    completed = np.asarray(both.axes[1].images[0].get_array().filled(np.nan))
    outside = (found["t"] < WINDOW.low) | (found["t"] > WINDOW.high)
    assert np.isnan(completed[outside]).all() and np.isfinite(completed[~outside]).all()
    whole = np.asarray(both.axes[2].images[0].get_array())
    np.testing.assert_allclose(whole, found["fields"][0].astype(np.float32))
    assert len(stages.figures(results)) == 2


def test_the_pictured_field_is_held_out(
    samples: tuple[Fields, Fields, Fields], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is one of the test samples, made without the others."""
    monkeypatch.setattr(stages, "SAMPLE", 2)
    assert stages.held_out_sample().digest == samples[2].subset([2]).digest
