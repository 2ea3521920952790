"""The report: every table and figure that the ledger has anything for, on one page.

`docs/results.md` holds the tables alone. Both are made from the ledger and nothing else; what is
not there yet is shown as missing.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from lno.experiments import efficiency, forward, inverse, inverse_tables, pretrained, resolution
from lno.files import write_text
from lno.ledger import Run
from lno.report import html, runs
from lno.report.tables import Table

SEEDS = range(3)
TITLE = "What was measured"
ABOUT = (
    "Every number here comes from a file under results/, one for each run, and the command beside "
    "a table makes its runs again. Errors are those of the last model on samples that decided "
    "nothing, in physical units."
)
NAMES = {"darcy": "Darcy flow", "ns2d": "Navier–Stokes", "burgers": "Burgers' equation"}


def tables(results: Path) -> list[Table]:
    """All tables of the paper that there are runs for, or will be."""
    return [
        forward.table(forward.CELLS, SEEDS, results),
        efficiency.table(results),
        resolution.table(resolution.CELLS, SEEDS, results),
        inverse_tables.completer_table(inverse.COMPLETERS, SEEDS, results),
        inverse_tables.propagator_table(inverse.PROPAGATORS, SEEDS, results),
        inverse_tables.completer_intervals(inverse.ON_GRIDS, SEEDS, results),
        inverse_tables.propagator_intervals(inverse.ON_GRIDS, SEEDS, results),
        pretrained.table(results),
    ]


def markdown(results: Path) -> str:
    """The tables as a page of the documentation."""
    parts = ["# Results", ABOUT.replace("results/", "`results/`")]
    for table in tables(results):
        parts += [f"## {table.title}", table.markdown()]
    parts.append("Figures: `lno report --out report.html`.")
    return "\n\n".join(parts) + "\n"


def page(results: Path) -> str:
    """Tables and figures as one self-contained HTML page."""
    body = [html.paragraph(ABOUT), *(table.html() for table in tables(results))]
    maps = inverse_tables.interval_maps(inverse.ON_GRIDS, SEEDS, results)
    shown = (*maps, *pretrained.coverage_curve(results))
    for caption, figure in shown:
        body += [html.paragraph(caption, note=True), html.picture(figure, caption)]
    # Runs for the table on resolutions were trained on other data than those they would stand by.
    found = [(p, run) for p, run in runs.load_runs(results) if run.protocol != "resolution"]
    for heading in sorted({_heading(run) for _, run in found}):
        mine = [(path, run) for path, run in found if _heading(run) == heading]
        groups = [g for g in runs.grouped([run for _, run in mine]) if g.epochs]
        figures = _figures(groups)
        pictures = [(path, run) for path, run in mine if path.with_suffix(".npz").exists()]
        if not figures and not pictures:
            continue
        body.append(html.heading(heading))
        for caption, figure in figures:
            body += [html.paragraph(caption, note=True), html.picture(figure, caption)]
        for path, run in pictures:
            [group] = runs.grouped([run])
            caption = f"{group.label}: the test sample with the median error"
            body.append(
                html.picture(runs.sample_fields(path.with_suffix(".npz"), caption), caption)
            )
    return html.page(TITLE, body)


def write(results: Path, out: Path, documentation: Path | None = None) -> None:
    """Write the page, and the tables as Markdown where they are wanted."""
    if not results.is_dir():
        raise FileNotFoundError(f"no ledger at {results}: expected a folder of runs")
    write_text(out, page(results))
    if documentation is not None:
        write_text(documentation, markdown(results))


def _heading(run: Run) -> str:
    """The problem, and of the inverse problem the stage: only runs of one task are comparable."""
    name = NAMES.get(run.problem, run.problem)
    kind, pattern = run.task["kind"], run.task.get("pattern", {})
    if kind == "completion":
        return f"{name}: completers" + ("" if pattern.get("high") else " for one ratio")
    return f"{name}: propagators" if kind == "propagation" else name


def _figures(groups: list[runs.Group]) -> list[tuple[str, Figure]]:
    made = [
        ("Error during training, on samples that decide nothing.", runs.learning_curves(groups)),
        ("The same against time.", runs.error_against_time(groups)),
        ("Errors of single test samples.", runs.error_histograms(groups)),
        ("Error of a rollout, frame by frame.", runs.rollout_errors(groups)),
    ]
    return [(caption, figure) for caption, figure in made if figure is not None]
