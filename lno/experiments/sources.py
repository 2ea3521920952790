"""What `lno train` and `lno evaluate` are given: a problem or a data file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

from lno.data import Fields, Spec
from lno.data.division import Division, validation_count
from lno.data.observe import RandomRatio
from lno.experiments.datasets import protocol_of
from lno.experiments.own import CHOSEN, OwnRun, chosen_for, settings
from lno.experiments.presets import default_preset
from lno.experiments.presets import preset as find_preset
from lno.experiments.runs import RunSpec, own_split, split_of
from lno.experiments.tables import Experiment
from lno.models import MODELS, Demand, require_capable
from lno.operator import Operator
from lno.problems import PROBLEMS
from lno.tasks import Completion, Rollout, Snapshots, Steady, Task
from lno.training.device import pick_device
from lno.training.samples import split_validation

VALIDATION = 0.1  # the share of the training samples that is held out
TIME = ("t", "time")  # names of the coordinate


def describe(
    source: str,
    *,
    preset: str | None = None,
    model: str | None = None,
    epochs: int | None = None,
    minutes: float | None = None,
    precision: str = "auto",
    rollout: int | None = None,
    device: str = "auto",
    observe: RandomRatio | None = None,
    division: Division | None = None,
    changes: Sequence[str] = (),
    sphere: tuple[str, str] | None = None,
    background: str | None = None,
) -> RunSpec:
    """The run that a user asks for.

    Args:
        source: the name of a problem, or a data file (.h5) with outputs. A file whose provenance
            names a problem is trained like that problem.
        preset: the name of a preset; None: the default for the problem and the model, and for other
            data what the rule for defaults chooses.
        model: a name in `lno.models.MODELS`; None: LNO, and for other data what the rule chooses.
        epochs: in place of those of the preset.
        minutes: a time budget in place of epochs.
        precision: as in `Operator.fit`.
        rollout: u and y hold frames of so many channels, to be predicted one after the other.
        device: where to train, which sizes depend on.
        observe: reconstruct the fields of a data file from this share of their points.
        division: how the samples of a data file are split; None: at random, with seed 0.
        changes: keys of the model's config or of the recipe, as `key=value`.
        sphere: the coordinates of a data file that are latitude and longitude.
        background: what is known beside the observations, as in `Operator.fit`.
    """
    path = Path(source) if Path(source).suffix in (".h5", ".hdf5") else None
    if path is None and source not in PROBLEMS:
        known = ", ".join(PROBLEMS)
        raise ValueError(f"no problem {source!r}: expected a data file (.h5) or one of {known}")
    if model is not None and model not in MODELS:
        raise ValueError(f"no model {model!r}: expected one of {', '.join(MODELS)}")
    fields = None if path is None else _opened(path)
    problem = source if path is None or fields is None else problem_of(fields, path)
    lengths = {"epochs": epochs, "minutes": minutes, "precision": precision}
    if path is not None and fields is not None and problem not in PROBLEMS:
        fields = fields if sphere is None else fields.replace(sphere=sphere)
        if background is not None and fields.background is not None:
            raise ValueError(
                f"--background {background}: {path} has a background, which is used. Leave the "
                "option out"
            )
        first = background if background in fields.names["u"] else None
        spec: RunSpec = _own(path, fields, preset, model, rollout, device, observe, division, first)
        spec = replace(spec, **lengths, sphere=sphere, background=background)  # type: ignore[arg-type,call-arg]
    else:
        for option, given in (
            ("--groups", division and division.groups),
            ("--task", observe),
            ("--sphere", sphere),
            ("--background", background),
        ):
            if given is not None:
                raise ValueError(
                    f"{option}: the split and the task of {problem} are those of its protocol; "
                    "this option is for data files of your own"
                )
        kind = model or "lno"
        name = preset or default_preset(problem, kind)
        chosen = find_preset(problem, name, kind)
        if fields is None:
            protocol_of(problem, chosen.protocol)
        spec = RunSpec(
            problem,
            kind,
            name,
            protocol=chosen.protocol,
            data=None if path is None else str(path.resolve()),
            validation=VALIDATION,
            task=_task_on(fields, chosen.task, kind, rollout, f"{name} of {problem}"),
            **lengths,  # type: ignore[arg-type]
        )
    spec = replace(spec, changes=settings(changes, spec.model, spec.preset.task))
    _require_capable(spec)
    return spec


def _own(
    path: Path,
    fields: Fields,
    preset: str | None,
    model: str | None,
    rollout: int | None,
    device: str,
    observe: RandomRatio | None,
    division: Division | None,
    first_guess: str | None,
) -> OwnRun:
    """The run on a file of the user's own."""
    require_outputs(fields, path)
    how, name, data = division or Division(), preset or CHOSEN, problem_of(fields, path)
    chosen = None if preset is None else find_preset(data, preset, model or "lno")
    task: Task = Steady() if chosen is None else chosen.task
    if observe is not None:
        require_completable(fields, path, rollout, first_guess)
        task = Completion(observe)
    else:
        task = _task_on(fields, task, model or "lno", rollout, f"{name} of {data}") or task
    if chosen is None:
        where = pick_device(device).type
        kind, chosen = chosen_for(fields, how, task, where, model)
        task = chosen.task
    else:
        kind = model or "lno"
        chosen = replace(chosen, task=task, conditional=isinstance(task, Completion))
    return OwnRun(
        data, kind, name, data=str(path.resolve()), task=task, chosen=chosen, division=how
    )


def require_outputs(fields: Fields, path: Path) -> None:
    """Raise unless a file has something to learn."""
    if fields.y is None:
        raise ValueError(
            f"{path} has no outputs y to learn from: import them with --outputs of "
            "'lno data import', or pass Fields(..., y=...)"
        )


def require_completable(
    fields: Fields, path: Path, rollout: int | None, first_guess: str | None
) -> None:
    """Raise unless the fields of a file can be reconstructed from some of their points."""
    if rollout is not None:
        raise ValueError("--rollout and --task complete are different tasks: give one of them")
    inputs = [name for name in fields.names["u"] if name != first_guess]
    if inputs:
        listed = ", ".join(inputs)
        raise ValueError(
            f"--task complete: {path} has inputs ({listed}), and a field is reconstructed from "
            "values of itself alone. Import them as --covariates, which are known at all points, "
            "or leave them out; a first guess of the field is --background"
        )


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
    made = (
        replace(spec, data=where, task=task, protocol="standard")
        for spec, task in zip(found, tasks, strict=True)
    )
    return list(dict.fromkeys(made))  # protocols differ in their data alone


def problem_of(fields: Fields, path: Path) -> str:
    """The problem that a file belongs to by its provenance; the file's name if to none.

    A file of somebody's own that is called pipe.h5 is not one of the problem.
    """
    named = str(fields.provenance.get("problem"))
    if named in PROBLEMS:
        return named
    return path.name if path.stem in PROBLEMS else path.stem


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
    _, test = _parts(operator, fields)
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
        return _trained_on(operator, _part_to_train(operator, fields) or fields), ""
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
            found = _part_to_train(operator, _opened(path))
            if found is not None:
                return _trained_on(operator, found), ""
    return None, f"the file that the model was trained on, {name}, is not here, or it changed"


def _part_to_train(operator: Operator, fields: Fields) -> Fields | None:
    """The training samples of the file of a run; None where it is another file."""
    run = _run_of(operator)
    if run is None or len(fields) < 2:
        return None
    train, test = _parts(operator, fields)
    return train if test.digest == run["test_digest"] else None


def _trained_on(operator: Operator, train: Fields) -> Fields:
    """Of training samples those without validation, where that is how the operator was trained."""
    described = operator.provenance.get("data")
    digest = described.get("digest") if isinstance(described, dict) else None
    for share in (VALIDATION, validation_count(len(train)) / len(train)):
        used, held_out = split_validation(train, share)
        if held_out is not None and used.digest == digest:
            return used
    return train


def _run_of(operator: Operator) -> dict[str, str] | None:
    """What the file of an operator says about the run that made it; None: nothing of use."""
    run = operator.provenance.get("run")
    keys = ("problem", "protocol", "data", "test_digest")
    if not isinstance(run, dict) or not all(isinstance(run.get(k), str | None) for k in keys):
        return None
    return {key: run.get(key) or "" for key in keys}


def _parts(operator: Operator, fields: Fields) -> tuple[Fields, Fields]:
    """Training and test samples of a file, split as in the run that made an operator."""
    found = operator.provenance["run"].get("division")
    if isinstance(found, dict) and own_split(fields) is None:
        with suppress(TypeError, ValueError):  # not the file that it was trained on
            train, _, test = Division(**found).split(fields)
            return train, test
    train, *_, test = fields.split(*split_of(fields))
    return train, test


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
    elsewhere, recipe = chosen.task.queries_elsewhere, chosen.recipe
    subset, dropout = recipe.queries is not None, recipe.point_dropout > 0
    moved = recipe.jitter > 0
    config = cls.default_config(sizes)
    with torch.device("meta"):  # no memory, no time
        model = cls(sizes, cls.for_other_points(config) if elsewhere else config)
    require_capable(model, spec.model, Demand(sizes, elsewhere, False, subset, dropout, moved))


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
        return replace(task, channels=channels)
    outputs = fields.spec.out_channels
    if outputs == 0 or outputs % channels:
        raise ValueError(
            f"a rollout in frames of {channels} channels: expected a multiple of that many "
            f"channels of y, got {outputs}"
        )
    frames = outputs // channels
    if isinstance(task, Rollout):
        return replace(task, frames=frames, channels=channels)
    return Rollout(frames, channels)
