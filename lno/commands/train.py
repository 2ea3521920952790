"""`lno train`: a problem or a data file to a trained operator and its error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lno.calibration import guarantee
from lno.commands.console import (
    INTERRUPTED,
    command,
    key_values,
    new_app,
    say,
    show,
    show_errors,
    show_lines,
)
from lno.data.division import Division
from lno.data.observe import RandomRatio
from lno.experiments.execution import HELD_OUT, MODEL, dry, execute
from lno.experiments.own import OwnRun
from lno.experiments.presets import NAMES
from lno.experiments.sources import describe
from lno.models import MODELS
from lno.operator import Operator
from lno.problems import PROBLEMS
from lno.training.distributed import is_main

OBSERVED = "0.01:0.1"  # the share of points that is observed with --task complete

app = new_app()


@app.command(epilog="Example: lno train my.h5 --minutes 5 --out runs/mine")
def train(
    source: Annotated[
        str, typer.Argument(help=f"A data file (.h5), or a problem: {', '.join(PROBLEMS)}.")
    ],
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder of the run; needed unless --dry-run.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help=f"Sizes and recipe, one of {', '.join(NAMES)}. Default: small if the problem has "
            "it, else paper; for other data, what suits their samples and points."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help=f"One of {', '.join(MODELS)}. Default: lno, or what suits the data."),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A size of the model or a key of the recipe."
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the samples.")] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="A time budget: the schedule is fitted to so many minutes."),
    ] = None,
    pause_after: Annotated[
        float | None,
        typer.Option(min=0, help="Pause after so many minutes, ready to resume."),
    ] = None,
    early_stop: Annotated[
        bool,
        typer.Option(
            "--early-stop", help="Keep the model with the lowest validation error; stop after it."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what the run would cost, without training.")
    ] = False,
    rollout: Annotated[
        int | None,
        typer.Option(
            min=1, help="Predict frame by frame: u and y hold frames of so many channels each."
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="predict (the default): from u to y. complete: reconstruct whole fields y from "
            "some of their points."
        ),
    ] = None,
    observe: Annotated[
        str | None,
        typer.Option(
            metavar="LOW:HIGH", help="With complete: the share of points that is observed."
        ),
    ] = None,
    background: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A first guess of y: an input, or climatology:NAME, the mean of the training "
            "samples by a parameter or a coordinate.",
        ),
    ] = None,
    sphere: Annotated[
        str | None,
        typer.Option(metavar="LAT,LON", help="Coordinates that are latitude and longitude."),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Samples with the same NAME, a parameter, are split as a whole."
        ),
    ] = None,
    split_seed: Annotated[
        int, typer.Option(min=0, help="Determines which samples are for training and for testing.")
    ] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    precision: Annotated[str, typer.Option(help="auto, fp32, tf32 or mixed.")] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Of weights and random draws.")] = 0,
    members: Annotated[
        int, typer.Option(min=1, help="Members of an ensemble, trained together.")
    ] = 1,
    split: Annotated[
        str, typer.Option(help="Under torchrun: distribute samples or points.")
    ] = "samples",
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write the learning curve for TensorBoard.")
    ] = False,
) -> None:
    """Train an operator. Ctrl-C saves the run; --resume continues it bit-for-bit.

    The folder holds the model, checkpoints, the learning curve, and the run with its errors
    (run.json): `lno report FOLDER` shows it.

    Samples of a data file are split at random, unless the file defines a split.

    On several GPUs or machines: torchrun --nproc-per-node 8 -m lno.cli train ...
    """
    if folder is None and not dry_run:
        raise ValueError("expected the folder of the run, got none: pass --out runs/NAME")
    key_values("--set", changes)  # a key that comes twice is an error
    spec = describe(
        source,
        preset=preset,
        model=model,
        epochs=epochs,
        minutes=minutes,
        precision=precision,
        rollout=rollout,
        device=device,
        observe=_observed(task, observe),
        division=Division(split_seed, groups),
        changes=changes or (),
        sphere=_pair(sphere),
        background=background,
    )
    if isinstance(spec, OwnRun) and is_main():
        say(spec.split_in_words())
        for finding in spec.findings():
            say(str(finding))
    seeds = range(seed, seed + members)
    if dry_run or folder is None:
        show_lines(dry(spec, seeds, device).lines())
        return
    done = execute(
        spec,
        seeds,
        folder,
        device,
        resume=resume,
        pause_after=pause_after,
        split=split,
        tensorboard=tensorboard,
        early_stop=early_stop,
    )
    if not is_main():
        return
    path = folder / MODEL
    if done.operator.finished:
        show(f"wrote {path}")
        show(f"Next: {command('report', folder)}")
        show(f"      {command(*_where_is_the_error(folder, spec.data))}")
        if (folder / "domain.h5").exists():
            words = ("reconstruct", "sensors.csv", "--model", folder, "--out", "field.nc")
            show(f"      {command(*words)}")
        _show_bounds(done.operator)
        if done.verdict:
            show(done.verdict)
    else:
        again = [word for word in sys.argv[1:] if word != "--resume"]
        show(f"stopped early; {path} is the model so far. Resume with:")
        show(f"  {command(*again, '--resume')}")
    show_errors(done.errors)
    if done.operator.provenance.get("stopped") == "interrupted":
        sys.exit(INTERRUPTED)  # a script must not go on as if it were finished


def _pair(text: str | None) -> tuple[str, str] | None:
    """The names of latitude and longitude."""
    if text is None:
        return None
    first, _, second = (part.strip() for part in text.partition(","))
    if not first or not second or "," in second:
        raise ValueError(f"--sphere {text}: expected two names, like --sphere lat,lon")
    return first, second


def _observed(task: str | None, observe: str | None) -> RandomRatio | None:
    """The share of points that is observed, with --task complete."""
    if task not in (None, "predict", "complete"):
        raise ValueError(f"--task {task}: expected predict or complete")
    if task == "predict" and observe is not None:
        raise ValueError("--observe belongs to --task complete, got --task predict")
    if (task is None and observe is None) or task == "predict":
        return None
    text = OBSERVED if observe is None else observe
    low, _, high = text.partition(":")
    try:
        return RandomRatio(float(low), float(high) if high else None)
    except ValueError as error:
        raise ValueError(
            f"--observe {text}: expected a share of the points or two, like 0.005:0.05 ({error})"
        ) from error


def _where_is_the_error(folder: Path, data: str | None) -> list[object]:
    """The words of the command that shows the errors on the test samples of a run."""
    given = [] if data is None else ["--data", data]
    return ["evaluate", folder, *given, "--report", folder / "errors.html"]


def _show_bounds(operator: Operator) -> None:
    """Whether predictions of the model have bounds, and what these guarantee."""
    bounds = operator.trust.bounds
    if bounds is None:
        show(
            f"no bounds: they are calibrated on {HELD_OUT} validation samples or more. Import the "
            "data with --split TRAIN,VALIDATION,TEST, or see Operator.calibrated"
        )
    else:
        show(
            f"lno predict --bounds {bounds.level:g}, calibrated on {bounds.samples} held-out "
            f"samples: {guarantee(bounds.level)}"
        )
