"""Four problems on deformed meshes: presets, tables, data files, pictures, on a small scale."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import deformed
import numpy as np
import pytest
from command_line import lno
from matplotlib.collections import LineCollection
from small_forward import train_missing

from lno import Fields, Operator, Snapshots, Spec, cli
from lno.data.normalize import Normalizers
from lno.experiments import forward, paper, plan, presets, runs, tables
from lno.experiments.pictures import sample_gallery, save_sample
from lno.experiments.presets import PAPER_CONFIGS, preset
from lno.experiments.runs import RunSpec
from lno.experiments.sources import describe
from lno.ledger import Run
from lno.models import MODELS, build_model
from lno.problems import PROBLEMS
from lno.report import samples
from lno.training.inputs import model_spec

TIMES = 4  # of the small blocks


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tiny samples and models in place of the paper's; returns an empty ledger."""
    monkeypatch.setenv("LNO_DATA", str(tmp_path / "cache"))
    deformed.shrink_presets(monkeypatch)
    theirs = presets.PRESETS["transolver"]["paper"]
    blocks = replace(theirs["plasticity"], task=Snapshots(TIMES))
    monkeypatch.setitem(theirs, "plasticity", blocks)
    made = {name: make(7) for name, make in deformed.MAKE.items()}
    monkeypatch.setattr(runs, "dataset", lambda problem, *_: made[problem].split(5, 2))
    return tmp_path / "results"


# -- presets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", deformed.MAKE)
def test_the_papers_presets(problem: str) -> None:
    chosen = preset(problem, "paper", "lno")
    recipe = chosen.recipe
    assert (recipe.epochs, recipe.batch, recipe.optimizer) == (500, 4, "adamw")
    assert (recipe.learning_rate, recipe.weight_decay, recipe.beta2) == (1e-3, 5e-5, 0.99)
    assert (recipe.schedule, recipe.loss) == ("onecycle", "relative_l2")
    assert recipe.physical == (problem in ("airfoil", "pipe"))  # these are not normalised
    assert chosen.config == PAPER_CONFIGS[problem]


@pytest.mark.parametrize(
    ("problem", "batch", "ratio", "form"),
    [
        ("airfoil", 8, 2, (True, False)),
        ("elasticity", 1, 2, (False, False)),
        ("pipe", 4, 2, (True, False)),
        ("plasticity", 8, 1, (True, True)),
    ],
)
def test_transolvers_published_presets(
    problem: str, batch: int, ratio: int, form: tuple[bool, bool]
) -> None:
    chosen = preset(problem, "paper", "transolver")
    recipe, config = chosen.recipe, chosen.config
    assert (recipe.batch, recipe.epochs, recipe.physical) == (batch, 500, True)
    assert recipe.weight_decay == (1e-4 if problem == "airfoil" else 1e-5)
    assert recipe.clip == (0.1 / 8 if problem == "airfoil" else None)
    cosine = problem == "elasticity"
    assert recipe.schedule == ("cosine_torch" if cosine else "onecycle_torch")
    assert (config.width, config.layers, config.heads, config.slices) == (128, 8, 8, 64)
    assert (config.mlp_ratio, config.reference) == (ratio, None)
    assert (config.convolution, config.time_input) == form
    assert chosen.task.visits == (20 if problem == "plasticity" else 1)


@pytest.mark.parametrize("problem", deformed.MAKE)
@pytest.mark.parametrize("model", ["lno", "transolver"])
def test_presets_fit_the_data(problem: str, model: str) -> None:
    chosen, data = preset(problem, "paper", model), deformed.MAKE[problem](2)
    task = Snapshots(TIMES) if chosen.task.time_as_input else chosen.task
    small = replace(chosen.config, width=16, heads=2)
    spec = model_spec(data, Normalizers.fit(data), task)
    build_model(model, small, spec)
    expected = {
        "airfoil": Spec(2, 2, 1, (41, 11)),
        "elasticity": Spec(2, 0, 1),
        "pipe": Spec(2, 2, 1, (17, 9)),
        "plasticity": Spec(3, 1, 4, (11, 5, 4)),
    }[problem]
    read = Spec(2, 2, 4, (11, 5)) if task.time_as_input else expected
    assert spec == read


def test_a_block_in_time_is_read_by_what_a_model_can_do(tmp_path: Path) -> None:
    data = deformed.plasticity(6)
    data.save(tmp_path / "blocks.h5")
    data.replace(provenance={}).save(tmp_path / "mine.h5")
    names = {**data.names, "x": ["x", "y", "z"]}
    data.replace(provenance={}, names=names).save(tmp_path / "volume.h5")
    for model in MODELS:
        timed = MODELS[model][0].embeds_time
        for name, problem in (("blocks.h5", "plasticity"), ("mine.h5", "mine")):
            own = isinstance(preset(problem, "paper", model).task, Snapshots)
            expected = Snapshots(TIMES) if timed or own else presets.STEADY
            assert describe(str(tmp_path / name), model=model).preset.task == expected
        volume = describe(str(tmp_path / "volume.h5"), model=model)
        assert volume.preset.task == presets.STEADY  # no time there
    general = presets.general_preset("plasticity", "small", "transolver")
    assert general.task == Snapshots(20)


def test_train_reads_blocks_in_time_with_a_model_of_grids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deformed.shrink_presets(monkeypatch)
    data = deformed.plasticity(6)
    data.save(tmp_path / "plasticity.h5")
    words = ["train", tmp_path / "plasticity.h5", "--model", "transolver", "--epochs", 1]
    lno(capsys, *words, "--device", "cpu", "--out", tmp_path / "run")
    run = Run.load(tmp_path / "run" / "run.json")
    assert (run.problem, run.recipe) == ("plasticity", "paper")
    assert run.task == {"kind": "snapshots", "times": TIMES}
    assert run.steps == 3  # ceil(5 · 4 / 8)
    assert run.config["model"]["time_input"]
    operator = Operator.load(tmp_path / "run" / "model.safetensors", "cpu")
    test = data.subset([5])
    error = np.linalg.norm(operator.predict(test) - test.y) / np.linalg.norm(test.y)
    assert run.samples["test"] == pytest.approx([error], rel=1e-4)
    printed = lno(
        capsys,
        "evaluate",
        tmp_path / "run" / "model.safetensors",
        "--data",
        tmp_path / "plasticity.h5",
        "--device",
        "cpu",
    )
    shown = printed.removeprefix("test: relative L2 ").split()[0]
    assert float(shown) == pytest.approx(100 * error, rel=1e-4)
    lno(capsys, "report", tmp_path / "run", "--out", tmp_path / "page.html")


# -- tables ----------------------------------------------------------------------------------------


def test_the_table_has_every_run_that_is_asked_for() -> None:
    """Required runs, LNO at the same epochs beside each Transolver, and the paper's 500."""
    wanted = {(s.problem, s.model, s.epochs): s.required for s in forward.SPECS}
    required = {key: seeds for key, seeds in wanted.items() if seeds and key[0] in deformed.MAKE}
    assert required == {
        ("elasticity", "lno", 500): 3,
        ("elasticity", "lno", 100): 1,
        ("elasticity", "transolver", 100): 1,
        ("pipe", "lno", 500): 1,
        ("pipe", "lno", 50): 1,
        ("pipe", "transolver", 50): 1,
        ("airfoil", "lno", 100): 1,
        ("airfoil", "transolver", 100): 1,
        ("plasticity", "lno", 100): 1,
        ("plasticity", "lno", 10): 1,
        ("plasticity", "transolver", 10): 1,
    }
    for problem, model, epochs in wanted:
        if model == "transolver" and epochs != 500:
            assert (problem, "lno", epochs) in wanted
    for model in ("lno", "transolver"):
        long = {p for p, m, epochs in wanted if (m, epochs) == (model, 500)}
        assert long == set(paper.PROBLEMS)


def test_more_than_one_seed_may_be_required(small: Path) -> None:
    spec = RunSpec("elasticity", "lno", "paper", 1, "fp32", required=2)
    experiment = replace(tables.EXPERIMENTS["forward"], specs=lambda: (spec,))
    jobs = plan.jobs_of_all([experiment], small)
    assert [(job.seeds, job.required) for job in jobs] == [((0, 1), True), ((2,), False)]


@pytest.mark.parametrize("problem", deformed.MAKE)
def test_the_command_trains_both_models_and_prints_their_ratio(
    problem: str, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", "forward", "--problems", problem, "--epochs", 1, "--seeds", 1]
    words += ["--models", "lno,transolver", "--precision", "fp32", "--results", small]
    words += ["--device", "cpu"]
    assert "missing" not in (shown := lno(capsys, *words))
    a, b = (paper.FORWARD[model][problem] for model in ("lno", "transolver"))
    assert f"(paper: {a:g} / {b:g} = {a / b:.2f} at 500 epochs)" in " ".join(shown.split())
    for model in ("lno", "transolver"):
        path = small / problem / model / "paper-1-fp32-seed0.json"
        run, kept = Run.load(path), path.with_suffix(".npz")
        assert np.isfinite(run.metrics["test"]["relative_l2"]) and len(run.samples["test"]) == 2
        drawn = [axis.get_title() for axis in samples.sample_fields(kept, "a title").axes]
        assert drawn[0] == "mesh"
        assert f"truth: {PROBLEMS[problem].picture.get('y', ('sigma',))[-1]}" in drawn
    page = small.parent / "report.html"
    lno(capsys, "report", "--results", small, "--out", page)
    assert page.read_text().count("median error") >= 2


def test_several_seeds_of_one_model_are_trained_together(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", "forward", "--problems", "elasticity", "--models", "lno", "--seeds", 3]
    words += ["--precision", "fp32", "--epochs", 1, "--results", small, "--device", "cpu"]
    assert "±" in lno(capsys, *words)
    found = [json.loads(p.read_text()) for p in sorted(small.glob("elasticity/lno/*.json"))]
    assert [(run["seed"], run["members"]) for run in found] == [(0, 3), (1, 3), (2, 3)]


# -- data files ------------------------------------------------------------------------------------


def test_runs_on_a_file_are_named_after_it(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody's own copy of the published files, and ours: the same command, never mixed."""
    for samples_, name in ((9, "published.h5"), (8, "other.h5")):
        data = deformed.pipe(samples_)
        split = {"problem": "pipe", "protocol": "standard", "split": [samples_ - 2, 2]}
        data.replace(provenance=split).save(tmp_path / name)
    words = ["reproduce", "forward", "--problems", "pipe", "--models", "lno", "--seeds", 1]
    words += ["--precision", "fp32", "--epochs", 1, "--results", small, "--device", "cpu"]
    lno(capsys, *words)
    ours = {p: p.read_bytes() for p in small.rglob("*.json")}
    file = ["--data", tmp_path / "published.h5"]
    listed = lno(capsys, *words, *file, "--dry-run")
    assert listed.count("pipe lno") == 1  # although ours is there
    assert "Data of published.h5" in " ".join(lno(capsys, *words, *file).split())
    assert "nothing is missing" in lno(capsys, *words, *file, "--dry-run")
    [theirs] = [p for p in small.rglob("*.json") if p not in ours]
    digest = Fields.load(tmp_path / "published.h5").digest[:8]
    assert theirs.name == f"published.{digest}-paper-1-fp32-seed0.json"
    run = Run.load(theirs)
    assert (run.protocol, run.steps, len(run.samples["test"])) == ("published.h5", 2, 2)
    assert all(p.read_bytes() == content for p, content in ours.items())
    assert run.data_hash not in "".join(p.read_text() for p in ours)
    assert lno(capsys, *words, "--data", tmp_path / "other.h5", "--dry-run").count("pipe lno") == 1
    page = small.parent / "report.html"
    lno(capsys, "report", "--results", small, "--out", page)
    assert "Pipe, published.h5" in page.read_text()


def test_a_file_of_another_problem_or_table_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deformed.pipe(5).save(tmp_path / "pipe.h5")
    where = ["--data", str(tmp_path / "pipe.h5"), "--dry-run"]
    assert cli.run(["reproduce", "forward", "--problems", "airfoil", *where]) == 1
    said = capsys.readouterr().err
    assert "--data: expected samples of airfoil, got those of pipe" in said
    assert cli.run(["reproduce", "resolution", *where]) == 1
    assert "the samples of resolution are always made" in capsys.readouterr().err


def test_blocks_in_a_file_have_as_many_times_as_the_file(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deformed.plasticity(6, (5, 4, 3)).save(tmp_path / "a.h5")
    words = ["reproduce", "forward", "--models", "transolver", "--seeds", 1, "--epochs", 1]
    words += ["--precision", "fp32", "--results", small, "--device", "cpu"]
    lno(capsys, *words, "--data", tmp_path / "a.h5")
    [path] = small.rglob("*.json")
    assert Run.load(path).task == {"kind": "snapshots", "times": 3}


# -- pictures --------------------------------------------------------------------------------------


def test_a_picture_shows_the_part_that_the_problem_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, keys = deformed.airfoil(3), {"width": 8, "latents": 4, "blocks": 1, "heads": 2}
    op = Operator.fit(data, epochs=1, config=keys, progress=False, device="cpu")
    monkeypatch.setattr(PROBLEMS["airfoil"], "view", (-0.5, 1.5, -0.8, 0.7), raising=False)
    save_sample(tmp_path / "a.npz", op, data, 1, "airfoil")
    figure = samples.sample_fields(tmp_path / "a.npz", "")
    titles = [axis.get_title() for axis in figure.axes if axis.get_title()]
    assert titles == ["mesh", "truth: Mach", "prediction: Mach", "absolute error"]
    for axis in figure.axes[:4]:
        assert (axis.get_xlim(), axis.get_ylim()) == ((-0.5, 1.5), (-0.8, 0.7))
        assert axis.get_aspect() == 1
    gallery = sample_gallery(data)
    assert [axis.get_title() for axis in gallery.axes[:4:3]] == ["mesh, sample 0", "Mach, sample 0"]
    x, y = np.asarray(data.geometry_of(1)).T
    inside = (x >= -0.5) & (x <= 1.5) & (y >= -0.8) & (y <= 0.7)
    truth = figure.axes[1].collections[0]
    mach = np.asarray(data[1].y)[inside, 0]
    np.testing.assert_allclose(truth.get_clim(), (mach.min(), mach.max()), rtol=1e-6)


def test_a_block_is_drawn_at_its_last_time_where_its_nodes_are(tmp_path: Path) -> None:
    data = deformed.plasticity(3)
    keys = {"width": 8, "latents": 4, "blocks": 1, "heads": 2}
    op = Operator.fit(data, epochs=1, config=keys, progress=False, device="cpu")
    save_sample(tmp_path / "a.npz", op, data, 1, "plasticity")
    kept = samples.load_sample(tmp_path / "a.npz")
    last = np.asarray(data[1].y).reshape(11, 5, 4, 4)[:, :, -1]
    np.testing.assert_allclose(kept["positions"], last[..., :2].reshape(-1, 2), rtol=1e-6)
    np.testing.assert_allclose(kept["y"], last.reshape(-1, 4), rtol=1e-6)
    whole = op.predict(data.subset([1]))[0].reshape(11, 5, 4, 4)[:, :, -1]
    np.testing.assert_allclose(kept["prediction"], whole.reshape(-1, 4), rtol=1e-5, atol=1e-6)
    assert kept["grid"].tolist() == [11, 5] and kept["cells"].max() == 54
    figure = samples.sample_fields(tmp_path / "a.npz", "")
    titles = [axis.get_title() for axis in figure.axes if axis.get_title()]
    assert titles[:4] == ["mesh", "truth: u_x", "prediction: u_x", "absolute error"]
    assert titles[4:] == ["input: die", "truth: u_y", "prediction: u_y", "absolute error"]
    lines = [c for c in figure.axes[0].collections if isinstance(c, LineCollection)]
    outline = np.concatenate([s for c in lines for s in c.get_segments()])
    low, high = last[..., :2].min((0, 1)), last[..., :2].max((0, 1))
    np.testing.assert_allclose((outline.min(0), outline.max(0)), (low, high), rtol=1e-6)


def test_a_cloud_without_cells_has_no_mesh(tmp_path: Path, small: Path) -> None:
    data = deformed.elasticity(3, cells=False)
    figure = sample_gallery(data)
    assert not any("mesh" in axis.get_title() for axis in figure.axes)
    spec = RunSpec("elasticity", "lno", "paper", 1, "fp32")
    assert train_missing([spec], [0], small, device="cpu")
