"""The paper's tables as the paper prints them, ours beside the paper's, and charts of both.

Experiments have tables of every run; these here are what one looks at first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from lno.experiments import efficiency, paper
from lno.experiments.cases import obstacle
from lno.experiments.comparison import ADAPTED, CANNOT
from lno.experiments.evidence import longest_runs, means_of, paper_name
from lno.experiments.findings import data_of, settings_of
from lno.experiments.inverse import TRUTH, Stage, percent
from lno.experiments.presets import RATIOS
from lno.experiments.resolution import GRIDS
from lno.experiments.runs import RunSpec
from lno.ledger import Run
from lno.report import html
from lno.report.comparisons import Dot, Series, dots, lines
from lno.report.runs import colour_of, model_name
from lno.report.tables import MISSING, Table, spread
from lno.text import significant

Drawn = list[tuple[str, Figure]]  # captions and figures; none where there are no runs
NOT_PRINTED = "–"
COSTS = ("parameters", "peak_memory_gb", "seconds_per_epoch")


def forward_table(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Table:
    """A row for each model, a column for each problem: our longest training, and the paper's."""
    best, rows, notes = longest_runs(specs, seeds, results), [], []
    problems = list(paper.FORWARD["lno"])
    for model, printed in paper.FORWARD.items():
        cells = [_longest(model, problem, best) for problem in problems]
        rows.append([f"{model_name(model)}, ours", *cells])
        rows.append([_published(model), *(_printed(printed.get(problem)) for problem in problems)])
    for (model, problem, protocol), found in best.items():
        if data := data_of(protocol):
            notes.append(f"{model_name(model)} on {paper_name(problem)}{data}: {_shown(*found)}.")
    header = ["relative L2, %", *map(paper_name, problems)]
    first = (
        "In brackets: epochs, and the precision if it is not tf32. ±: standard deviation over "
        f"seeds. {ADAPTED}: not all as published for this problem (the footnotes of the tables by "
        f"training time say what). {CANNOT}: the model cannot be trained on this problem."
    )
    return Table("Forward problems, longest runs", header, rows, [first, *notes])


def _longest(
    model: str, problem: str, best: Mapping[tuple[str, str, str], tuple[RunSpec, list[Run]]]
) -> str:
    """The cell of a model and a problem."""
    found = best.get((model, problem, "standard"))
    if found is not None:
        return _shown(*found)
    return MISSING if obstacle(problem, model) is None else CANNOT


def _shown(spec: RunSpec, runs: Sequence[Run]) -> str:
    """The error of a setup, and how long it was trained."""
    errors = [run.metrics["test"]["relative_l2"] for run in runs]
    mark = ADAPTED if spec.preset.adapted else ""
    precision = "" if spec.precision == "tf32" else f", {spec.precision}"
    return f"{spread(errors)}{mark} ({significant(runs[0].epochs)}{precision})"


def forward_chart(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Drawn:
    """The same as a picture."""
    best, panels = longest_runs(specs, seeds, results), {}
    for problem in paper.FORWARD["lno"]:
        rows = []
        for model, printed in paper.FORWARD.items():
            _, runs = best.get((model, problem, "standard"), (None, []))
            errors = [100 * run.metrics["test"]["relative_l2"] for run in runs]
            ours = sum(errors) / len(errors) if errors else None
            remark = f"{significant(runs[0].epochs)} epochs" if runs else ""
            colour = colour_of(model, list(paper.FORWARD))
            rows.append(Dot(model_name(model), ours, printed.get(problem), remark, colour))
        panels[paper_name(problem)] = rows
    caption = (
        "Errors of our longest runs (filled) and of the paper (hollow); further left is better."
    )
    return [(caption, dots(panels, "relative L2 error, %"))] if best else []


def resolution_chart(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Drawn:
    """Error against resolution."""
    series = []
    for spec in specs:
        found, printed = means_of(spec, results, "relative_l2"), paper.RESOLUTION.get(spec.model)
        ours = [_percent(found.get(f"test:grid={n}")) for n in GRIDS]
        theirs = [(printed or {}).get(n) for n in GRIDS]
        series.append(_series(spec.model, ours, theirs, specs))
    caption = "Darcy flow: trained on 43² points, tested on finer grids. Flat is good."
    ticks = [f"{n}²" for n in GRIDS]
    return _drawn(caption, series, ticks, "test points", "relative L2 error, %")


def completer_chart(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Drawn:
    """Error against the share of points that are observed."""
    names = {f"{100 * r:g} %": f"test:ratio={percent(r)}" for r in RATIOS}
    printed = {model: list(row.values()) for model, row in paper.COMPLETER.items()}
    series = _stages(specs, results, "completer", list(names.values()), printed)
    caption = (
        "Completers: error by the share of points observed. RBF and kriging are interpolation "
        "methods without training."
    )
    return _drawn(caption, series, list(names), "observed", "relative MAE, %")


def propagator_chart(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Drawn:
    """Error by what propagators start from."""
    sources = list(paper.PROPAGATOR["lno"])
    printed = {model: list(row.values()) for model, row in paper.PROPAGATOR.items()}
    series = _stages(specs, results, "propagator", [f"test:from={s}" for s in sources], printed)
    ticks = [_source(source, "\n") for source in sources]
    caption = "Propagators: error at t = 0 and t = 1 by input field."
    return _drawn(caption, series, ticks, "completer, and the share it observed", "relative MAE, %")


def cost_chart(results: Path) -> Drawn:
    """Weights, memory and time of LNO over those of Transolver."""
    by, names = efficiency.as_printed(results), ("parameters", "memory", "time of an epoch")
    panels = {}
    for k, (name, key) in enumerate(zip(names, COSTS, strict=True)):
        rows = []
        for problem, printed in paper.EFFICIENCY["lno"].items():
            a, b = (by.get((problem, model), {}).get(key) for model in ("lno", "transolver"))
            theirs = printed[k] / paper.EFFICIENCY["transolver"][problem][k]
            rows.append(Dot(paper_name(problem), a / b if a and b else None, theirs))
        panels[name] = rows
    caption = "Cost of LNO divided by that of Transolver: left of the dashed line, LNO is cheaper."
    return [(caption, dots(panels, "LNO / Transolver", even=1.0))] if by else []


def completer_table(specs: Sequence[Stage], seeds: Sequence[int], results: Path) -> Table:
    """Errors by the share of points that are observed, ours beside the paper's."""
    names = {f"{100 * ratio:g} %": f"test:ratio={percent(ratio)}" for ratio in RATIOS}
    printed = {model: list(row.values()) for model, row in paper.COMPLETER.items()}
    return _stage_table("Completers", specs, seeds, results, "completer", names, printed)


def propagator_table(specs: Sequence[Stage], seeds: Sequence[int], results: Path) -> Table:
    """Errors by what propagators start from, ours beside the paper's."""
    names = {_source(source): f"test:from={source}" for source in paper.PROPAGATOR["lno"]}
    printed = {model: list(row.values()) for model, row in paper.PROPAGATOR.items()}
    return _stage_table("Propagators", specs, seeds, results, "propagator", names, printed)


def _stage_table(
    title: str,
    specs: Sequence[Stage],
    seeds: Sequence[int],
    results: Path,
    recipe: str,
    names: Mapping[str, str],
    printed: Mapping[str, list[float]],
) -> Table:
    rows = []
    for spec in specs:
        if spec.recipe not in (recipe, f"our-{recipe}"):
            continue
        runs = list(spec.runs(results, seeds).values())
        cells = [
            spread([run.metrics[name]["relative_mae"] for run in runs if name in run.metrics])
            if name in spec.data_sets()
            else NOT_PRINTED
            for name in names.values()
        ]
        theirs = spec.recipe == recipe and spec.model in printed
        kind = ", ours" if theirs else ", our recipe" * (spec.recipe != recipe)
        rows.append([f"{model_name(spec.model)}{kind}", *cells])
        if theirs:
            rows.append([_published(spec.model), *(f"{v:.2f}" for v in printed[spec.model])])
    lengths = sorted({s.epochs or 0 for s in specs if s.recipe == recipe and s.trained})
    note = f"“Ours”: the paper's recipe for {', '.join(map(str, lengths))} epochs."
    return Table(title, ["relative MAE, %", *names], rows, [note])


def cost_table(results: Path) -> Table:
    """Weights, memory and time of both models, ours beside the paper's."""
    by, problems, rows = efficiency.as_printed(results), paper.EFFICIENCY["lno"], []
    names = ("million parameters", "memory, GB", "time of an epoch, s")
    for k, (name, key, scale) in enumerate(zip(names, COSTS, (1e-6, 1.0, 1.0), strict=True)):
        for model, printed in paper.EFFICIENCY.items():
            found = [by.get((problem, model), {}).get(key) for problem in problems]
            cells = [MISSING if value is None else f"{scale * value:.2f}" for value in found]
            rows.append([f"{name}: {model_name(model)}, ours", *cells])
            shown = [f"{printed[problem][k]:.2f}" for problem in problems]
            rows.append([f"{name}: {_published(model)}", *shown])
    where = ", ".join(sorted({row["hardware"] for row in by.values()})) or "nothing yet"
    notes = [
        f"Ours on {where}, the paper's on an RTX 3090; batches of 4.",
        "Our Transolver has the sizes of its authors' code, and more parameters than the one that "
        "the paper measured.",
    ]
    return Table("Cost of training", ["", *map(paper_name, problems)], rows, notes)


def spread_table(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Table:
    """Mean and standard deviation over seeds of both stages, and the paper's of three trials."""
    names = [*(f"test:ratio={percent(ratio)}" for ratio in RATIOS), TRUTH]
    rows = []
    for model, printed in paper.COMPLETER_SPREAD.items():
        runs = [r for s in specs if s.model == model for r in s.runs(results, seeds).values()]
        errors = [[r.metrics[n]["relative_mae"] for r in runs if n in r.metrics] for n in names]
        rows.append(
            [f"{model_name(model)}, ours", str(max(map(len, errors))), *map(spread, errors)]
        )
        pairs = [*printed.values(), paper.PROPAGATOR_SPREAD[model]]
        rows.append([_published(model), "3", *(f"{mean:.2f} ± {std:.2f}" for mean, std in pairs)])
    ratios = [f"{100 * ratio:g} %" for ratio in RATIOS]
    header = ["relative MAE, %", "seeds", *ratios, "propagator, true input"]
    note = "The paper's recipe; one model for all ratios."
    title = "Spread over seeds, inverse problem"
    return Table(title, header, rows, [note], aside=("seeds",))


def settings_table(results: Path) -> Table:
    """Our presets beside the paper's settings."""
    rows = []
    for name, printed in paper.SETTINGS.items():
        rows.append([f"{name}, ours", *map(str, settings_of(name).values())])
        rows.append([f"{name}, {html.PUBLISHED}", *map(str, printed.values())])
    return Table("Settings", ["benchmark", *paper.SETTINGS["Darcy"]], rows)


def _stages(
    specs: Sequence[RunSpec],
    results: Path,
    recipe: str,
    names: Sequence[str],
    printed: Mapping[str, list[float]],
) -> list[Series]:
    """A line for each model with the paper's recipe, for our recipe, and for methods without."""
    series = []
    for spec in specs:
        if spec.recipe not in (recipe, f"our-{recipe}"):
            continue
        found, ours = means_of(spec, results, "relative_mae"), spec.recipe != recipe
        values = [_percent(found.get(name)) for name in names]
        theirs = [None] * len(names) if ours else printed.get(spec.model, [None] * len(names))
        line = _series(spec.model, values, theirs, specs)
        if ours:
            line = Series(f"{line.name}, our recipe", values, theirs, "#000000")
        series.append(line)
    return series


def _series(
    model: str,
    ours: Sequence[float | None],
    theirs: Sequence[float | None],
    specs: Sequence[RunSpec],
) -> Series:
    colour = colour_of(model, [spec.model for spec in specs])
    return Series(model_name(model), ours, theirs, colour)


def _source(source: str, between: str = " ") -> str:
    """What a propagator starts from, in words."""
    model, _, ratio = source.partition(" ")
    return f"{model_name(model)}{between}{ratio.removesuffix('%')} %" if ratio else source


def _drawn(caption: str, series: Sequence[Series], ticks: Sequence[str], x: str, y: str) -> Drawn:
    """A chart with its caption; none where there are no runs."""
    known = any(value is not None for one in series for value in one.ours)
    return [(caption, lines(series, ticks, x, y))] if known else []


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _published(model: str) -> str:
    return f"{model_name(model)}, {html.PUBLISHED}"


def _printed(value: float | None) -> str:
    return NOT_PRINTED if value is None else f"{value:.2f}"
