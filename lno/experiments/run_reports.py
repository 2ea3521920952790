"""The report on folders of `lno train`: errors, cost and pictures of a user's own runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lno.experiments.execution import SAMPLE, WORST
from lno.ledger import Run
from lno.report import html, samples
from lno.report import runs as figures
from lno.report.sections import Picture, Section, contents
from lno.report.tables import Table
from lno.training.device import SHARED

ABOUT = (
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


def sections(folders: Sequence[RunFolder]) -> list[Section]:
    """Tables of all runs side by side, their figures, and fields of each."""
    tables = (_errors_table(folders), _cost_table(folders), _worst_table(folders))
    found = [Section(table.title, tables=[table]) for table in tables]
    pictures = figures_of([folder.group for folder in folders])
    found[0] = replace(found[0], figures=pictures)
    for folder in folders:
        shown = []
        for name, title in (
            (SAMPLE, "the test sample with median error"),
            (WORST, "the worst test sample"),
        ):
            if (folder.path / name).exists():
                shown += sample(folder.path / name, f"{folder.name}: {title}")
        found += [Section(f"Fields of {folder.name}", figures=shown)] if shown else []
    return found


def markdown(folders: Sequence[RunFolder]) -> str:
    """The tables as Markdown."""
    parts = [section.markdown() for section in sections(folders) if section.tables]
    return "\n\n".join(["# Runs", ABOUT, *parts]) + "\n"


def page(folders: Sequence[RunFolder]) -> str:
    """Tables and figures of runs side by side as one self-contained HTML page."""
    found = sections(folders)
    body = [html.paragraph(ABOUT, note=True), contents(found), *(each.html() for each in found)]
    return html.page(f"Runs: {', '.join(folder.name for folder in folders)}", body)


def figures_of(groups: list[figures.Group]) -> list[Picture]:
    """Learning curves and errors of groups of runs."""
    made = (
        ("Error during training, on samples that are not trained on.", figures.learning_curves),
        ("The same against time.", figures.error_against_time),
        ("Errors of single test samples.", figures.error_histograms),
        ("Error of a rollout, frame by frame.", figures.rollout_errors),
    )
    return [Picture(caption, partial(draw, groups)) for caption, draw in made]


def sample(path: Path, title: str) -> list[Picture]:
    """Pictures of a sample file: its fields, and frames if it is a rollout."""
    return [
        Picture(title, partial(samples.sample_fields, path, "")),
        Picture(f"{title.removesuffix('.')}, frames", partial(samples.rollout_frames, path, "")),
    ]


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
        shared = "" if figures.timed([run]) else f" ({SHARED})"
        rows.append(
            [
                folder.name,
                run.problem,
                figures.model_name(run.model),
                run.recipe,
                f"{run.parameters:,}",
                f"{run.epochs:g}",
                f"{run.steps:,}",
                f"{run.seconds:.1f}{together}{shared}",
                f"{run.compile_seconds:.1f}",
                "not measured" if memory is None else f"{memory:.2f}",
                run.precision,
            ]
        )
    header = ["run", "data", "model", "preset", "parameters", "epochs", "steps", "seconds"]
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
