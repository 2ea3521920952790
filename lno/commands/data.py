"""`lno data`: make, import, join, read, check and inspect data sets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from lno.commands import checks, imports
from lno.commands.console import command, key_values, new_app, require_h5, show, show_lines
from lno.commands.info import describe_fields
from lno.config import from_dict
from lno.data import Fields
from lno.experiments.pictures import sample_gallery
from lno.problems import PROBLEMS, Problem, read_published
from lno.problems.join import join_files
from lno.problems.make import make_file
from lno.report import plots
from lno.training.device import pick_solver_device
from lno.training.progress import progress

app = new_app("Generate, import, check and inspect data sets.")
MADE = ", ".join(name for name, cls in PROBLEMS.items() if cls.can_make())
READ = ", ".join(name for name, cls in PROBLEMS.items() if cls.published)
PROTOCOLS = ", ".join(dict.fromkeys(key for cls in PROBLEMS.values() for key in cls.published))


@app.command("make", epilog="Example: lno data make darcy --samples 1200 --out darcy.h5")
def make_data(
    problem: Annotated[str, typer.Argument(help=f"One of {MADE}.")],
    samples: Annotated[int, typer.Option(min=1, help="How many samples.")],
    result: Annotated[Path, typer.Option("--out", help="The file to write (.h5).")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random inputs.")] = 0,
    grid: Annotated[int | None, typer.Option(help="Points of the solver along an axis.")] = None,
    every: Annotated[
        int | None, typer.Option(help="Keep every k-th point; with --grid, all.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A physical parameter, like --set viscosity=1e-4."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    first: Annotated[
        int, typer.Option(min=0, help="The first sample; 'lno data join' joins such ranges.")
    ] = 0,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes, on a CPU. Each uses one core.")
    ] = 1,
) -> None:
    """Solve a PDE for random inputs. An interrupted run continues when it is started again.

    Sample k of a seed is always the same: a shorter run is the beginning of a longer one, and any
    range of samples can be made on its own.
    """
    require_h5(result)
    given = key_values("--set", settings)
    for key, value in (("grid", grid), ("every", every)):
        if value is not None:
            _require_size(problem, key, given)
            given[key] = str(value)
    made, where = build_problem(problem, given), str(pick_solver_device(device))
    with progress(f"making {problem}", samples) as update:
        fields = make_file(made, samples, result, seed, where, update, first, workers)
    show(f"wrote {result}: {fields}")
    for line in describe_failures(fields):
        show(line)
    show(f"Next: {command('data', 'info', result, '--plot', 'samples.png')}")


@app.command("join", epilog="Example: lno data join parts/*.h5 --out airfoil.h5")
def join_data(
    paths: Annotated[list[Path], typer.Argument(help="Files of 'lno data make', in any order.")],
    result: Annotated[Path, typer.Option("--out", help="The file to write (.h5).")],
) -> None:
    """Join files that hold ranges of the same samples, made with --first.

    The result is the file that one run would have made. Files that do not belong together, missing
    samples and samples that come twice are errors.
    """
    require_h5(result)
    fields = join_files(paths, result)
    begin = fields.provenance["first"]
    show(f"wrote {result}: samples {begin} to {begin + len(fields) - 1}, {fields}")
    for line in describe_failures(fields):
        show(line)
    show(f"Next: {command('data', 'info', result, '--plot', 'samples.png')}")


@app.command(
    "read", epilog="Example: lno data read pipe Pipe_X.npy Pipe_Y.npy Pipe_Q.npy --out pipe.h5"
)
def read_data(
    problem: Annotated[str, typer.Argument(help=f"Whose files these are: {READ}.")],
    paths: Annotated[list[Path], typer.Argument(help="The files, in the order of docs/data.md.")],
    result: Annotated[Path, typer.Option("--out", help="The file to write (.h5).")],
    protocol: Annotated[str, typer.Option(help=f"One of {PROTOCOLS}.")] = "standard",
) -> None:
    """Convert published benchmark files (MATLAB, NumPy) to one data file."""
    require_h5(result)
    fields = read_published(problem, paths, protocol)
    fields.save(result)
    show(f"wrote {result}: {fields}")
    show(f"Next: {command('train', result, '--out', f'runs/{problem}')}")


@app.command("info", epilog="Example: lno data info darcy.h5 --plot samples.png")
def inspect_data(
    file: Annotated[Path, typer.Argument(help="A data file (.h5).")],
    plot: Annotated[
        Path | None, typer.Option(help="Also draw the first samples (.png, .svg).")
    ] = None,
) -> None:
    """Describe a data file: shapes, ranges, units, digest, provenance."""
    fields = Fields.load(file)
    show_lines(describe_fields(fields))
    if plot is not None:
        plots.save(sample_gallery(fields), plot)
        show(f"wrote {plot}")


app.command("import", epilog=imports.EXAMPLE)(imports.import_data)
app.command("check", epilog=checks.EXAMPLE)(checks.check_data)


def _require_size(problem: str, key: str, given: Mapping[str, str]) -> None:
    """Raise if the option `--key` does not apply to a problem, or `--set` has the key, too."""
    if key in given:
        raise ValueError(f"expected --{key} or --set {key}=…, got both: leave one of them out")
    defaults = {f.name: f.default for f in dataclasses.fields(PROBLEMS.get(problem, Problem))}
    if problem in PROBLEMS and key not in defaults:
        sizes = [f"{name}={size}" for name, size in defaults.items() if isinstance(size, int)]
        instead = f". Its sizes are changed with --set: {', '.join(sizes)}" if sizes else ""
        raise ValueError(f"--{key} does not apply to {problem}, which has no key {key!r}{instead}")


def build_problem(name: str, settings: Mapping[str, str]) -> Problem:
    """A problem by name, with some of its parameters set by text."""
    if name not in PROBLEMS:
        raise ValueError(f"no problem {name!r}: expected one of {', '.join(PROBLEMS)}")
    cls = PROBLEMS[name]
    defaults = {f.name: f.default for f in dataclasses.fields(cls)}
    if "grid" in settings and "every" in defaults:
        settings = {"every": "1", **settings}  # the default belongs to the default grid
    values: dict[str, Any] = {}
    for key, text in settings.items():
        if key not in defaults:
            values[key] = text  # refused below, with a list of the settings that there are
            continue
        kind = int if isinstance(defaults.get(key), int) else float
        try:
            values[key] = kind(text)
        except ValueError:
            expected = "a whole number" if kind is int else "a number"
            raise ValueError(f"{key}: expected {expected}, got {text!r}") from None
    return from_dict(cls, values)


def describe_failures(fields: Fields) -> list[str]:
    """What is known of samples that did not converge at first, in words."""
    lines = {
        "retried": "did not converge at first and were solved with safer settings",
        "redrawn": "did not converge, and another input was drawn",
    }
    found = {key: [str(k) for k in fields.provenance.get(key, [])] for key in lines}
    return [
        f"{len(found[key])} of {len(fields)} samples {what}: "
        f"{', '.join(found[key][:10])}{', …' * (len(found[key]) > 10)}"
        for key, what in lines.items()
        if found[key]
    ]
