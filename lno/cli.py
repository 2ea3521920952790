"""The `lno` command: thin, every command is a function elsewhere."""

from __future__ import annotations

import io
import shlex
import shutil
import sys
import traceback
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

import lno
from lno.commands import reproduce
from lno.commands.console import err, out

app = typer.Typer(
    name="lno",
    help="Learn maps between functions: any points in, any points out.",
    epilog="Begin with: lno quickstart",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
INTERRUPTED = 130  # what the parser makes of Ctrl-C
WARNED: set[str] = set()  # what this process has said already


@app.callback(invoke_without_command=True)
def common(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[bool, typer.Option(help="Show the whole traceback of an error.")] = False,
) -> None:
    """Learn maps between functions: any points in, any points out."""
    if version:
        out.print(f"lno {lno.__version__}")
        raise typer.Exit


@app.command(epilog="Example: lno quickstart --out /tmp/first-look")
def quickstart(
    folder: Annotated[Path, typer.Option("--out", help="Folder for what it writes.")] = Path(
        "quickstart"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Decides data, weights and sensors.")] = 0,
    results: Annotated[
        Path | None, typer.Option(help="Ledger to record it in; default: in --out.")
    ] = None,
) -> None:
    """Train a small operator and look at what it does: about five minutes on two CPU cores."""
    from lno.experiments import quickstart as example

    err.print("Learning to see a whole field from a few sensors (Burgers' equation).")
    comparisons = example.quickstart(folder, seed, results, _program())
    out.print(example.table(comparisons).rich())
    out.print(f"Look at {folder / 'report.html'} in a browser. Then try:")
    for command in example.next_commands(folder, _program()):
        out.print(f"  {command}", soft_wrap=True)


@app.command(epilog="Example: lno info quickstart/model.safetensors")
def info(
    file: Annotated[
        Path | None, typer.Argument(help="A model or a data file; none: this machine.")
    ] = None,
) -> None:
    """Say what a model or data file holds, or what this installation can use."""
    from lno.commands.info import describe_file, describe_installation

    _print_lines(describe_installation() if file is None else describe_file(file))


@app.command(
    epilog="Example: lno predict model.safetensors sensors.csv --out field.csv --plot field.png"
)
def predict(
    model: Annotated[Path, typer.Argument(help="A model file (.safetensors).")],
    observed: Annotated[
        Path, typer.Argument(help="Observations: .csv with named columns, or .h5.")
    ],
    result: Annotated[Path, typer.Option("--out", help="Predictions: .csv, .npz or .h5.")],
    at: Annotated[Path | None, typer.Option(help="CSV of positions to predict at.")] = None,
    grid: Annotated[
        str | None, typer.Option(help="Predict on a regular grid of this shape, like 64x128.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw the first sample (.png, .svg).")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Predict a field from observations with a trained operator.

    Without --at or --grid: on the grid of the training data, or at the observed points.
    """
    from lno.commands.predict import predict_file

    fields = predict_file(model, observed, result, at=at, grid=grid, plot=plot, device=device)
    out.print(f"wrote {result}: {fields}", soft_wrap=True, markup=False)
    if plot is not None:
        out.print(f"wrote {plot}", soft_wrap=True, markup=False)


@app.command(epilog="Example: lno train darcy --preset small --minutes 2 --out runs/darcy")
def train(
    source: Annotated[
        str, typer.Argument(help="A problem (darcy, burgers, ns2d) or a data file (.h5).")
    ],
    folder: Annotated[Path, typer.Option("--out", help="Folder of the run.")],
    preset: Annotated[
        str, typer.Option(help="small, paper or fast; of ns2d paper, of burgers completer too.")
    ] = "small",
    model: Annotated[str, typer.Option(help="lno, transolver, gnot or deeponet.")] = "lno",
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the samples.")] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop after so much training.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Decides weights, order and draws.")] = 0,
    members: Annotated[int, typer.Option(min=1, help="Models to train at once, an ensemble.")] = 1,
    split: Annotated[
        str, typer.Option(help="Under torchrun: share out samples or points.")
    ] = "samples",
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write the curve for TensorBoard too.")
    ] = False,
) -> None:
    """Train an operator. Ctrl-C saves the run; --resume continues it with the same bits.

    On several GPUs or machines: torchrun --nproc-per-node 8 -m lno.cli train ...
    """
    from lno.experiments import train as experiment
    from lno.training.distributed import leads

    recipe = {} if epochs is None else {"epochs": epochs}
    operator, errors = experiment.train(
        source,
        folder,
        preset=preset,
        model=model,
        recipe=recipe,
        resume=resume,
        minutes=minutes,
        device=device,
        seed=seed,
        members=members,
        split=split,
        tensorboard=tensorboard,
    )
    if not leads():
        return
    path = folder / "model.safetensors"
    if operator.finished:
        out.print(f"wrote {path}", soft_wrap=True, markup=False)
    else:
        again = [a for a in sys.argv[1:] if a != "--resume"]
        command = shlex.join([_program(), *again, "--resume"])
        out.print(f"stopped early; {path} is the model so far. Continue with:", markup=False)
        out.print(f"  {command}", soft_wrap=True, markup=False)
    _print_errors(errors)
    if not operator.finished and minutes is None:
        sys.exit(INTERRUPTED)  # so that what would come next does not


@app.command(epilog="Example: lno evaluate runs/darcy/model.safetensors")
def evaluate(
    model: Annotated[Path, typer.Argument(help="A model file (.safetensors).")],
    file: Annotated[Path | None, typer.Option("--data", help="A data file with answers.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Print a model's errors on a data file, or on the test samples of its own data set."""
    from lno.experiments import train as experiment

    _print_errors(experiment.evaluate(model, file, device))


@app.command(epilog="Example: lno reconstruct sensors.csv --out field.npz --plot field.png")
def reconstruct(
    sensors: Annotated[Path, typer.Argument(help="CSV with the columns x, t, u.")],
    result: Annotated[Path, typer.Option("--out", help="The field and its bounds (.npz).")],
    plot: Annotated[Path | None, typer.Option(help="Also draw it (.png, .svg).")] = None,
    model: Annotated[
        Path | None, typer.Option(help="Folder of a completer and a propagator.")
    ] = None,
    noise: Annotated[
        float, typer.Option(min=0, help="Standard deviation of the sensors' errors.")
    ] = 0.0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """See a whole field, also before and after, from a few sensors inside a window of time."""
    from lno.commands.reconstruct import reconstruct_file

    keys: dict[str, Any] = {"plot": plot, "noise": noise, "device": device}
    found = reconstruct_file(sensors, result, model=model, **keys)
    rows, columns = found.mean.shape
    out.print(f"wrote {result}: {rows} × {columns} values, lower and upper bounds", markup=False)
    if plot is not None:
        out.print(f"wrote {plot}", soft_wrap=True, markup=False)


app.add_typer(reproduce.app, name="reproduce")


@app.command(epilog="Example: lno report --out report.html")
def report(
    page: Annotated[Path, typer.Option("--out", help="The page to write (.html).")] = Path(
        "report.html"
    ),
    markdown: Annotated[Path | None, typer.Option(help="Also write the tables (.md).")] = None,
    results: Annotated[Path, typer.Option(help="The ledger.")] = Path("results"),
) -> None:
    """Make a page of all tables and figures from the ledger."""
    from lno.experiments import report as pages

    pages.write(results, page, markdown)
    out.print(f"wrote {page}: look at it in a browser", soft_wrap=True, markup=False)
    if markdown is not None:
        out.print(f"wrote {markdown}", soft_wrap=True, markup=False)


data = typer.Typer(help="Make, read and look at data sets.", no_args_is_help=True)
app.add_typer(data, name="data")


@data.command("make", epilog="Example: lno data make darcy --samples 1200 --out darcy.h5")
def data_make(
    problem: Annotated[str, typer.Argument(help="burgers, darcy or ns2d.")],
    samples: Annotated[int, typer.Option(min=1, help="How many samples.")],
    result: Annotated[Path, typer.Option("--out", help="The file to write (.h5).")],
    seed: Annotated[int, typer.Option(min=0, help="Decides the random inputs.")] = 0,
    grid: Annotated[int | None, typer.Option(help="Points along an axis, of the solver.")] = None,
    every: Annotated[
        int | None, typer.Option(help="Keep every k-th point; with --grid, all.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Physics, like --set viscosity=1e-4.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Solve a PDE for random inputs. An interrupted run continues when it is started again.

    Sample k of a seed is always the same: a shorter run is the beginning of a longer one.
    """
    from lno.commands.data import make_data

    fields = make_data(
        problem,
        samples,
        result,
        seed=seed,
        device=device,
        settings=settings or [],
        grid=grid,
        every=every,
    )
    out.print(f"wrote {result}: {fields}", soft_wrap=True, markup=False)
    following = f"{_program()} data info {result} --plot samples.png"
    out.print(f"Next: {following}", soft_wrap=True, markup=False)


@data.command(
    "read", epilog="Example: lno data read pipe Pipe_X.npy Pipe_Y.npy Pipe_Q.npy --out pipe.h5"
)
def data_read(
    problem: Annotated[str, typer.Argument(help="Whose published files these are.")],
    paths: Annotated[list[Path], typer.Argument(help="The files, in the order of docs/data.md.")],
    result: Annotated[Path, typer.Option("--out", help="The file to write (.h5).")],
    protocol: Annotated[str, typer.Option(help="standard or reference.")] = "standard",
) -> None:
    """Convert published benchmark files (MATLAB, NumPy) to one data file."""
    from lno.commands.data import read_published

    fields = read_published(problem, paths, result, protocol)
    out.print(f"wrote {result}: {fields}", soft_wrap=True, markup=False)


@data.command("info", epilog="Example: lno data info darcy.h5 --plot samples.png")
def data_info(
    file: Annotated[Path, typer.Argument(help="A data file (.h5).")],
    plot: Annotated[Path | None, typer.Option(help="Also draw the first samples.")] = None,
) -> None:
    """Say what a data file holds: shapes, ranges, units, hash, provenance."""
    from lno.commands.data import draw_samples
    from lno.commands.info import describe_fields
    from lno.data import Fields

    fields = Fields.load(file)
    _print_lines(describe_fields(fields))
    if plot is not None:
        draw_samples(fields, plot)
        out.print(f"wrote {plot}", soft_wrap=True, markup=False)


def main() -> None:
    """Run the command line; errors are one clear line and a non-zero exit code."""
    warnings.showwarning = _show_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # terminals that have no letter for ² or →
    WARNED.clear()
    words = [word for word in sys.argv[1:] if word != "--debug"]  # it may stand anywhere
    debug = len(words) < len(sys.argv) - 1
    try:
        code = typer.main.get_command(app)(words, standalone_mode=False)
        if code == INTERRUPTED:
            err.print("interrupted: no result is half-written; run the same command again")
    except Exception as error:
        if hasattr(error, "show"):  # the parser's own errors know how to print themselves
            error.show()
            sys.exit(getattr(error, "exit_code", 2))
        if debug:
            traceback.print_exc()
        else:
            expected = isinstance(error, ValueError | OSError | RuntimeError | MemoryError)
            kind = "" if expected else f"{type(error).__name__}: "
            err.print(f"error: {kind}{error}", soft_wrap=True, markup=False)
            if not expected:
                err.print("This looks like a bug; --debug shows where it comes from.")
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def _print_errors(errors: dict[str, float]) -> None:
    l2, mae = (f"{100 * errors[name]:.3f} %" for name in ("relative_l2", "relative_mae"))
    out.print(f"test: relative L2 {l2}, relative MAE {mae}, MSE {errors['mse']:.3e}", markup=False)


def _program() -> str:
    """How the user can call this program again: `lno`, or the path to it if it is not on PATH."""
    if shutil.which("lno"):
        return "lno"
    path = Path(sys.argv[0]).resolve()
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _print_lines(lines: dict[str, str]) -> None:
    for key, value in lines.items():
        out.print(f"{key:>14}  {value}", soft_wrap=True, markup=False)


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    if str(message) not in WARNED:  # the same may be found in several places
        WARNED.add(str(message))
        err.print(f"warning: {message}", soft_wrap=True, markup=False)


if __name__ == "__main__":
    main()
