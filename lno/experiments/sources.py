"""What `lno train` and `lno evaluate` are given: a problem or a data file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lno.data import Fields
from lno.experiments.datasets import protocol_of
from lno.experiments.presets import default_preset
from lno.experiments.presets import preset as find_preset
from lno.experiments.runs import RunSpec
from lno.operator import Operator
from lno.problems import PROBLEMS
from lno.tasks import Rollout, Task

VALIDATION = 0.1  # the share of the training samples that is held out


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
    fields = None if path is None else Fields.load(path, lazy=True)
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
    return replace(spec, task=_task(chosen.task, fields, rollout))


def problem_of(fields: Fields, path: Path) -> str:
    """The problem that a file belongs to; its name where it belongs to none."""
    named = str(fields.provenance.get("problem"))
    return named if named in PROBLEMS else path.stem


def held_out_samples(operator: Operator, name: str | Path, device: str = "auto") -> Fields:
    """The test samples of the data that an operator was trained on."""
    run = operator.provenance.get("run")
    if run is None:
        raise ValueError(f"{name} does not say what to test it on: pass a data file with --data")
    spec = RunSpec(run["problem"], "", "", protocol=run["protocol"], data=run["data"])
    _, _, test = spec.samples(device)
    if run["test_digest"] != test.digest:
        raise ValueError(
            f"{run['data'] or run['problem']} is not what it was when {name} was trained: its test "
            "samples may have been trained on. Pass other samples with --data"
        )
    return test


def _task(task: Task, fields: Fields | None, rollout: int | None) -> Task | None:
    """The task in place of a preset's, where the data or the user say more; None: the preset's."""
    if rollout is None and (fields is None or not isinstance(task, Rollout)):
        return None
    channels = rollout or task.channels  # type: ignore[attr-defined]
    if fields is None:
        return Rollout(task.frames, channels) if isinstance(task, Rollout) else None
    answers = fields.spec.out_channels
    if answers == 0 or answers % channels:
        raise ValueError(
            f"a rollout in frames of {channels} channels: expected a multiple of that many "
            f"channels of y, got {answers}"
        )
    return Rollout(answers // channels, channels)
