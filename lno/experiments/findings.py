"""What our runs say about the paper: from the specs of an experiment and the ledger to evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lno.experiments import efficiency, inverse
from lno.experiments.evidence import (
    SEEDS,
    Cases,
    Evidence,
    Found,
    Judge,
    complete,
    errors_of,
    listed,
    longest_runs,
    means_of,
    paper_name,
)
from lno.experiments.inverse import STEPS, TRUTH, interval, percent
from lno.experiments.paper import COMPLETER, EFFICIENCY, FORWARD, PROPAGATOR, RESOLUTION, SETTINGS
from lno.experiments.presets import PAPER_RECIPE, RATIOS, preset
from lno.experiments.runs import RunSpec
from lno.report.runs import model_name

ALIKE = 1.1  # an error of at most so many times the paper's counts as reached
WORDS = {
    "relative_l2": "rL2",
    "mse": "MSE",
    "adamw": "AdamW",
    "adam": "Adam",
    "onecycle": "OneCycleLR",
    "step": "StepLR",
}  # of the paper's table of settings


# -- forward problems ------------------------------------------------------------------------------


def forward_evidence(specs: Sequence[RunSpec], results: Path) -> list[Evidence]:
    """Whether LNO has the paper's error, and whether it ranks first where it does in the paper."""
    level = Cases()
    for (model, problem, protocol), (_, runs) in longest_runs(specs, SEEDS, results).items():
        whole = min(run.epochs for run in runs) >= PAPER_RECIPE.epochs
        published = FORWARD["lno"].get(problem)
        if model == "lno" and whole and published is not None:
            ours = 100 * sum(run.metrics["test"]["relative_l2"] for run in runs) / len(runs)
            text = f"{ours:.2f} %, paper {published:g} %"
            name = f"{paper_name(problem)}{data_of(protocol)}"
            level.add(name, ours <= ALIKE * published, detail=text)
    published_recipe = [spec for spec in specs if spec.recipe == "paper"]
    by_epochs = [spec for spec in published_recipe if spec.seconds is None]
    timed = [spec for spec in published_recipe if spec.seconds is not None]
    claim = "LNO and the best other model rank as in the paper"
    return [
        *level.evidence(f"LNO reaches its published error in {PAPER_RECIPE.epochs} epochs"),
        *_orders(by_epochs, results).evidence(claim),
        *_orders(timed, results).evidence(f"after equal training time, {claim}", decides=False),
    ]


def _orders(specs: Sequence[RunSpec], results: Path) -> Cases:
    """Problem by problem, whether models with the longest common budget rank as in the paper."""
    cases, found = Cases(), errors_of(specs, results)
    for problem in FORWARD["lno"]:
        budgets: dict[str, dict[str, Found]] = {}  # by name: only the model differs
        for spec, each in found.items():
            if spec.problem == problem and problem in FORWARD.get(spec.model, {}):
                budgets.setdefault(spec.name(""), {})[spec.model] = each
        alike = [each for each in budgets.values() if "lno" in each and len(each) > 1]
        if alike:
            models = max(alike, key=lambda each: each["lno"].epochs)
            agrees, text = _order(problem, {model: each.error for model, each in models.items()})
            timed = any(spec.seconds is not None for spec in specs)
            epochs = PAPER_RECIPE.epochs if timed else models["lno"].epochs
            cases.add(paper_name(problem), agrees, epochs, text)
    return cases


def data_of(protocol: str) -> str:
    """What is said of data that are not those of the standard protocol.

    >>> data_of("standard"), data_of("reference")
    ('', ' with the data of the reference protocol')
    """
    return "" if protocol == "standard" else f" with the data of the {protocol} protocol"


def _order(problem: str, errors: dict[str, float]) -> tuple[bool, str]:
    """Whether LNO is first among some models here as there, and its error over the best other."""
    printed = {model: FORWARD[model][problem] for model in errors}
    best = min((model for model in errors if model != "lno"), key=lambda m: errors[m])
    ours, theirs = (each["lno"] / each[best] for each in (errors, printed))
    first, there = (min(each, key=lambda m: each[m]) == "lno" for each in (errors, printed))
    return first == there, f"LNO / {model_name(best)} {ours:.2f}, paper {theirs:.2f}"


def forward_spread_evidence(specs: Sequence[RunSpec], results: Path) -> list[Evidence]:
    """Whether all seeds of LNO and Transolver come in the order of the paper."""
    cases = Cases()
    for problem in FORWARD["lno"]:
        for epochs in sorted({s.epochs or 0 for s in specs if s.problem == problem}, reverse=True):
            errors = {
                s.model: [r.metrics["test"]["relative_l2"] for r in s.runs(results, SEEDS).values()]
                for s in specs
                if (s.problem, s.epochs, s.recipe) == (problem, epochs, "paper")
            }
            a, b = (errors.get(model, []) for model in ("lno", "transolver"))
            if len(a) > 1 and len(b) > 1:
                before = FORWARD["lno"][problem] < FORWARD["transolver"][problem]
                agrees = max(a) < min(b) if before else max(b) < min(a)
                cases.add(paper_name(problem), agrees, epochs)
                break
    return cases.evidence("all seeds of LNO and Transolver rank as in the paper")


def resolution_evidence(specs: Sequence[RunSpec], results: Path) -> list[Evidence]:
    """Whether LNO's error is the smallest at every resolution that it was not trained on."""
    cases = Cases()
    published = [spec for spec in specs if spec.model in RESOLUTION]
    found = {spec.model: means_of(spec, results, "relative_l2") for spec in published}
    epochs = min((spec.epochs or 0 for spec in published), default=0)
    for n in RESOLUTION["lno"]:
        errors = {m: each[f"test:grid={n}"] for m, each in found.items() if each}
        if "lno" in errors and len(errors) > 1:
            cases.add(f"{n}²", min(errors, key=lambda m: errors[m]) == "lno", epochs)
    others = [model_name(model) for model, each in found.items() if each and model != "lno"]
    claim = f"LNO's error is below that of {listed(others or ['all others'])}"
    return cases.evidence(claim, "on")


def cost_evidence(specs: Sequence[RunSpec], results: Path) -> list[Evidence]:
    """Whether LNO needs fewer parameters, less memory and less time than Transolver."""
    cases, by = Cases(), efficiency.as_printed(results)
    keys = ("parameters", "peak_memory_gb", "seconds_per_epoch")
    for problem in EFFICIENCY["lno"]:
        a, b = (by.get((problem, model)) for model in ("lno", "transolver"))
        if a and b and all(row[key] for row in (a, b) for key in keys):
            ratios = [a[key] / b[key] for key in keys]
            words = ("parameters", "memory", "time")
            text = ", ".join(f"{r:.2f} of the {w}" for r, w in zip(ratios, words, strict=True))
            cases.add(paper_name(problem), max(ratios) < 1, detail=text)
    return cases.evidence("LNO needs fewer parameters, less memory and less time than Transolver")


# -- the inverse problem ---------------------------------------------------------------------------


def completer_evidence(specs: Sequence[RunSpec], results: Path) -> list[Evidence]:
    """Whether LNO completes best at every ratio, and has the paper's error with its budget."""
    names = {r: f"test:ratio={percent(r)}" for r in RATIOS}
    columns = {
        f"{100 * r:g} %": (name, {m: COMPLETER[m][r] for m in COMPLETER})
        for r, name in names.items()
    }
    level = Cases()
    for spec in (spec for spec in specs if has_papers_budget(spec)):
        found = means_of(spec, results, "relative_mae")
        for ratio in (ratio for ratio, name in names.items() if name in found):
            ours, printed = 100 * found[names[ratio]], COMPLETER[spec.model][ratio]
            text = f"{ours:.2f} %, paper {printed:g} %"
            level.add(f"{100 * ratio:g} %", ours <= ALIKE * printed, detail=text)
    claim = "LNO reaches its published error with the paper's budget"
    return [
        *level.evidence(claim, "at"),
        *_stage_evidence(specs, results, "completer", columns, "at"),
    ]


def has_papers_budget(spec: RunSpec) -> bool:
    """Whether a completer is trained in batches as small as the paper's, for as many epochs."""
    if not spec.trained or spec.recipe.startswith("our-"):
        return False
    recipe = spec.preset.recipe
    return recipe.epochs == PAPER_RECIPE.epochs and recipe.batch == PAPER_RECIPE.batch


def propagator_evidence(specs: Sequence[RunSpec], results: Path) -> list[Evidence]:
    """Whether the same model as in the paper propagates best from every start."""
    columns = {}
    for source in PROPAGATOR["lno"]:
        model, _, ratio = source.partition(" ")
        shown = f"{model_name(model)} {ratio.removesuffix('%')} %" if ratio else f"the {source}"
        printed = {m: PROPAGATOR[m][source] for m in PROPAGATOR}
        columns[shown] = (f"test:from={source}", printed)
    return _stage_evidence(specs, results, "propagator", columns, "from")


def _stage_evidence(
    specs: Sequence[RunSpec],
    results: Path,
    recipe: str,
    columns: dict[str, tuple[str, dict[str, float]]],
    at: str,
) -> list[Evidence]:
    """The best model of each column, with the paper's recipe and in the paper; LNO with ours."""
    best, own = Cases(), Cases()
    found = {(s.model, s.recipe): means_of(s, results, "relative_mae") for s in specs}
    epochs = min((s.epochs or 0 for s in specs if s.recipe == recipe and s.trained), default=0)
    for shown, (name, printed) in columns.items():
        errors = {m: found.get((m, recipe), {}).get(name) for m in printed}
        known = {m: error for m, error in errors.items() if error is not None}
        if len(known) == len(errors):
            ours, theirs = (min(each, key=lambda m: each[m]) for each in (known, printed))
            best.add(shown, ours == theirs, epochs)
        ours_too = found.get(("lno", f"our-{recipe}"), {}).get(name)
        if ours_too is not None:
            own.add(shown, 100 * ours_too <= printed["lno"])
    return [
        *best.evidence("the paper's best model is also the best in our runs", at),
        *own.evidence("with our own recipe, LNO is below its published error", at, decides=False),
    ]


def inverse_spread_evidence(specs: Sequence[RunSpec], results: Path) -> list[Evidence]:
    """Whether every seed of LNO is better than every seed of the other models."""
    cases = Cases()
    names = {f"{100 * ratio:g} %": f"test:ratio={percent(ratio)}" for ratio in RATIOS}
    for shown, name in {**names, "the truth, as propagators": TRUTH}.items():
        errors: dict[str, list[float]] = {}
        for spec in specs:
            for run in spec.runs(results, SEEDS).values():
                if name in run.metrics:
                    errors.setdefault(spec.model, []).append(run.metrics[name]["relative_mae"])
        if set(errors) >= set(inverse.MODELS) and all(len(each) > 1 for each in errors.values()):
            others = [e for model, several in errors.items() if model != "lno" for e in several]
            epochs = min(spec.epochs or 0 for spec in specs)
            cases.add(shown, max(errors["lno"]) < min(others), epochs)
    return cases.evidence("every seed of LNO is better than every seed of the others", "at")


def intervals_evidence(specs: Sequence[RunSpec], results: Path) -> list[Evidence]:
    """Whether positions matter more than times where sensors form a grid, with our recipe."""
    cases = Cases()
    dense, sparse = STEPS[0], STEPS[-1]
    for spec in specs:
        if spec.model != "lno" or not spec.recipe.startswith("our-"):
            continue
        errors = means_of(spec, results, "relative_mae")
        few_positions = errors.get(interval(dense, sparse))
        if few_positions is None:
            continue
        few_times = max(errors[interval(sparse, dense)], errors[interval(sparse, sparse // 2)])
        cases.add(f"{spec.recipe.removeprefix('our-')}s", few_positions > few_times)
    claim = (
        "with our own recipe, sparse sensors in space cost more accuracy than sparse sensors in "
        "time"
    )
    return cases.evidence(claim, "for", decides=False)


# -- ablations and settings ------------------------------------------------------------------------


def best_as_published(exceptions: Sequence[str] = ()) -> Judge:
    """Whether the model of the paper is better than all its variants, but for some problems.

    A problem counts once all of its variants have been trained.
    """

    def judge(specs: Sequence[RunSpec], results: Path) -> list[Evidence]:
        cases = Cases()
        for name, found in complete(specs, results).items():
            own: dict[bool, list[float]] = {True: [], False: []}
            for spec, each in found.items():
                own[spec.preset.config == preset(spec.problem, spec.recipe).config].append(
                    each.error
                )
            if own[True] and own[False]:
                expected = name not in map(paper_name, exceptions)
                epochs = min(each.epochs for each in found.values())
                cases.add(name, (min(own[True]) < min(own[False])) == expected, epochs)
        but = f" (except on {listed(map(paper_name, exceptions))})" if exceptions else ""
        return cases.evidence(f"unmodified LNO beats its variants{but}")

    return judge


def best_size(claim: str, key: str, is_so: Callable[[str, list[int], int], bool]) -> Judge:
    """Whether the size with the smallest error is where the paper has it, on forward problems.

    A problem counts once all sizes have been trained. Of the inverse problem the paper says nothing
    definite.

    Args:
        claim: what the paper says.
        key: of the config.
        is_so: from the problem's name, the sizes and the best of them to whether the claim is true.
    """

    def judge(specs: Sequence[RunSpec], results: Path) -> list[Evidence]:
        cases, forward = Cases(), [spec for spec in specs if spec.problem in FORWARD["lno"]]
        for name, found in complete(forward, results).items():
            sizes = {int(getattr(s.preset.config, key)): each for s, each in found.items()}
            best = min(sizes, key=lambda size: sizes[size].error)
            agrees = is_so(name, sorted(sizes), best)
            cases.add(name, agrees, sizes[best].epochs, f"best at {best}")
        return cases.evidence(claim)

    return judge


def settings_evidence(specs: Sequence[RunSpec], results: Path) -> list[Evidence]:
    """Whether our presets have the paper's sizes and recipes."""
    cases = Cases()
    for name, printed in SETTINGS.items():
        ours = settings_of(name)
        other = [f"{key} {ours[key]}, not {v}" for key, v in printed.items() if ours[key] != v]
        cases.add(name, not other, detail="; ".join(other))
    return cases.evidence("our presets have the paper's settings", "for")


def settings_of(name: str) -> dict[str, Any]:
    """The settings of our preset of one of the paper's benchmarks, in the paper's words.

    >>> settings_of("Darcy")["layers"], settings_of("Propagator")["loss"]
    (4, 'MSE')
    """
    stage = name.lower()
    both = stage in ("completer", "propagator")
    chosen = preset("burgers", stage) if both else preset(stage, "paper")
    config, recipe = chosen.config, chosen.recipe
    return {
        "layers": config.blocks,
        "dim": config.width,
        "size": config.latents,
        "heads": config.heads,
        "batch": recipe.batch,
        "epochs": recipe.epochs,
        "loss": WORDS.get(recipe.loss, recipe.loss),
        "optimizer": WORDS.get(recipe.optimizer, recipe.optimizer),
        "scheduler": WORDS.get(recipe.schedule, recipe.schedule),
    }
