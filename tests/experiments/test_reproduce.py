"""The paper's runs on a small scale: ledger, resuming, and what tests may not influence."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import lno
from small_forward import PAPER, train_missing
from small_jobs import save_data, tiny

from lno import Fields, Operator
from lno.config import from_dict, to_dict
from lno.experiments import datasets, runs
from lno.experiments.queue import train_operators
from lno.experiments.runs import RunSpec
from lno.experiments.tables import EXPERIMENTS
from lno.ledger import Run
from lno.tasks import Rollout, from_json


def test_missing_runs_are_trained_recorded_and_found(small: Path) -> None:
    assert PAPER.missing(small, range(2)) == [0, 1]
    assert train_missing([PAPER], range(2), small, device="cpu")
    assert PAPER.missing(small, range(3)) == [2]
    runs = PAPER.runs(small, range(3))
    assert sorted(runs) == [0, 1]
    for seed, run in runs.items():
        assert (run.seed, run.members, run.epochs, run.steps) == (seed, 2, 3, 6)
        assert run.metrics["test"]["relative_l2"] == pytest.approx(np.mean(run.samples["test"]))
        assert run.curve[-1]["error"] == pytest.approx(run.metrics["test"]["relative_l2"], rel=1e-4)
    assert runs[0].curve[0]["loss"] != runs[1].curve[0]["loss"]
    alone = small.parent / "alone"
    shutil.rmtree(datasets.cache_folder() / "runs")
    train_missing([PAPER], [1], alone, device="cpu")
    [run] = PAPER.runs(alone, [1]).values()
    assert run.members == 1
    a, b = run.metrics["test"]["relative_l2"], runs[1].metrics["test"]["relative_l2"]
    assert a == pytest.approx(b, rel=1e-3)  # a member is the run of its seed
    kept = np.load(PAPER.path(small, 0).with_suffix(".npz"), allow_pickle=False)
    assert kept["prediction"].shape == kept["y"].shape == (64, 1)
    assert kept["grid"].tolist() == [8, 8]


def test_nothing_is_done_twice_and_a_deleted_run_comes_back(small: Path) -> None:
    train_missing([PAPER], range(2), small, device="cpu")
    before = PAPER.runs(small, range(2))
    times = {p: p.stat().st_mtime_ns for p in small.rglob("*.json")}
    assert train_missing([PAPER], range(2), small, device="cpu")
    assert times == {p: p.stat().st_mtime_ns for p in small.rglob("*.json")}
    PAPER.path(small, 0).unlink()
    assert train_missing([PAPER], range(2), small, device="cpu")  # its operator is kept
    assert PAPER.runs(small, range(2)) == before
    PAPER.path(small, 0).unlink()
    shutil.rmtree(datasets.cache_folder() / "runs")
    assert train_missing([PAPER], range(2), small, device="cpu")
    again = PAPER.runs(small, range(2))
    assert again[0] != before[0]
    assert again[0].metrics["test"]["mse"] == pytest.approx(before[0].metrics["test"]["mse"], 1e-3)


def test_a_run_that_was_cut_off_goes_on(small: Path) -> None:
    assert not train_missing([PAPER], range(2), small, device="cpu", minutes=1e-9)
    assert not list(small.rglob("*.json"))
    checkpoints = "runs/*/*/*/checkpoint-*"
    assert list(datasets.cache_folder().glob(checkpoints))
    assert train_missing([PAPER], range(2), small, device="cpu")
    assert not list(datasets.cache_folder().glob(checkpoints))  # of no use any more
    cut = PAPER.runs(small, range(2))
    whole = small.parent / "whole"
    shutil.rmtree(datasets.cache_folder() / "runs")
    assert train_missing([PAPER], range(2), whole, device="cpu")
    for seed, run in PAPER.runs(whole, range(2)).items():
        assert run.metrics == cut[seed].metrics


def test_a_process_killed_while_it_files_a_run_leaves_no_run_without_its_sample(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of the run comes last: what is there is whole, and what is not is made again."""

    def kill(self: Run, results: Path, name: str) -> Path:
        raise KeyboardInterrupt  # in the place of kill -9, between the two files

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Run, "save", kill)
        train_missing([PAPER], [0], small, device="cpu")
    kept = PAPER.path(small, 0).with_suffix(".npz")
    assert kept.exists() and PAPER.missing(small, [0]) == [0]

    def stop(source: Path, target: Path) -> None:
        Path(target).write_bytes(Path(source).read_bytes()[:50])
        raise OSError(28, "No space left on device")

    whole = kept.read_bytes()
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(shutil, "copyfile", stop)
        patch.setattr(shutil, "copy", stop)
        train_missing([PAPER], [0], small, device="cpu")
    assert kept.read_bytes() == whole and PAPER.missing(small, [0]) == [0]
    assert train_missing([PAPER], [0], small, device="cpu")
    assert PAPER.missing(small, [0]) == []


def test_a_data_file_may_have_any_name(small: Path, tmp_path: Path) -> None:
    data = save_data(tmp_path / "fields [1]*.h5")
    assert train_missing([tiny(data)], [0], small, device="cpu")
    assert tiny(data).kept(0) is not None


def test_test_samples_are_held_out(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With absurd test samples the weights and normalisers are the same, bit-for-bit."""
    operators = []
    for absurd in (False, True):
        train, test = datasets.dataset("darcy", device="cpu", show=False)
        if absurd:
            test = Fields(test.x, test.u * 1e6, y=test.y * 1e9 + 7, grid=test.grid)
        monkeypatch.setattr(runs, "dataset", lambda *_, pair=(train, test): pair)
        monkeypatch.setenv("LNO_DATA", str(small.parent / f"cache-{absurd}"))
        operators.append(train_operators(replace(PAPER, recipe="fast"), [0, 1], "cpu"))
    for honest, marked in zip(*operators, strict=True):
        assert honest.normalizers == marked.normalizers
        for p, q in zip(honest.model.parameters(), marked.model.parameters(), strict=True):
            assert torch.equal(p, q)
    a, b = (seeds[0].provenance["curve"][-1]["error"] for seeds in operators)
    assert abs(a - b) > 1e-3  # the curve shows the test error, all the same


def test_the_command_runs_what_is_missing_and_prints_it(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", "forward", "--epochs", "1", "--seeds", "1", "--device", "cpu"]
    words += ["--precision", "fp32", "--recipes", "paper", "--results", str(small)]
    words += ["--problems", "darcy,ns2d", "--models", "lno,transolver"]
    listed = lno(capsys, *words, "--dry-run")
    assert listed.count("ns2d") == 3  # and in the totals
    assert listed.count("darcy") == 4 and "darcy (reference) lno paper" in listed
    assert not small.exists()
    shown = lno(capsys, *words)
    assert "missing" not in shown
    assert "LNO / Transolver" in shown and "darcy, reference protocol" in shown
    assert "nothing is missing" in lno(capsys, *words, "--dry-run")
    run = Run.load(small / "ns2d" / "transolver" / "paper-1-fp32-seed0.json")
    assert from_json(run.task) == Rollout(10)
    assert len(run.frames) == 10
    assert run.config["model"]["slices"] == 4


def test_errors_of_each_frame_are_those_of_the_rollout(small: Path) -> None:
    spec = RunSpec("ns2d", "lno", "paper", 1, "fp32")
    assert train_missing([spec], [0], small, device="cpu")
    [run] = spec.runs(small, [0]).values()
    operator = Operator.load(spec.folder([0]) / "model.safetensors", device="cpu")
    _, test = datasets.dataset("ns2d", device="cpu", show=False)
    prediction, truth = operator.predict(test), np.asarray(test.y)
    by_frame = np.linalg.norm(prediction - truth, axis=1) / np.linalg.norm(truth, axis=1)
    np.testing.assert_allclose(run.frames, by_frame.mean(0), rtol=1e-4)
    assert operator.evaluate(test) == run.metrics["test"]


def test_every_run_of_the_ledger_was_made_as_its_name_says() -> None:
    """A preset that changes leaves runs behind that are no longer its own: they must go."""
    results = Path(__file__).parents[2] / "results"
    every = dict.fromkeys(spec for table in EXPERIMENTS.values() for spec in table.specs())
    found = [(s, run) for s in every if s.trained for run in s.runs(results, range(5)).values()]
    assert len(found) > 10
    for spec, run in found:
        recipe, made = to_dict(spec.preset.recipe), run.config["recipe"]
        assert {"learning_rate", "beta2"} <= set(made)  # renamed keys are renamed there as well
        changed = {key for key in recipe if key in made and made[key] != recipe[key]}
        assert not changed, spec.path(results, run.seed)
        config = spec.preset.config  # keys that are newer than the run have their defaults
        assert from_dict(type(config), run.config["model"]) == config
        assert run.config.get("conditional", False) == spec.preset.conditional
        assert from_json(run.task) == spec.preset.task
        assert run.config.get("seconds") == spec.seconds
        assert spec.seconds is not None or run.steps == spec.steps
        assert run.precision == spec.precision
