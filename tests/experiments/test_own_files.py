"""`lno train` on a file of one's own: the split, what it would cost, settings, and what it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import lno

from lno import Fields, Operator, cli
from lno.data.division import Division
from lno.experiments.own import OwnRun
from lno.experiments.sources import describe, training_samples
from lno.ledger import Run
from lno.training.defaults import SMALL

SETTINGS = [w for s in ("width=8", "latents=4", "blocks=1") for w in ("--set", s)]


def plates(samples: int = 60, **more: object) -> Fields:
    """Sorted by load: consecutive test samples would be others than those of training."""
    x = np.linspace(0, 1, 10)[:, None]
    load = np.linspace(1, 2, samples)[:, None]
    group = np.repeat(np.arange(samples // 5), 5)[:, None]
    return Fields(
        x,
        np.broadcast_to(load[:, None], (samples, 10, 1)),
        y=load[:, None] * np.sin(3 * x),
        parameters=group,
        names={"x": ["x"], "u": ["load"], "y": ["T"], "parameters": ["plate"]},
        **more,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    plates().save(folder / "plates.h5")
    words = ["train", folder / "plates.h5", "--groups", "plate", "--epochs", 12, *SETTINGS]
    words += ["--device", "cpu", "--early-stop", "--out", folder / "run"]
    assert cli.run([str(word) for word in words]) == 0
    return folder


def test_the_same_test_samples_are_found_again(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, run = trained / "run" / "model.safetensors", Run.load(trained / "run" / "run.json")
    *_, test = Division(groups="plate").split(plates())
    assert len(run.samples["test"]) == len(test)
    said = lno(capsys, "evaluate", model, "--data", trained / "plates.h5", "--device", "cpu")
    assert f"{100 * run.metrics['test']['relative_l2']:.3f} %" in said
    operator = Operator.load(model, "cpu")
    assert operator.provenance["run"]["division"] == {"seed": 0, "groups": "plate"}
    assert operator.evaluate(test)["mse"] == pytest.approx(run.metrics["test"]["mse"])
    plates().shuffle(1).save(trained / "plates.h5")
    words = ["evaluate", model, "--data", trained / "plates.h5", "--device", "cpu"]
    assert cli.run([str(word) for word in words]) == 1
    assert "is not what it was when" in capsys.readouterr().err
    plates().save(trained / "plates.h5")


def test_settings_change_sizes_and_recipe(trained: Path) -> None:
    run = Run.load(trained / "run" / "run.json")
    assert (run.recipe, run.config["model"]["width"]) == (
        "default.width=8.latents=4.blocks=1",
        8,
    )
    assert run.config["recipe"]["epochs"] == 12


def test_a_dry_run_says_what_it_would_cost_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lno.training.plan.MEASURING_SECONDS", 0.01)
    plates(500).save(tmp_path / "plates.h5")
    words = ["train", tmp_path / "plates.h5", "--out", tmp_path / "run", "--dry-run"]
    assert cli.run([str(word) for word in (*words, "--device", "cpu")]) == 0
    said = capsys.readouterr()
    assert "405 train, 45 validation, 50 test samples (at random, seed 0)" in said.err
    assert "lno_plus with " in said.out and "steps  9,996, 98 epochs" in said.out
    assert "time  about " in said.out and "GB" in said.out
    assert not (tmp_path / "run").exists()
    assert cli.run([str(word) for word in (*words, *SETTINGS[:2], "--model", "lno")]) == 0
    assert f"{SMALL.width}" not in capsys.readouterr().out.splitlines()[0]


def test_a_file_with_the_name_of_a_problem_is_a_file_of_ones_own(tmp_path: Path) -> None:
    plates().save(tmp_path / "pipe.h5")
    spec = describe(str(tmp_path / "pipe.h5"), device="cpu")
    assert isinstance(spec, OwnRun) and spec.problem == "pipe.h5"
    assert (spec.model, spec.recipe) == ("lno_plus", "default")


def test_a_file_with_a_split_keeps_its_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lno.training.plan.MEASURING_SECONDS", 0.01)
    plates(20, provenance={"split": [15, 5]}).save(tmp_path / "plates.h5")
    words = ["train", str(tmp_path / "plates.h5"), "--out", str(tmp_path / "run"), "--dry-run"]
    assert cli.run([*words, "--device", "cpu"]) == 0
    said = capsys.readouterr().err
    assert "13 train, 2 validation, 5 test samples (in the order of the file" in said
    assert "samples are sorted by the parameter 'plate'" in said  # the order counts here
    assert cli.run([*words, "--groups", "plate"]) == 1
    assert "the file names its own split, [15, 5]" in capsys.readouterr().err


def test_a_small_file_with_a_split_has_validation_samples_enough_for_bounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plates(60, provenance={"split": [50, 10]}).save(tmp_path / "plates.h5")
    words = ["train", tmp_path / "plates.h5", "--epochs", 1, *SETTINGS, "--out", tmp_path / "run"]
    assert cli.run([str(word) for word in (*words, "--device", "cpu")]) == 0
    said = capsys.readouterr().err
    assert "41 train, 9 validation, 10 test samples (in the order of the file" in said
    model = tmp_path / "run" / "model.safetensors"
    operator = Operator.load(model, "cpu")
    assert operator.trust.bounds is not None
    found, _ = training_samples(operator, model, None, tmp_path / "plates.h5")
    assert found is not None and found.digest == operator.provenance["data"]["digest"]


def test_a_file_with_three_parts_is_validated_on_the_second(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = plates(40, provenance={"split": [20, 10, 8]})
    whole.save(tmp_path / "plates.h5")
    words = ["train", tmp_path / "plates.h5", "--epochs", 1, *SETTINGS, "--out", tmp_path / "run"]
    assert cli.run([str(word) for word in (*words, "--device", "cpu")]) == 0
    said = capsys.readouterr().err
    split = "20 train, 10 validation, 8 test samples (in the order of the file, as it says itself)"
    assert split in said
    train, validation, test = whole.split(20, 10, 8)
    model, run = tmp_path / "run" / "model.safetensors", Run.load(tmp_path / "run" / "run.json")
    operator = Operator.load(model, "cpu")
    assert operator.provenance["data"]["digest"] == train.digest
    assert run.curve[-1]["error"] == pytest.approx(
        operator.evaluate(validation)["relative_l2"], rel=1e-4
    )
    assert operator.trust.bounds is not None  # of the ten for validation
    said = lno(capsys, "evaluate", model, "--data", tmp_path / "plates.h5", "--device", "cpu")
    assert f"{100 * operator.evaluate(test)['relative_l2']:.3f} %" in said
    found, _ = training_samples(operator, model, None, tmp_path / "plates.h5")
    assert found is not None and found.digest == train.digest


def test_neighbours_that_are_alike_are_said_where_the_split_is_random(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lno.training.plan.MEASURING_SECONDS", 0.01)
    words = ["train", str(tmp_path / "plates.h5"), "--out", str(tmp_path / "run"), "--dry-run"]
    for provenance, more, expected in (
        ({}, [], True),
        ({}, ["--groups", "plate"], False),
        ({"split": [40, 10, 10]}, [], False),
    ):
        plates(provenance=provenance).save(tmp_path / "plates.h5")
        assert cli.run([*words, *more, "--device", "cpu"]) == 0
        assert ("samples next to each other are more alike" in capsys.readouterr().err) is expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--set", "widht=8"), "(did you mean 'width'?)"),
        (("--set", "width"), "expected KEY=VALUE"),
        (("--set", "width=wide"), "width must be a whole number"),
        (("--task", "guess"), "expected predict or complete"),
        (("--task", "predict", "--observe", "0.1"), "--observe belongs to --task complete"),
        (("--observe", "0.1:a"), "expected a share of the points or two"),
        (("--observe", "0.2:0.1"), "RandomRatio.high must be a number from 0.2 to 1"),
        (("--task", "complete"), "has inputs (load), and a field is reconstructed from values of"),
        (("--task", "complete", "--rollout", "1"), "are different tasks"),
        (("--groups", "plates"), "(did you mean 'plate'?)"),
        (("--sphere", "x"), "expected two names, like --sphere lat,lon"),
        (("--sphere", "x,y"), "sphere: 'y' is none of the positions x"),
        (("--background", "laod"), "(did you mean 'load'?)"),
        (("--model", "lnu"), "no model 'lnu'"),
    ],
)
def test_mistakes_are_said_before_anything_is_trained(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plates(20).save(tmp_path / "plates.h5")
    given = ["train", str(tmp_path / "plates.h5"), *words, "--out", str(tmp_path / "run")]
    assert cli.run([*given, "--device", "cpu"]) == 1
    said = capsys.readouterr().err
    assert message in said and "bug" not in said
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_options_for_own_files_are_refused_for_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["train", "darcy", "--groups", "a", "--out", str(tmp_path / "run")]) == 1
    assert "--groups: the split and the task of darcy are those" in capsys.readouterr().err
