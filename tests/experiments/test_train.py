"""`lno train` on a user's own data, with every model, and the report on its runs."""

from __future__ import annotations

import json
import os
import pkgutil
import shutil
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.layout_engine import ConstrainedLayoutEngine

from lno import Fields, Operator, Recipe, Rollout, cli
from lno.experiments import presets
from lno.experiments.presets import PAPER_CONFIGS, default_preset, general_preset, preset
from lno.experiments.runs import RunSpec, split_of
from lno.experiments.sources import describe
from lno.ledger import Run
from lno.models import MODELS, LNOConfig
from lno.problems import PROBLEMS, Elasticity, Protocol
from lno.training import budget

TINY = LNOConfig(width=8, latents=4, blocks=1, heads=2, layers=1)


def clouds(samples: int = 12, parameters: bool = False, provenance: dict | None = None) -> Fields:
    """Samples that differ in their number of points."""
    random = np.random.default_rng(0)
    x = [random.uniform(size=(n, 2)) for n in random.integers(9, 15, samples)]
    load = random.uniform(1, 2, samples)
    return Fields(
        x,
        None if parameters else [np.sin(points[:, :1]) for points in x],
        y=[a * points.sum(1, keepdims=True) for a, points in zip(load, x, strict=True)],
        parameters=load[:, None] if parameters else None,
        provenance=provenance,
    )


def sensors(samples: int = 12) -> Fields:
    """Clouds of sensors, and answers at other points, both different in every sample."""
    random = np.random.default_rng(0)
    x, q = ([random.uniform(size=(n, 2)) for n in random.integers(9, 15, samples)] for _ in "xq")
    u, y = ([np.sin(points[:, :1]) for points in where] for where in (x, q))
    return Fields(x, u, q, y)


def trajectories(samples: int = 12) -> Fields:
    """Two channels a frame: three frames given, two to predict, of a rotating field."""
    random, side = np.random.default_rng(0), np.linspace(0, 1, 5)
    x = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    phase = random.uniform(0, 6, (samples, 1, 1)) + x @ [[3.0], [2.0]] + 0.4 * np.arange(5)
    frames = np.stack((np.cos(phase), np.sin(phase)), -1).reshape(samples, 25, 10)
    return Fields(x, frames[..., :6], y=frames[..., 6:], grid=(5, 5))


DATA: dict[str, tuple[Callable[[], Fields], tuple[str, ...]]] = {
    "ragged": (clouds, ()),
    "parameters": (lambda: clouds(parameters=True), ()),
    "trajectories": (trajectories, ("--rollout", "2")),
    "elsewhere": (sensors, ()),
}
REFUSED = {  # model, data: why
    ("gnot", "elsewhere"): "lets query points attend to each other",
    ("transolver", "elsewhere"): "predicts only at the observed points",
}


def lno(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    code = cli.run([str(word) for word in words])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return printed.out


@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("model", ["lno", "deeponet", "gnot", "transolver"])
def test_every_model_takes_the_data_or_names_one_that_does(
    kind: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, options = DATA[kind]
    data = make()
    data.save(tmp_path / "data.h5")
    words = ["train", tmp_path / "data.h5", "--model", model, "--epochs", 1, "--device", "cpu"]
    code = cli.run([*map(str, words), *options, "--out", str(tmp_path / "run")])
    said = capsys.readouterr().err
    assert code == ((model, kind) in REFUSED), said
    if code:
        assert said.startswith(f"error: {model} {REFUSED[model, kind]}")
        assert said.endswith(": use lno or deeponet\n")
        assert not (tmp_path / "run" / "run.json").exists()
        return
    run = Run.load(tmp_path / "run" / "run.json")
    assert (run.problem, run.model, run.recipe, run.epochs) == ("data", model, "small", 1)
    operator = Operator.load(tmp_path / "run" / "model.safetensors", "cpu")
    *_, last = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a point outside of the training data
        guess = operator.predict(data.subset([len(data) - 1]))[0]
    error = np.linalg.norm(guess - last.y) / np.linalg.norm(last.y)
    assert run.samples["test"][-1] == pytest.approx(error, rel=1e-4)
    if kind == "trajectories":
        assert operator.task == Rollout(2, 2)
        assert len(run.frames) == 2


def test_lno_takes_all_of_them() -> None:
    """So that an error above always has a way out."""
    cls, _ = MODELS["lno"]
    assert cls.answers_anywhere and not cls.needs_grid and not cls.queries_interact


def test_a_file_of_a_problem_is_trained_like_the_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    origin = {"problem": "elasticity", "protocol": "standard", "split": [7, 4]}
    clouds(provenance=origin).save(tmp_path / "cells.h5")
    spec = describe(str(tmp_path / "cells.h5"))
    assert (spec.problem, spec.recipe) == ("elasticity", "paper")
    assert spec.preset.config == PAPER_CONFIGS["elasticity"]
    train, _, test = spec.samples("cpu")
    assert (len(train), len(test)) == (7, 4)
    small = replace(preset("elasticity", "paper"), config=TINY)
    monkeypatch.setitem(presets.PRESETS["lno"]["paper"], "elasticity", small)
    words = (tmp_path / "cells.h5", "--epochs", 1, "--device", "cpu", "--out", tmp_path / "run")
    lno(capsys, "train", *words)
    run = Run.load(tmp_path / "run" / "run.json")
    assert run.config["model"]["latents"] == 4
    assert run.config["recipe"]["optimizer"] == "adamw"
    assert len(run.samples["test"]) == 4


def test_the_split_of_a_file_is_its_own_the_protocols_or_nine_tenths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    protocols = {"standard": Protocol(9, 3), "reference": Protocol(5, 5)}
    monkeypatch.setattr(Elasticity, "protocols", protocols)
    named = {"problem": "elasticity"}
    assert split_of(clouds(12, provenance={**named, "split": [6, 2]})) == (6, 2)
    assert split_of(clouds(12, provenance=named)) == (9, 3)
    assert split_of(clouds(10, provenance=named)) == (5, 5)
    assert split_of(clouds(11, provenance=named)) == (10, 1)
    assert split_of(clouds(12, provenance={"problem": "unknown"})) == (11, 1)
    with pytest.raises(ValueError, match="at least two samples"):
        split_of(clouds(1))


def test_presets_of_the_paper_have_its_sizes() -> None:
    """Million weights of the paper's Table 4."""
    spec = {"airfoil": (2, 2, 1), "elasticity": (2, 0, 1), "plasticity": (3, 1, 4)}
    spec |= {"pipe": (2, 2, 1), "darcy": (2, 1, 1), "ns2d": (2, 10, 1)}
    printed = {"airfoil": 1.36, "elasticity": 1.42, "plasticity": 1.36, "pipe": 1.36}
    printed |= {"darcy": 0.76, "ns2d": 5.08}
    from lno.data import Spec

    for problem, sizes in spec.items():
        chosen = preset(problem, "paper")
        with torch.device("meta"):
            model = MODELS["lno"][0](Spec(*sizes), chosen.config)
        weights = sum(p.numel() for p in model.parameters()) / 1e6
        assert weights == pytest.approx(printed[problem], abs=0.02), problem
        assert chosen.recipe.physical == (problem in ("airfoil", "pipe"))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("problem", [*PROBLEMS, "mine"])
def test_general_presets_ask_for_nothing_that_a_model_cannot_do(problem: str, model: str) -> None:
    cls, config = MODELS[model]
    for name in presets.GENERAL_RECIPES:
        chosen = general_preset(problem, name, model)
        able = cls.answers_anywhere and not cls.queries_interact
        assert able or chosen.recipe.queries is None
        assert chosen.recipe.gradient == 0
        assert chosen.config is None or isinstance(chosen.config, config)
        if problem in PROBLEMS:
            assert chosen.protocol in PROBLEMS[problem].protocols


def test_presets_are_found_by_problem_and_model() -> None:
    assert default_preset("darcy", "lno") == "small"
    assert default_preset("airfoil", "lno") == default_preset("darcy", "transolver") == "paper"
    assert default_preset("mine", "transolver") == "small"
    assert preset("mine", "small", "transolver").recipe == Recipe(epochs=100, batch=4)
    with pytest.raises(
        ValueError, match=r"no preset 'tiny' of lno for darcy: expected one of paper"
    ):
        preset("darcy", "tiny")
    with pytest.raises(ValueError, match=r"no model 'fnoo': expected one of lno, deeponet"):
        preset("darcy", "small", "fnoo")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("elasticity",), "lno data read elasticity"),
        (("stokes",), "no problem 'stokes': expected a data file (.h5) or one of darcy"),
        (("{data}", "--epochs", "2", "--minutes", "1"), "epochs and minutes both say how long"),
        (("{data}", "--rollout", "3"), "expected a multiple of that many channels of y, got 4"),
        (("{data}", "--preset", "tiny"), "no preset 'tiny' of lno for data: expected one of small"),
        (("burgers", "--model", "transolver"), "transolver predicts only at the observed points"),
        (("darcy", "--rollout", "2"), "--rollout: the preset small of darcy predicts no frames"),
        (("burgers", "--rollout", "2"), "predicts no frames, its task is Completion"),
    ],
)
def test_what_cannot_be_trained_is_said(
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def make(name: str, *_: object) -> None:
        raise AssertionError(f"{name} is made before it is said")

    if words != ("elasticity",):
        monkeypatch.setattr("lno.experiments.runs.dataset", make)
    trajectories().save(tmp_path / "data.h5")
    given = [word.format(data=tmp_path / "data.h5") for word in words]
    assert cli.run(["train", *given, "--out", str(tmp_path / "run")]) == 1
    said = capsys.readouterr().err
    assert message in said and "bug" not in said
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of `lno train` on the same trajectories, one of them an ensemble."""
    folder = tmp_path_factory.mktemp("two")
    trajectories(20).save(folder / "data.h5")
    for name, more in (
        ("ensemble", ["--preset", "small", "--members", "2", "--seed", "3"]),
        ("deeponet", ["--model", "deeponet"]),
    ):
        words = ["train", str(folder / "data.h5"), "--rollout", "2", "--epochs", "2"]
        assert cli.run([*words, *more, "--device", "cpu", "--out", str(folder / name)]) == 0
    return folder


def test_a_run_folder_holds_the_run_of_each_member(two: Path) -> None:
    both = [Run.load(two / "ensemble" / name) for name in ("run.json", "run-4.json")]
    assert [run.seed for run in both] == [3, 4]
    assert {run.members for run in both} == {2}
    assert both[0].metrics != both[1].metrics and both[0].curve != both[1].curve
    alone = Run.load(two / "deeponet" / "run.json")
    assert sorted(p.name for p in (two / "deeponet").glob("*.npz")) == ["sample.npz", "worst.npz"]
    worst = np.load(two / "deeponet" / "worst.npz", allow_pickle=False)
    assert alone.samples["test"][int(worst["index"])] == max(alone.samples["test"])
    error = np.linalg.norm(worst["prediction"] - worst["y"]) / np.linalg.norm(worst["y"])
    assert error == pytest.approx(max(alone.samples["test"]), rel=1e-4)


def test_the_report_shows_runs_side_by_side(
    two: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Half of the time of drawing is that of arranging: nobody looks at these figures.
    monkeypatch.setattr(ConstrainedLayoutEngine, "execute", lambda engine, figure: None)
    folders = [two / name for name in ("ensemble", "deeponet")]
    page, tables = tmp_path / "report.html", tmp_path / "report.md"
    lno(capsys, "report", *folders, "--out", page, "--markdown", tables)
    text, rows = page.read_text(), tables.read_text()
    for folder in folders:
        for path in folder.glob("run*.json"):
            run = Run.load(path)
            error = f"{100 * run.metrics['test']['relative_l2']:.3f} %"
            assert f"| {folder.name} | {run.seed} | test | {error} |" in rows and error in text
        run = Run.load(folder / "run.json")
        assert f"{run.parameters:,}" in rows
        number = int(np.argmax(run.samples["test"]))
        assert f"| {folder.name} | {number}: {100 * max(run.samples['test']):.3g} % |" in rows
    for caption in (
        "Error during training",
        "against time",
        "single test samples",
        "frame by frame",
        "ensemble: the worst test sample",
        "deeponet: the test sample with median error, frames",
    ):
        assert caption in text
    # Four figures of all runs, and of each run two samples and their frames.
    assert text.count("<img") == 4 + 2 * 2 * 2
    assert "http" not in text.replace("http-equiv", "")


def test_a_report_needs_runs(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["report", str(two), "--out", str(two / "a.html")]) == 1
    assert "expected the folder of a run that `lno train` has tested" in capsys.readouterr().err
    assert cli.run(["report", "--results", str(two / "none")]) == 1
    assert "no ledger at" in capsys.readouterr().err


def test_a_budget_that_is_paused_and_resumed_is_the_run_that_was_planned(
    two: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(budget, "steps_within", lambda seconds, costs: 30)  # on any machine
    words = ("train", two / "data.h5", "--rollout", 2, "--minutes", 0.01, "--device", "cpu")
    out = ("--out", tmp_path / "run")
    assert "--resume" in lno(capsys, *words, *out, "--pause-after", 1e-9)
    assert 1 <= Run.load(tmp_path / "run" / "run.json").steps < 30
    lno(capsys, *words, *out, "--resume")
    run = Run.load(tmp_path / "run" / "run.json")
    assert run.steps == 30
    assert run.epochs == pytest.approx(run.steps / 4, abs=1e-3)  # 16 samples in batches of 4
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(rows[-1])["step"] == run.steps


@pytest.mark.parametrize("pause_after", [(), ("--pause-after", 60)])
def test_an_interrupted_run_is_no_success(
    pause_after: tuple[object, ...],
    two: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whether or not it would have been paused later: a script must not go on."""
    monkeypatch.setattr("lno.operator.run", lambda *_, **__: False)  # as after Ctrl-C
    monkeypatch.setattr("sys.argv", ["/somewhere/lno/cli.py", "train", "my data.h5"])
    words = ("train", two / "data.h5", "--rollout", 2, "--device", "cpu", *pause_after)
    assert cli.run([*map(str, words), "--out", str(tmp_path / "run")]) == 130
    assert " -m lno.cli train 'my data.h5' --resume\n" in capsys.readouterr().out


@pytest.mark.parametrize("moment", ["lno.training.run.train", "lno.experiments.execution.record"])
def test_two_trainings_into_one_folder_do_not_mix(
    moment: str,
    two: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The second one comes before the first has written anything, or before its last files."""
    second: list[int] = []

    def train(seed: int) -> int:
        words = ["train", two / "data.h5", "--rollout", 2, "--epochs", 1, "--device", "cpu"]
        return cli.run([*map(str, words), "--seed", str(seed), "--out", str(tmp_path / "run")])

    def disturbed(*arguments: object) -> object:
        monkeypatch.undo()
        thread = threading.Thread(target=lambda: second.append(train(seed=1)))
        thread.start()
        thread.join()
        return real(*arguments)

    real = pkgutil.resolve_name(moment)
    monkeypatch.setattr(moment, disturbed)
    assert train(seed=0) == 0
    assert second == [1]
    assert f"run is in use by process {os.getpid()} on " in capsys.readouterr().err
    operator = Operator.load(tmp_path / "run" / "model.safetensors", "cpu")
    assert operator.provenance["seed"] == Run.load(tmp_path / "run" / "run.json").seed == 0


def test_an_interrupted_job_ends_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    began = []

    def fit(spec: RunSpec, *_: object, **__: object) -> SimpleNamespace:
        began.append(spec)
        return SimpleNamespace(provenance={"stopped": "interrupted", "seconds": 1.0})

    monkeypatch.setenv("LNO_DATA", str(tmp_path))
    monkeypatch.setattr("lno.experiments.queue.fit", fit)
    monkeypatch.setattr(RunSpec, "samples", lambda *_: (None, None, None))
    words = ["reproduce", "forward", "--results", str(tmp_path), "--minutes", "30"]
    assert cli.run(words) == 130
    assert len(began) == 1
    assert "interrupted" in capsys.readouterr().err


def test_a_list_of_everything_names_what_is_measured_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LNO_DATA", str(tmp_path))
    said = lno(capsys, "reproduce", "all", "--dry-run", "--results", tmp_path)
    assert "efficiency is missing" in said and "reproduce efficiency" in said
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "pretrained.json").write_text("{}")
    said = lno(capsys, "reproduce", "all", "--dry-run", "--results", tmp_path)
    assert "pretrained is there" in said


@pytest.mark.parametrize(
    "own", ["ab", 5, [5], [1.5, 2], [-3, 4], ["6", "2"], [True, 2], {}, [0, 2]]
)
def test_a_malformed_split_is_not_used(own: object) -> None:
    assert split_of(clouds(12, provenance={"split": own})) == (11, 1)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", "{}"),
        ("run.json", "[" * 100_000),
        ("run.json", '{"metrics": {"test": {}}}'),
        ("run.json", '{"curve": [{"error": 1}]}'),
        ("sample.npz", "PK"),
        ("sample.npz", ""),
    ],
)
def test_a_report_on_damaged_files_names_them(
    name: str,
    content: str,
    two: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lno.report.html.picture", lambda *_: "<img>")  # drawing takes seconds
    folder = tmp_path / "lno"
    shutil.copytree(two / "deeponet", folder)
    if content.startswith('{"'):
        content = json.dumps(json.loads((folder / name).read_text()) | json.loads(content))
    (folder / name).write_text(content)
    code = cli.run(["report", str(folder), "--out", str(tmp_path / "a.html")])
    said = capsys.readouterr().err
    assert "bug" not in said and "Traceback" not in said
    if code:
        assert str(folder) in said
    else:  # a page that says what it could not draw
        assert name == "sample.npz" and "sample.npz" in (tmp_path / "a.html").read_text()


def test_names_of_runs_are_harmless_in_a_report(
    two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "<script> | $\\frac{$"
    folder = tmp_path / name
    shutil.copytree(two / "deeponet", folder)
    content = json.loads((folder / "run.json").read_text())
    content |= {"problem": name, "recipe": name, "hardware": name, "model": name}
    (folder / "run.json").write_text(json.dumps(content))
    with np.load(folder / "sample.npz") as file:
        arrays = {
            k: np.full(v.shape, name) if k.startswith("names") else v for k, v in file.items()
        }
    np.savez(folder / "sample.npz", **arrays)
    page, tables = tmp_path / "report.html", tmp_path / "report.md"
    lno(capsys, "report", folder, "--out", page, "--markdown", tables)
    assert "<script" not in page.read_text() + tables.read_text()
    rows = [line for line in tables.read_text().splitlines() if line.startswith("| &lt;script")]
    assert len(rows) == 3
    assert all(row.replace("\\\\", "").count("\\|") >= 1 for row in rows)
    text = page.read_text()
    assert text.count("<img") == 4 + 2 * 2
