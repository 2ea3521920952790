"""`lno train`: a problem or a data file to a trained operator and its error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lno.calibration import promise
from lno.commands.console import INTERRUPTED, command, new_app, show, show_errors
from lno.experiments.execution import HELD_OUT, MODEL, execute
from lno.experiments.presets import NAMES
from lno.experiments.sources import describe
from lno.models import MODELS
from lno.operator import Operator
from lno.problems import PROBLEMS
from lno.training.distributed import is_main

app = new_app()


@app.command(epilog="Example: lno train darcy --preset small --minutes 2 --out runs/darcy")
def train(
    source: Annotated[
        str, typer.Argument(help=f"A data file (.h5), or a problem: {', '.join(PROBLEMS)}.")
    ],
    folder: Annotated[Path, typer.Option("--out", help="Folder of the run.")],
    preset: Annotated[
        str | None,
        typer.Option(
            help=f"Sizes and recipe, one of {', '.join(NAMES)}. Default: small if the problem has "
            "it, else paper; for other data, general sizes."
        ),
    ] = None,
    model: Annotated[str, typer.Option(help=f"One of {', '.join(MODELS)}.")] = "lno",
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the samples.")] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="A budget: epochs and schedule are fitted into so many minutes."),
    ] = None,
    pause_after: Annotated[
        float | None,
        typer.Option(min=0, help="Stop early, after so many minutes, ready to resume."),
    ] = None,
    rollout: Annotated[
        int | None,
        typer.Option(
            min=1, help="Predict frame by frame: u and y hold frames of so many channels each."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    precision: Annotated[str, typer.Option(help="auto, fp32, tf32 or mixed.")] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Decides weights, order and draws.")] = 0,
    members: Annotated[int, typer.Option(min=1, help="Models to train at once, an ensemble.")] = 1,
    split: Annotated[
        str, typer.Option(help="Under torchrun: distribute samples or points.")
    ] = "samples",
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write the curve for TensorBoard too.")
    ] = False,
) -> None:
    """Train an operator. Ctrl-C saves the run; --resume continues it bit-for-bit.

    The folder holds the model, checkpoints, the learning curve, and the run with its errors
    (run.json): `lno report FOLDER` shows it.

    On several GPUs or machines: torchrun --nproc-per-node 8 -m lno.cli train ...
    """
    spec = describe(
        source,
        preset=preset,
        model=model,
        epochs=epochs,
        minutes=minutes,
        precision=precision,
        rollout=rollout,
    )
    done = execute(
        spec,
        range(seed, seed + members),
        folder,
        device,
        resume=resume,
        pause_after=pause_after,
        split=split,
        tensorboard=tensorboard,
    )
    if not is_main():
        return
    path = folder / MODEL
    if done.operator.finished:
        show(f"wrote {path}")
        show(f"Next: {command('report', folder)}")
        show(f"      {command(*_where_is_the_error(folder, spec.data))}")
        _show_bounds(done.operator)
    else:
        again = [word for word in sys.argv[1:] if word != "--resume"]
        show(f"stopped early; {path} is the model so far. Resume with:")
        show(f"  {command(*again, '--resume')}")
    show_errors(done.errors)
    if done.operator.provenance.get("stopped") == "interrupted":
        sys.exit(INTERRUPTED)  # a script must not go on as if it were finished


def _where_is_the_error(folder: Path, data: str | None) -> list[object]:
    """The words of the command that shows the errors on the test samples of a run."""
    given = [] if data is None else ["--data", data]
    return ["evaluate", folder, *given, "--report", folder / "errors.html"]


def _show_bounds(operator: Operator) -> None:
    """Whether predictions of the model have bounds, and what these promise."""
    bounds = operator.trust.bounds
    if bounds is None:
        show(f"no bounds: calibrating them takes {HELD_OUT} held-out samples (Operator.calibrated)")
    else:
        show(
            f"lno predict --bounds {bounds.level:g}, calibrated on {bounds.samples} held-out "
            f"samples: {promise(bounds.level)}"
        )
