"""`lno train` on a user's own data, with every model: what it takes, and what it leaves behind."""

from __future__ import annotations

import json
import os
import pkgutil
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import lno
from own_data import clouds, sensors, trajectories

from lno import Fields, Operator, Rollout, cli
from lno.data.division import Division
from lno.experiments import presets
from lno.experiments.presets import PAPER_CONFIGS, preset
from lno.experiments.sources import describe
from lno.ledger import Run
from lno.models import MODELS, LNOConfig
from lno.training import budget

TINY = LNOConfig(width=8, latents=4, blocks=1, heads=2, layers=1)
MESH = "trajectories"  # on a grid, all others not
DATA: dict[str, tuple[Callable[[], Fields], tuple[str, ...]]] = {
    "ragged": (clouds, ()),
    "parameters": (lambda: clouds(parameters=True), ()),
    MESH: (trajectories, ("--rollout", "2")),
    "elsewhere": (sensors, ()),
}
REFUSED = {  # model, data: why
    ("gnot", "elsewhere"): "lets query points attend to each other",
    ("transolver", "elsewhere"): "predicts only at the observed points",
    ("ono", "elsewhere"): "predicts only at the observed points",
    **{("factformer", kind): "FactFormer needs data on a 2-D" for kind in DATA if kind != MESH},
}
MODELS_TRIED = ("lno", "deeponet", "gnot", "transolver", "oformer", "ono", "geofno", "ffno")
MODELS_TRIED += ("factformer",)
SMALLER = {"ffno": ("--set", "layers=1")}  # the default takes long on a CPU


@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("model", MODELS_TRIED)
def test_every_model_takes_the_data_or_names_one_that_does(
    kind: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, options = DATA[kind]
    data = make()
    data.save(tmp_path / "data.h5")
    words = ["train", tmp_path / "data.h5", "--model", model, "--epochs", 1, "--device", "cpu"]
    options += SMALLER.get(model, ())
    code = cli.run([*map(str, words), *options, "--out", str(tmp_path / "run")])
    said = capsys.readouterr().err
    assert code == ((model, kind) in REFUSED), said
    if code:
        assert "\nerror: " in said and REFUSED[model, kind] in said
        assert " use lno or " in said
        assert not (tmp_path / "run" / "run.json").exists()
        return
    run = Run.load(tmp_path / "run" / "run.json")
    assert (run.problem, run.model, run.epochs) == ("data", model, 1)
    assert run.recipe.startswith("default")
    operator = Operator.load(tmp_path / "run" / "model.safetensors", "cpu")
    *_, test = Division().split(data)
    *_, last = test
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a point outside of the training data
        guess = operator.predict(test.subset([len(test) - 1]))[0]
    error = np.linalg.norm(guess - last.y) / np.linalg.norm(last.y)
    assert run.samples["test"][-1] == pytest.approx(error, rel=1e-4)
    if kind == "trajectories":
        assert operator.task == Rollout(2, 2, increments=True)
        assert len(run.frames) == 2


def test_lno_takes_all_of_them() -> None:
    """So that an error above always has a way out."""
    cls, _ = MODELS["lno"]
    assert cls.predicts_anywhere and not cls.needs_grid and not cls.queries_interact


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
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

    monkeypatch.setattr("lno.experiments.runs.dataset", make)
    trajectories().save(tmp_path / "data.h5")
    given = [word.format(data=tmp_path / "data.h5") for word in words]
    assert cli.run(["train", *given, "--out", str(tmp_path / "run")]) == 1
    said = capsys.readouterr().err
    assert message in said and "bug" not in said
    assert not (tmp_path / "run").exists()


def test_only_a_dry_run_needs_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clouds().save(tmp_path / "data.h5")
    words = ("train", str(tmp_path / "data.h5"), "--device", "cpu")
    assert "memory" in lno(capsys, *words, "--dry-run")
    assert cli.run(words) == 1
    assert "pass --out runs/NAME" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["data.h5"]


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
    assert " -m lno train 'my data.h5' --resume\n" in capsys.readouterr().out


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
