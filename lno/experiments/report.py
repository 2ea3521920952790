"""The report: tables and figures of runs on one page, of the ledger or of a user's own folders.

`docs/results.md` holds the tables of the ledger. Everything is made from the files of runs alone;
what is not there yet is shown as missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from matplotlib.figure import Figure

from lno.experiments import (
    efficiency,
    inverse,
    inverse_tables,
    positions,
    pretrained,
    scaling,
    stages,
)
from lno.experiments.execution import SAMPLE, WORST
from lno.experiments.tables import EXPERIMENTS
from lno.ledger import Run
from lno.problems import PROBLEMS
from lno.report import html, samples
from lno.report import runs as figures
from lno.report.tables import Table

SEEDS = range(3)
TITLE = "What was measured"
ABOUT = (
    "Every number here comes from a file under results/, one for each run, and the command beside "
    "a table makes its runs again. Errors are those of the last model on held-out test samples, in "
    "physical units."
)
ABOUT_FOLDERS = (
    "Errors are those of the last model on held-out test samples, in physical units; learning "
    "curves show the error on validation samples."
)
RANKS = ("worst", "second", "third", "fourth", "fifth")  # samples that are listed for each run


@dataclass(frozen=True)
class RunFolder:
    """A folder of `lno train`: its runs, one for each member, under a name of its own."""

    path: Path
    name: str
    runs: list[Run]

    @property
    def group(self) -> figures.Group:
        """The runs as one group of a figure."""
        [group, *more] = figures.grouped(self.runs)
        together = [run for each in (group, *more) for run in each.runs]
        return replace(group, runs=together, name=self.name)


# -- the ledger ------------------------------------------------------------------------------------


def tables(results: Path) -> list[Table]:
    """All tables of the paper that there are runs for, or will be."""
    made = {
        name: [table(each.specs(), range(max(3, each.seeds)), results) for table in each.tables]
        for name, each in EXPERIMENTS.items()
    }
    [first, *rest] = made.values()
    every = [*first, efficiency.table(results), *(t for some in rest for t in some)]
    return [*every, pretrained.table(results), positions.table(results)]


def markdown(results: Path) -> str:
    """The tables as a page of the documentation."""
    parts = ["# Results", ABOUT.replace("results/", "`results/`")]
    for table in tables(results):
        parts += [f"## {table.title}", table.markdown()]
    parts.append("Figures: `lno report --out report.html`.")
    return "\n\n".join(parts) + "\n"


def page(results: Path) -> str:
    """Tables and figures of the ledger as one self-contained HTML page."""
    body = [html.paragraph(ABOUT), *(table.html() for table in tables(results))]
    maps = inverse_tables.interval_maps(inverse.ON_GRIDS, SEEDS, results)
    body += _pictures([*maps, *stages.figures(results), *pretrained.coverage_curve(results)])
    body += _pictures([*scaling.figures(results, SEEDS), *positions.figures(results)])
    # Runs of the table on resolutions were trained on other data, with which they have their table;
    # those of ablations, whose recipe says what is changed, have theirs.
    every = [(p, run) for p, run in figures.load_runs(results) if run.protocol != "resolution"]
    found = [(path, run) for path, run in every if "=" not in run.recipe]
    for heading in sorted({_heading(run) for _, run in found}):
        mine = [(path, run) for path, run in found if _heading(run) == heading]
        groups = [g for g in figures.grouped([run for _, run in mine]) if g.epochs]
        parts = _pictures(_figures(groups))
        for path, run in mine:
            [group] = figures.grouped([run])
            parts += _sample(path.with_suffix(".npz"), f"{group.label}: median error")
        body += [html.heading(heading), *parts] if parts else []
    return html.page(TITLE, body)


def require_ledger(results: Path) -> None:
    """Raise unless there is a ledger."""
    if not results.is_dir():
        raise FileNotFoundError(
            f"no ledger at {results}: expected a folder of runs. For runs of `lno train`, name "
            "their folders: lno report FOLDER"
        )


# -- folders of runs -------------------------------------------------------------------------------


def load_folders(folders: Sequence[Path]) -> list[RunFolder]:
    """The runs of `lno train` in some folders, each under a short name of its own."""
    names = [folder.resolve().name for folder in folders]
    found = []
    for folder, name in zip(folders, names, strict=True):
        first = folder / "run.json"
        if not first.exists():
            raise FileNotFoundError(
                f"no {first}: expected the folder of a run that `lno train` has tested"
            )
        paths = [first, *sorted(folder.glob("run-*.json"))]
        unique = name if names.count(name) == 1 else str(folder)
        found.append(RunFolder(folder, unique, [Run.load(path) for path in paths]))
    return found


def tables_of_folders(folders: Sequence[RunFolder]) -> list[Table]:
    """Errors and cost of runs side by side, and their worst samples."""
    return [_errors_table(folders), _cost_table(folders), _worst_table(folders)]


def markdown_of_folders(folders: Sequence[RunFolder]) -> str:
    """The tables as Markdown."""
    parts = ["# Runs", ABOUT_FOLDERS]
    for table in tables_of_folders(folders):
        parts += [f"## {table.title}", table.markdown()]
    return "\n\n".join(parts) + "\n"


def page_of_folders(folders: Sequence[RunFolder]) -> str:
    """Tables and figures of runs side by side as one self-contained HTML page."""
    body = [html.paragraph(ABOUT_FOLDERS)]
    body += [table.html() for table in tables_of_folders(folders)]
    body += _pictures(_figures([folder.group for folder in folders]))
    for folder in folders:
        parts = _sample(folder.path / SAMPLE, f"{folder.name}: the test sample with median error")
        parts += _sample(folder.path / WORST, f"{folder.name}: the worst test sample")
        body += [html.heading(f"Fields of {folder.name}"), *parts] if parts else []
    return html.page(f"Runs: {', '.join(folder.name for folder in folders)}", body)


def _errors_table(folders: Sequence[RunFolder]) -> Table:
    rows = []
    for folder in folders:
        for run in folder.runs:
            for name, errors in run.metrics.items():
                percent = [f"{100 * errors[key]:.3f} %" for key in ("relative_l2", "relative_mae")]
                rows.append([folder.name, str(run.seed), name, *percent, f"{errors['mse']:.3e}"])
    header = ["run", "seed", "test set", "relative L2", "relative MAE", "MSE"]
    return Table("Errors", header, rows)


def _cost_table(folders: Sequence[RunFolder]) -> Table:
    rows = []
    for folder in folders:
        run = folder.runs[0]
        memory, together = run.peak_memory_gb, f" ({run.members} at once)" * (run.members > 1)
        rows.append(
            [
                folder.name,
                run.problem,
                figures.model_name(run.model),
                run.recipe,
                f"{run.parameters:,}",
                f"{run.epochs:g}",
                f"{run.steps:,}",
                f"{run.seconds:.1f}{together}",
                f"{run.compile_seconds:.1f}",
                "not measured" if memory is None else f"{memory:.2f}",
                run.precision,
            ]
        )
    header = ["run", "data", "model", "preset", "weights", "epochs", "steps", "seconds"]
    header += ["compiling, s", "memory, GB", "precision"]
    hardware = "; ".join(sorted({folder.runs[0].hardware for folder in folders}))
    note = "Weights of one member; seconds and memory of all members together."
    return Table("Cost", header, rows, [f"{note} Hardware: {hardware}."])


def _worst_table(folders: Sequence[RunFolder]) -> Table:
    rows = []
    for folder in folders:
        errors = figures.errors_by_sample(folder.runs[0])
        order = sorted(range(len(errors)), key=lambda k: -errors[k])[: len(RANKS)]
        shown = [f"{k}: {100 * errors[k]:.3g} %" for k in order]
        rows.append([folder.name, *shown, *[""] * (len(RANKS) - len(shown))])
    header = ["run", *RANKS]
    note = "Numbers of test samples, from 0 on, and their relative L2 error."
    return Table("Worst test samples", header, rows, [note])


# -- both ------------------------------------------------------------------------------------------


def _figures(groups: list[figures.Group]) -> list[tuple[str, Figure]]:
    made = [
        ("Error during training, on samples that are not trained on.", figures.learning_curves),
        ("The same against time.", figures.error_against_time),
        ("Errors of single test samples.", figures.error_histograms),
        ("Error of a rollout, frame by frame.", figures.rollout_errors),
    ]
    drawn = [(caption, draw(groups)) for caption, draw in made]
    return [(caption, figure) for caption, figure in drawn if figure is not None]


def _pictures(shown: Sequence[tuple[str, Figure]]) -> list[str]:
    body = []
    for caption, figure in shown:
        body += [html.paragraph(caption, note=True), html.picture(figure, caption)]
    return body


def _sample(path: Path, title: str) -> list[str]:
    """Pictures of a sample file; nothing where there is none, a note where it cannot be drawn."""
    if not path.exists():
        return []
    try:
        parts = [html.picture(samples.sample_fields(path, title), title)]
        frames = samples.rollout_frames(path, f"{title}, frames of the rollout")
    except ValueError as error:
        return [html.paragraph(f"{title}: {error}", note=True)]
    return parts if frames is None else [*parts, html.picture(frames, f"{title}, frames")]


def _heading(run: Run) -> str:
    """The problem, and of the inverse problem the stage: only runs of one task are comparable."""
    name = PROBLEMS[run.problem].title if run.problem in PROBLEMS else run.problem
    if run.problem in PROBLEMS and run.protocol not in PROBLEMS[run.problem].protocols:
        name = f"{name}, {run.protocol}"  # a data file, which is not what we generate
    kind, pattern = run.task["kind"], run.task.get("pattern", {})
    if kind == "completion":
        return f"{name}: completers" + ("" if pattern.get("high") else " for one ratio")
    return f"{name}: propagators" if kind == "propagation" else name
