"""`lno train` and `lno evaluate`: a problem, or a data file, to a model and its error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lno.data import Fields
from lno.data.observe import RandomRatio, Window
from lno.experiments.datasets import dataset
from lno.experiments.presets import PAPER_CONFIGS, PAPER_RECIPE
from lno.models import LNOConfig
from lno.operator import Operator
from lno.tasks import Completion, Steady, Task
from lno.training.distributed import leads
from lno.training.recipe import Recipe

SEEN, STEADY = Window("t", 0.25, 0.75), Steady()


@dataclass(frozen=True)
class Preset:
    """A protocol, the sizes of the model and how to train it."""

    protocol: str
    config: LNOConfig
    recipe: Recipe
    task: Task = STEADY


SMALL = LNOConfig(width=64, latents=64, blocks=2, heads=4, layers=1)
PRESETS: dict[str, dict[str, Preset]] = {
    "paper": {"darcy": Preset("standard", PAPER_CONFIGS["darcy"], PAPER_RECIPE)},
    "small": {
        "darcy": Preset("small", SMALL, Recipe(epochs=100, batch=4, rate=2e-3, queries=512)),
        "burgers": Preset(
            "small",
            SMALL,
            Recipe(epochs=60, batch=8, rate=3e-3, queries=256),
            Completion(RandomRatio(0.005, 0.03), SEEN),
        ),
    },
}


def train(
    source: str,
    out: str | Path,
    *,
    preset: str = "small",
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
        preset: "paper" or "small"; for a data file it decides the sizes of the model alone.
        recipe: keys of `Recipe` to change.
        resume: continue the run in `out`.
        minutes: stop after so many minutes of training, ready to resume.
        device: as in `Operator.fit`.
        seed: as in `Operator.fit`.
        members: as in `Operator.fit`.
        split: as in `Operator.fit`.
        tensorboard: as in `Operator.fit`.
    """
    if preset not in PRESETS:
        raise ValueError(f"no preset {preset!r}: expected one of {', '.join(PRESETS)}")
    chosen, train_data, test = _data(source, preset, device)
    operator = Operator.fit(
        train_data,
        task=chosen.task,
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
    )
    operator.provenance["test"] = {"source": source, "preset": preset}
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
    _, _, test = _data(told["source"], told["preset"], device)
    return operator.evaluate(test)


def _data(source: str, preset: str, device: str) -> tuple[Preset, Fields, Fields]:
    """Preset, training and test samples; of a data file the last tenth is for testing."""
    if Path(source).suffix in (".h5", ".hdf5"):
        fields = Fields.load(source)
        tests = max(1, len(fields) // 10)
        if len(fields) < 2:
            raise ValueError(f"{source}: expected at least two samples, one of them for testing")
        train_data, test = fields.split(len(fields) - tests, tests)
        general = PRESETS[preset]["darcy"]
        return Preset("file", general.config, general.recipe), train_data, test
    if source not in PRESETS[preset]:
        known = ", ".join(PRESETS[preset])
        raise ValueError(
            f"no preset {preset!r} for {source!r}: expected a data file (.h5) or one of {known}"
        )
    chosen = PRESETS[preset][source]
    train_data, test = dataset(source, chosen.protocol, device)
    return chosen, train_data, test
