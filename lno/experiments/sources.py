"""What `lno train` and `lno evaluate` are given: a problem or a data file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

from lno.data import Fields, Spec
from lno.experiments.datasets import protocol_of
from lno.experiments.presets import default_preset
from lno.experiments.presets import preset as find_preset
from lno.experiments.runs import RunSpec, split_of
from lno.experiments.tables import Experiment
from lno.models import MODELS, Demand, require_capable
from lno.operator import Operator
from lno.problems import PROBLEMS
from lno.tasks import Rollout, Snapshots, Steady, Task
from lno.training.samples import split_validation

VALIDATION = 0.1  # the share of the training samples that is held out
TIME = ("t", "time")  # names of the coordinate


def describe(
    source: str,
    *,
    preset: str | None = None,
    model: str = "lno",
    epochs: int | None = None,
    minutes: float | None = None,
    precision: str = "auto",
    rollout: int | None = None,
) -> RunSpec:
    """The run that a user asks for.

    Args:
        source: the name of a problem, or a data file (.h5) with answers. A file whose provenance
            names a problem is trained like that problem.
        preset: the name of a preset; None: the default for the problem and the model.
        model: a name in `lno.models.MODELS`.
        epochs: in place of those of the preset.
        minutes: a time budget in place of epochs.
        precision: as in `Operator.fit`.
        rollout: u and y hold frames of so many channels, to be predicted one after the other.
    """
    path = Path(source) if Path(source).suffix in (".h5", ".hdf5") else None
    if path is None and source not in PROBLEMS:
        known = ", ".join(PROBLEMS)
        raise ValueError(f"no problem {source!r}: expected a data file (.h5) or one of {known}")
    fields = None if path is None else _opened(path)
    problem = source if path is None or fields is None else problem_of(fields, path)
    name = preset or default_preset(problem, model)
    chosen = find_preset(problem, name, model)
    protocol = chosen.protocol
    if fields is None:
        protocol_of(problem, protocol)
    spec = RunSpec(
        problem,
        model,
        name,
        epochs,
        precision,
        protocol,
        minutes,
        data=None if path is None else str(path.resolve()),
        validation=VALIDATION,
    )
    task = _task_on(fields, chosen.task, model, rollout, f"{name} of {problem}")
    spec = replace(spec, task=task)
    _require_capable(spec)
    return spec


def on_file(specs: Sequence[RunSpec], path: Path, experiment: Experiment) -> list[RunSpec]:
    """The specs of the problem that a data file belongs to, with its samples.

    The ledger names their runs after the file, so that they never mix with those on other data.
    """
    if not experiment.takes_files:
        raise ValueError(f"--data: the samples of {experiment.name} are always made; leave it out")
    fields = _opened(path)
    problem = problem_of(fields, path)
    found = [spec for spec in specs if spec.problem == problem and spec.seconds is None]
    if not found:
        known = ", ".join(sorted({spec.problem for spec in specs}))
        raise ValueError(f"--data: expected samples of {known}, got those of {problem} in {path}")
    split_of(fields)
    where = str(path.resolve())
    tasks = (_task_on(fields, spec.preset.task, spec.model, None, spec.recipe) for spec in found)
    return [replace(spec, data=where, task=task) for spec, task in zip(found, tasks, strict=True)]


def problem_of(fields: Fields, path: Path) -> str:
    """The problem that a file belongs to; its name where it belongs to none."""
    named = str(fields.provenance.get("problem"))
    return named if named in PROBLEMS else path.stem


def held_out_samples(operator: Operator, name: str | Path, device: str = "auto") -> Fields:
    """The test samples of the problem that an operator was trained on, made again if need be.

    A path that a model file names is not opened: the user names the files that are.
    """
    run = _run_of(operator)
    if run is None:
        raise ValueError(f"{name} does not say what to test it on: pass a data file with --data")
    if run["data"]:
        raise ValueError(
            f"{name} was trained on a data file, which was {run['data']} then. Name it, wherever "
            "it is now, to test on its test samples, or other samples: --data FILE"
        )
    _, _, test = RunSpec(run["problem"], "", "", protocol=run["protocol"]).samples(device)
    if run["test_digest"] != test.digest:
        raise _changed(run["problem"], name)
    return test


def samples_to_test(operator: Operator, name: str | Path, path: Path, fields: Fields) -> Fields:
    """Samples of a file to test an operator on: all of them, unless it was trained on some.

    Of the file that it was trained on, those are the test samples.
    """
    run = _run_of(operator)
    if run is None or not run["data"] or len(fields) < 2:
        return fields
    *_, test = fields.split(*split_of(fields))
    if test.digest == run["test_digest"]:
        return test
    if str(path.resolve()) == run["data"]:
        raise _changed(str(path), name)
    return fields


def training_samples(
    operator: Operator, model: Path, train: Path | None, data: Path | None, device: str = "auto"
) -> tuple[Fields | None, str]:
    """The samples that an operator was trained on, or None and the reason in words.

    Those of `train`; else those of its problem, where it is tested on that as well; else those of
    the file that it was trained on, if that is `data`, or has its old name beside `data`, beside
    the model or in the current folder, and still holds the same test samples. Where the model file
    says that it was elsewhere counts for nothing, as in `held_out_samples`.

    Args:
        operator: the operator.
        model: its file.
        train: the file with training samples that the user names.
        data: the file with test samples that the user names.
        device: where samples of a problem are made.
    """
    run = _run_of(operator)
    if train is not None:
        fields = Fields.load(train)
        return _trained_on(operator, _part_to_train(run, fields) or fields), ""
    if run is None:
        return None, "the model does not say what it was trained on"
    if not run["data"]:
        if data is not None:
            return None, f"the samples of {run['problem']} are made only to test on them as well"
        first, *_ = RunSpec(run["problem"], "", "", protocol=run["protocol"]).samples(device)
        return _trained_on(operator, first), ""
    name = Path(run["data"].replace("\\", "/")).name
    folders = [model.parent, Path(), *([] if data is None else [data.parent])]
    for path in [*([] if data is None else [data]), *(folder / name for folder in folders)]:
        with suppress(OSError, ValueError):  # whatever else has this name is not the file
            found = _part_to_train(run, _opened(path))
            if found is not None:
                return _trained_on(operator, found), ""
    return None, f"the file that the model was trained on, {name}, is not here, or it changed"


def _part_to_train(run: dict[str, str] | None, fields: Fields) -> Fields | None:
    """The training samples of the file of a run; None where it is another file."""
    if run is None or len(fields) < 2:
        return None
    train, test = fields.split(*split_of(fields))
    return train if test.digest == run["test_digest"] else None


def _trained_on(operator: Operator, train: Fields) -> Fields:
    """Of training samples those without validation, where that is how the operator was trained."""
    described = operator.provenance.get("data")
    digest = described.get("digest") if isinstance(described, dict) else None
    used, held_out = split_validation(train, VALIDATION)
    return used if held_out is not None and used.digest == digest else train


def _run_of(operator: Operator) -> dict[str, str] | None:
    """What the file of an operator says about the run that made it; None: nothing of use."""
    run = operator.provenance.get("run")
    keys = ("problem", "protocol", "data", "test_digest")
    if not isinstance(run, dict) or not all(isinstance(run.get(k), str | None) for k in keys):
        return None
    return {key: run.get(key) or "" for key in keys}


def _changed(data: str, name: str | Path) -> ValueError:
    return ValueError(
        f"{data} is not what it was when {name} was trained: its test samples may have been "
        "trained on. Pass other samples with --data"
    )


def _opened(path: Path) -> Fields:
    try:
        return Fields.load(path, lazy=True)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{error}. If it was moved, name its new place: runs are resumed by what the file "
            "holds, not by where it is"
        ) from error


def _snapshots(fields: Fields, task: Task, model: str) -> Task | None:
    """Snapshots, of data on a grid in space and time.

    For a model that embeds time, and where the preset says so; else None.
    """
    grid, names = fields.spec.grid, fields.names["x"]
    embeds = type(task) is Steady and MODELS[model][0].embeds_time
    if not embeds and not isinstance(task, Snapshots):
        return None
    in_time = grid is not None and len(grid) == len(names) == 3 and names[-1] in TIME
    return Snapshots(grid[-1]) if grid is not None and in_time else None


def _require_capable(spec: RunSpec) -> None:
    """Raise where a task or a recipe asks for what a model cannot do: before data are made.

    Sizes are not known yet, so grids are taken to suit the model.
    """
    cls, chosen = MODELS[spec.model][0], spec.preset
    sizes = Spec(2, 1, 1, (8, 8))
    elsewhere, subset = chosen.task.asks_elsewhere, chosen.recipe.queries is not None
    config = cls.default_config(sizes)
    with torch.device("meta"):  # no memory, no time
        model = cls(sizes, cls.for_other_points(config) if elsewhere else config)
    require_capable(model, spec.model, Demand(sizes, elsewhere, subset=subset))


def _task_on(
    fields: Fields | None, task: Task, model: str, rollout: int | None, preset: str
) -> Task | None:
    """The task in place of a preset's, where the data or the user say more; None: the preset's."""
    if rollout is None and (fields is None or not isinstance(task, Rollout)):
        return None if fields is None else _snapshots(fields, task, model)
    channels = rollout or task.channels  # type: ignore[attr-defined]
    if fields is None:
        if not isinstance(task, Rollout):
            raise ValueError(
                f"--rollout: the preset {preset} predicts no frames, its task is "
                f"{type(task).__name__}. Leave --rollout out, or train on a data file of frames"
            )
        return Rollout(task.frames, channels)
    answers = fields.spec.out_channels
    if answers == 0 or answers % channels:
        raise ValueError(
            f"a rollout in frames of {channels} channels: expected a multiple of that many "
            f"channels of y, got {answers}"
        )
    return Rollout(answers // channels, channels)
