"""The report on the ledger: every table and figure of the paper, ours beside the paper's.

`docs/results.md` is the same as Markdown. Everything is made from files alone; what is not there
yet is shown as missing. To add a section, give an `Experiment` its tables and figures: if a row of
the checklist names it, it is shown there, otherwise after the paper's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html import escape
from pathlib import Path

from matplotlib.figure import Figure

from lno.experiments import (
    checklist,
    documents,
    efficiency,
    findings,
    method_pictures,
    overview,
    positions,
    pretrained,
    run_reports,
    stages,
)
from lno.experiments.checklist import GROUPS, ROWS, Row, verdict_of
from lno.experiments.evidence import errors_of, paper_name
from lno.experiments.runs import RunSpec
from lno.experiments.tables import CONDITIONS, EXPERIMENTS, Experiment, MakeTable
from lno.ledger import Run
from lno.problems import PROBLEMS
from lno.report import html
from lno.report import runs as figures
from lno.report.sections import Picture, Section, contents, contents_markdown, each_note_once
from lno.report.tables import Table, spread

TITLE = "Reproducing the Latent Neural Operator"
ABOUT = (
    "Every number on this page comes from a file under `results/`, one per run. The command next "
    f"to a table repeats its runs. {CONDITIONS} “As published” refers to Wang & Wang, NeurIPS 2024."
)
RULE = (
    "A claim of the paper is said to hold, or not to hold, only where our runs are at least as "
    "long as the paper's. Where all of ours are shorter, or have our own recipe, it is undecided, "
    "whatever they suggest. A published error counts as reached if ours is at most "
    f"{100 * findings.ALIKE - 100:.0f} % higher. Below a table, we list the rows and columns that "
    "have no runs yet."
)
ORDER = ("training_step", "precision", "attention", "latent_block", "memory", "sharpness")
BEYOND, SOLVERS, ENGINEERING = "Beyond the paper", "Solvers and data", "Speed and reliability"
DRAWINGS: dict[str, tuple[str, Callable[[], Figure]]] = {
    "Figure 1": (
        "The parts of LNO and their parameter counts, with the paper's sizes for Darcy flow.",
        method_pictures.architecture,
    ),
    "Figure 2": (
        "Attention weights of the completer shipped with the package, relative to their maximum, "
        "for latent positions that attend to different regions. Encoder and decoder share scores.",
        method_pictures.attention,
    ),
}
OF_THE_MODEL = ("Figure 1", "Figure 2")
OF_STAGES = {"Figure 6": slice(1, 2), "Figure 7": slice(0, 1)}  # of the figures of `stages`
AS_PRINTED: dict[str, MakeTable] = {
    "Table 1": overview.forward_table,
    "Table 2": overview.completer_table,
    "Table 3": overview.propagator_table,
}


def page(results: Path) -> str:
    """The report as one self-contained HTML page."""
    found = sections(results)
    first = Section("Checklist", RULE)
    listed = first.html().replace("\n</section>", f"\n{_checklist_html(results)}\n</section>")
    said = [(verdict.kind, text) for verdict, text in checklist.summary(results).items()]
    body = [
        html.sentences(said),
        html.paragraph(ABOUT, note=True),
        contents([first, *found]),
        listed,
        *(section.html() for section in found),
    ]
    return html.page(TITLE, body)


def markdown(results: Path, images: str = "images/results-") -> str:
    """The same as a page of the documentation; `images` begins the names of its pictures."""
    found = sections(results)
    first = Section("Checklist", RULE, tables=[checklist.checklist(results)])
    listed = first.markdown()
    for row in ROWS:
        link = f"[{row.number}](#{html.slug(row.heading)})"
        listed = listed.replace(f"\n| {row.number}. ", f"\n| {link} ")
    parts = ["# Results", *checklist.summary(results).values(), ABOUT]
    parts += [contents_markdown([first, *found]), listed]
    parts += [section.markdown(images=images) for section in found]
    parts.append("Learning curves and fields of every run: `lno report --out report.html`.")
    return "\n\n".join(parts) + "\n"


def pictures(results: Path) -> Iterator[tuple[str, Figure]]:
    """The pictures that the Markdown shows, by the ends of their names."""
    for section in sections(results):
        for name, picture in section.files():
            figure = picture.draw()
            assert figure is not None, f"{name} is shown, so there is something to draw"
            yield name, figure


def require_ledger(results: Path) -> None:
    """Raise unless there is a ledger."""
    if not results.is_dir():
        raise FileNotFoundError(
            f"no ledger at {results}: expected a folder of runs. For runs of `lno train`, name "
            "their folders: lno report FOLDER"
        )


def sections(results: Path) -> list[Section]:
    """The paper's tables and figures by theme, then what else was measured."""
    found = [
        Section(group, parts=[_row(row, results) for row in ROWS if row.group == group])
        for group in GROUPS
    ]
    known = {row.experiment for row in ROWS}
    others = [_other(each, results) for name, each in EXPERIMENTS.items() if name not in known]
    shipped = Section(
        pretrained.table(results).title,
        "The models that `lno reconstruct` uses: their errors, and the coverage of their bounds.",
        pretrained.COMMAND,
        [pretrained.table(results)],
        _drawn(pretrained.coverage_curve(results)),
    )
    found.append(Section(BEYOND, parts=[*others, shipped, *_other_runs(results)]))
    for title, names in _benchmarks().items():
        parts = [_benchmark(name, shown, results) for name, shown in names.items()]
        found.append(Section(title, parts=parts))
    return each_note_once(found)


# -- the paper's part ------------------------------------------------------------------------------


def _row(row: Row, results: Path) -> Section:
    """The section of a table or figure of the paper."""
    tables, shown, more = _content(row, results)
    verdict = verdict_of(row, results)
    return Section(row.heading, row.text, row.how, tables, shown, verdict, (), more)


def _content(row: Row, results: Path) -> tuple[list[Table], list[Picture], list[Section]]:
    """Tables, pictures, and what is shown on a click."""
    if row.number in OF_THE_MODEL:
        drawn = [Picture(*DRAWINGS[row.number], kept=True)] if row.number in DRAWINGS else []
        if row.number == "Figure 1":
            return [], drawn, []
        return [positions.table(results)], [*drawn, *_drawn(positions.figures(results))], []
    if row.number in OF_STAGES:
        return [], _drawn(stages.figures(results)[OF_STAGES[row.number]]), []
    if row.number == "Table 4":
        every = Section("Every measurement", tables=[efficiency.table(results)])
        return [overview.cost_table(results)], _drawn(overview.cost_chart(results)), [every]
    if row.number == "Table 9":
        return [overview.spread_table(row.wanted(), range(3), results)], [], []
    if row.number == "Table 10":
        return [overview.settings_table(results)], [], []
    experiment = EXPERIMENTS.get(row.experiment)
    if experiment is None:
        return [], [], []
    tables, shown = _made(experiment, results)
    more: list[Section] = []
    if row.number in AS_PRINTED:  # shorter than the table of every run, which is shown on a click
        own = _paths(experiment, results)
        runs = [(path, run) for path, run in figures.load_runs(results) if path in own]
        more = [Section(f"Every run of {row.number}", tables=tables), *_of_runs(runs)]
        tables = [AS_PRINTED[row.number](experiment.specs(), _seeds(experiment), results)]
    if row.number == "Table 1":
        shown += _best_samples(experiment.specs(), results)
    if row.number.startswith("Figure"):
        return [], shown, [Section(f"The numbers of {row.number}", tables=tables), *more]
    return tables, shown, more


def _seeds(experiment: Experiment) -> range:
    return range(max(3, experiment.seeds))


def _made(experiment: Experiment, results: Path) -> tuple[list[Table], list[Picture]]:
    """The tables and figures of an experiment."""
    arguments = (experiment.specs(), _seeds(experiment), results)
    drawn = [pair for make in experiment.figures for pair in make(*arguments)]
    return [make(*arguments) for make in experiment.tables], _drawn(drawn)


def _drawn(pairs: Sequence[tuple[str, Figure]]) -> list[Picture]:
    return [Picture(caption, partial(_same, figure), kept=True) for caption, figure in pairs]


def _same(figure: Figure) -> Figure:
    return figure


def _best_samples(specs: Sequence[RunSpec], results: Path) -> list[Picture]:
    """A test sample of every problem, predicted by the most accurate runs of LNO."""
    found = errors_of([spec for spec in specs if spec.model == "lno"], results)
    shown = []
    for problem in dict.fromkeys(spec.problem for spec in specs):
        mine = [spec for spec in found if spec.problem == problem]
        for spec in sorted(mine, key=lambda spec: found[spec].error):
            path = spec.path(results, 0).with_suffix(".npz")
            if path.exists():
                [group] = figures.grouped([Run.load(spec.path(results, 0))])
                name = PROBLEMS[problem].title
                title = f"{name}: the test sample with the median error ({group.label})."
                shown.append(run_reports.sample(path, title)[0])
                break
    return shown


def _paths(experiment: Experiment, results: Path) -> set[Path]:
    """The files of the runs of an experiment."""
    return {spec.path(results, k) for spec in experiment.specs() for k in _seeds(experiment)}


def _of_runs(found: Sequence[tuple[Path, Run]]) -> list[Section]:
    """Learning curves, errors and fields of runs, problem by problem."""
    shown = []
    for heading in sorted({_heading(run) for _, run in found}):
        mine = [(path, run) for path, run in found if _heading(run) == heading]
        groups = [g for g in figures.grouped([run for _, run in mine]) if g.epochs]
        pictures = run_reports.figures_of(groups)
        for path, run in mine:
            [group] = figures.grouped([run])
            if path.with_suffix(".npz").exists():
                title = f"{group.label}: median error"
                pictures += run_reports.sample(path.with_suffix(".npz"), title)
        shown.append(Section(f"{heading}: learning curves, errors, fields", figures=pictures))
    return shown


def _of_file(run: Run) -> bool:
    """Whether a run was trained on a data file, not on what we generate."""
    return run.problem in PROBLEMS and run.protocol not in PROBLEMS[run.problem].protocols


def _heading(run: Run) -> str:
    """The problem, and of the inverse problem the stage: only runs of one task are comparable."""
    name = PROBLEMS[run.problem].title if run.problem in PROBLEMS else run.problem
    if _of_file(run):
        name = f"{name}, {run.protocol}"
    kind, pattern = run.task["kind"], run.task.get("pattern", {})
    if kind == "completion":
        return f"{name}: completers" + ("" if pattern.get("high") else " for one ratio")
    return f"{name}: propagators" if kind == "propagation" else name


def _checklist_html(results: Path) -> str:
    """The checklist with links; why a verdict is what it is stands in the section."""
    head = "".join(
        f"<th scope=col class={kind}>{name}</th>"
        for name, kind in (
            ("table or figure", "text"),
            ("verdict", "text"),
            ("runs", "text"),
            ("command", '"text wide-only"'),
        )
    )
    body = []
    for row in ROWS:
        found = verdict_of(row, results)
        command = html.inline(f"`{row.how}`") if row.how else "none yet"
        body.append(
            f"<tr><th scope=row class=long>{html.link(row.number, row.heading)} "
            f"{escape(row.title)}</th>"
            f"<td class=text>{html.verdict(found.kind, found.text)}</td>"
            f"<td class=text>{escape(found.state or '–')}</td>"
            f'<td class="text long wide-only">{command}</td></tr>'
        )
    return html.scrolling(head, "".join(body), "Checklist")


# -- what else was measured ------------------------------------------------------------------------


def _other(experiment: Experiment, results: Path) -> Section:
    """An experiment that the paper does not have."""
    tables, shown = _made(experiment, results)
    command = f"lno reproduce {experiment.name}"
    return Section(tables[0].title, experiment.text, command, tables, shown)


def _other_runs(results: Path) -> list[Section]:
    """Runs that no table has: on somebody's data file, or of another length."""
    own = {path for each in EXPERIMENTS.values() for path in _paths(each, results)}
    runs = [(path, run) for path, run in figures.load_runs(results) if path not in own]
    rows = []
    for group in figures.grouped([run for _, run in runs]):
        name = next(iter(group.runs[0].metrics), "")
        errors = [run.metrics[name]["relative_l2"] for run in group.runs if name in run.metrics]
        rows.append([_heading(group.runs[0]), group.label, name, spread(errors)])
    header = ["data", "run", "first test set", "relative L2, %"]
    text = "Runs in none of the tables above: other lengths, other data or other recipes."
    table = Table("Other runs", header, rows)
    return [Section("Other runs", text, "", [table], more=_of_runs(runs))] if runs else []


def _benchmarks() -> dict[str, dict[str, str]]:
    """Names of tables of the documentation, and their titles, by the part that they are in."""
    solvers = {"accuracy": "Solvers on regular grids"}
    solvers |= {f"checks {name}": f"Solver of {paper_name(name)}" for name in documents.MESHES}
    solvers |= {name: f"Data of {paper_name(name)}" for name in ("darcy", "ns2d")}
    solvers |= {f"statistics {name}": f"Data of {paper_name(name)}" for name in documents.MESHES}
    solvers["make_data"] = "Time to make data"
    shown = {*solvers, "pretrained", "highlights"}  # there, or of tables that are
    others = [name for name in documents.TABLES if name not in shown]
    rest = sorted(others, key=lambda n: ORDER.index(n) if n in ORDER else len(ORDER))
    return {SOLVERS: solvers, ENGINEERING: dict.fromkeys(rest, "")}


def _benchmark(name: str, title: str, results: Path) -> Section:
    """A table of the documentation; its own title where none is given."""
    make = documents.TABLES[name]
    text = (make.__doc__ or "").split("\n")[0]
    try:
        table = make(results)
    except FileNotFoundError:
        table = Table(name.replace("_", " ").capitalize(), [], [])
    if not table.rows:
        return Section(title or table.title, "Not measured yet.")
    return Section(title or table.title, text, tables=[table])
