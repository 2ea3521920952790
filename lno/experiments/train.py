"""`lno train` and `lno evaluate`: a problem, or a data file, to a model and its error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from lno.data import Fields
from lno.data.symmetry import Symmetry
from lno.experiments import presets
from lno.experiments.datasets import dataset
from lno.operator import Operator
from lno.problems import PROBLEMS
from lno.training.distributed import leads


def train(
    source: str,
    out: str | Path,
    *,
    preset: str = "small",
    model: str = "lno",
    recipe: dict[str, Any] | None = None,
    resume: bool = False,
    minutes: float | None = None,
    device: str = "auto",
    seed: int = 0,
    members: int = 1,
    split: str = "samples",
    tensorboard: bool = False,
) -> tuple[Operator, dict[str, float]]:
    """Train on a problem's data set or on a data file; returns the operator and its test errors.

    Args:
        source: the name of a problem, or a data file (.h5) with answers.
        out: the folder of the run: checkpoints, `metrics.jsonl`, `model.safetensors`.
        preset: "paper", "fast" or "small"; for a data file it decides the model's sizes alone.
        model: "lno" or "transolver".
        recipe: keys of `Recipe` to change.
        resume: continue the run in `out`.
        minutes: stop after so many minutes of training, ready to resume.
        device: as in `Operator.fit`.
        seed: as in `Operator.fit`.
        members: as in `Operator.fit`.
        split: as in `Operator.fit`.
        tensorboard: as in `Operator.fit`.
    """
    chosen, train_data, test = _data(source, preset, model, device)
    operator = Operator.fit(
        chosen.training_data(train_data),
        task=chosen.task,
        model=model,
        config=chosen.config,
        recipe=replace(chosen.recipe, **(recipe or {})),
        validation=0.1,
        device=device,
        seed=seed,
        folder=out,
        resume=resume,
        minutes=minutes,
        members=members,
        split=split,
        tensorboard=tensorboard,
        symmetries=symmetries_of(source) if chosen.symmetries else (),
    )
    told = {"source": source, "preset": preset, "model": model}
    if _is_file(source):
        told |= {"source": str(Path(source).resolve()), "hash": test.hash}
    operator.provenance["test"] = told
    if leads():
        operator.save(Path(out) / "model.safetensors")
    return operator, operator.evaluate(test)


def evaluate(
    model: str | Path, data: str | Path | None = None, device: str = "auto"
) -> dict[str, float]:
    """Errors of a model on a data file, or on the test samples of the data it was trained on."""
    operator = Operator.load(model, device)
    if data is not None:
        return operator.evaluate(Fields.load(data))
    told = operator.provenance.get("test")
    if told is None:
        raise ValueError(f"{model} does not say what to test it on: pass a data file with --data")
    _, _, test = _data(told["source"], told["preset"], told.get("model", "lno"), device)
    if told.get("hash", test.hash) != test.hash:
        raise ValueError(
            f"{told['source']} is not what it was when {model} was trained: what were test samples "
            "may have been trained on. Pass other samples with --data"
        )
    return operator.evaluate(test)


def symmetries_of(problem: str) -> tuple[Symmetry, ...]:
    """The symmetries of a problem, for data on a grid."""
    return getattr(PROBLEMS[problem], "symmetries", ())


def _is_file(source: str) -> bool:
    return Path(source).suffix in (".h5", ".hdf5")


def _data(source: str, name: str, model: str, device: str) -> tuple[presets.Preset, Fields, Fields]:
    """Preset, training and test samples; of a data file the last tenth is for testing."""
    if _is_file(source):
        fields = Fields.load(source)
        tests = max(1, len(fields) // 10)
        if len(fields) < 2:
            raise ValueError(f"{source}: expected at least two samples, one of them for testing")
        train_data, test = fields.split(len(fields) - tests, tests)
        has_sizes = "darcy" in presets.PRESETS.get(model, {}).get(name, {})
        general = presets.preset("darcy", name, model if has_sizes else "lno")
        config = general.config if has_sizes else None  # of other models, their own defaults
        recipe = replace(general.recipe, gradient=0.0)
        return presets.Preset("file", config, recipe), train_data, test
    if source not in presets.PRESETS.get(model, {}).get(name, {source: None}):
        known = ", ".join(presets.PRESETS[model][name])
        raise ValueError(
            f"no preset {name!r} for {source!r}: expected a data file (.h5) or one of {known}"
        )
    chosen = presets.preset(source, name, model)
    train_data, test = dataset(source, chosen.protocol, device)
    return chosen, train_data, test
