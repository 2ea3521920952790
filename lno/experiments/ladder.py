"""Ablations of LNO+: its error with all of its parts, and without one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lno.experiments.ablations import counted, errors_of, mean
from lno.experiments.inverse_tables import UNASKED
from lno.experiments.runs import RunSpec
from lno.files import read_json
from lno.problems import PROBLEMS
from lno.report.runs import hardware_of, model_name
from lno.report.tables import Table, spread

EPOCHS = {"darcy": 100, "elasticity": 100, "ns2d": 20}
REQUIRED = {"darcy": 3, "elasticity": 3, "ns2d": 1}  # seeds
Changes = tuple[tuple[str, Any], ...]
KEPT = "LNO+"
WITHOUT: dict[str, Changes] = {
    KEPT: (),
    "one round of four blocks": (("rounds", 1), ("blocks", 4)),
    "latent positions without places": (("located", False),),
    "no Fourier features": (("octaves", 0),),
    "queries without values": (("values", False),),
    "AdamW for Muon": (("optimizer", "adamw"),),
    "one-cycle schedule": (("schedule", "onecycle"),),
    "no symmetries": (("symmetries", False),),
    "no loss of the gradient": (("gradient", 0.0),),
    "frames for increments": (("increments", False),),
}
WITH: dict[str, Changes] = {"with a local convolution": (("local", 5),)}
FURTHER: dict[str, Changes] = {  # not required
    "weight decay 0.1": (("weight_decay", 0.1),),
    "eight rounds": (("rounds", 8),),
    "512 latent positions": (("latents", 512),),
}
SMALL = ("elasticity", "darcy", "ns2d")  # problems of the small models
LONG = ("darcy", "elasticity")  # those of their long training
OTHERS = ("lno", "transolver")  # with the same recipe, but for the schedule of LNO


def _applies(problem: str, changes: Changes) -> bool:
    """Whether a change makes a difference to LNO+ on a problem."""
    keys = dict(changes)
    if "symmetries" in keys and not PROBLEMS[problem].symmetries:
        return False
    if "gradient" in keys and problem != "darcy":
        return False
    if "local" in keys:  # needs a grid
        return problem != "elasticity"
    return problem == "ns2d" or "increments" not in keys


def _spec(problem: str, changes: Changes = (), model: str = "lno_plus") -> RunSpec:
    required = REQUIRED[problem] if model == "lno_plus" and changes not in WITH.values() else 1
    required = 0 if changes in FURTHER.values() else required
    return RunSpec(
        problem, model, "fast", EPOCHS[problem], "mixed", changes=changes, required=required
    )


ROWS: dict[str, dict[str, RunSpec]] = {
    **{
        label: {p: _spec(p, changes) for p in EPOCHS if _applies(p, changes)}
        for label, changes in (WITHOUT | WITH | FURTHER).items()
    },
    **{model_name(model): {p: _spec(p, model=model) for p in EPOCHS} for model in OTHERS},
}
SPECS = tuple(dict.fromkeys(spec for row in ROWS.values() for spec in row.values()))


def table(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Table:
    """Errors, and in brackets their ratio to that of LNO+ with all of its parts."""
    problems = [p for p in EPOCHS if any(spec.problem == p for spec in specs)]
    rows = []
    for label, row in ROWS.items():
        asked = {p: spec for p, spec in row.items() if spec in specs}
        if not asked:
            continue
        errors = {p: errors_of(spec, seeds, results) for p, spec in asked.items()}
        cells = [_cell(p, label, errors, seeds, results) for p in problems]
        rows.append([label, counted(list(errors.values())), *cells])
    runs = [run for spec in specs for run in spec.runs(results, seeds).values()]
    machines = hardware_of(runs)
    notes = [
        "Each row leaves out one part of LNO+, adds one, or trains another model with the "
        "same recipe (LNO with the one-cycle schedule, with which it is more accurate). In "
        "brackets: the error divided by that of LNO+. Mixed precision"
        f"{f', on {machines}' * bool(machines)}. `lno reproduce ladder`"
    ]
    header = ["relative L2, %", "seeds", *(f"{p} at {EPOCHS[p]} epochs" for p in problems)]
    return Table("Ablations of LNO+", header, rows, notes, aside=("seeds",))


def _cell(
    problem: str,
    label: str,
    errors: dict[str, list[float]],
    seeds: Sequence[int],
    results: Path,
) -> str:
    if problem not in errors:
        return UNASKED
    shown = spread(errors[problem])
    whole = mean(errors_of(ROWS[KEPT][problem], seeds, results))
    own = mean(errors[problem])
    return shown if label == KEPT or not whole or not own else f"{shown} ({own / whole:.2f})"


def small_table(results: Path) -> Table:
    """Errors of small models after a short training on a CPU (`benchmarks/small_ladder.py`).

    Errors of several seeds are one cell: their mean and standard deviation.
    """
    measured = {
        problem: read_json(results / "benchmarks" / f"small_ladder_{problem}.json")
        for problem in SMALL
    }
    errors: dict[str, dict[str, list[float]]] = {}
    for problem, content in measured.items():
        for row in content["rows"]:
            own = errors.setdefault(row["label"].split(", seed ")[0], {})
            own.setdefault(problem, []).append(row["relative_l2"])
    rows = [
        [
            label,
            *(spread(own[problem], digits=2) if problem in own else UNASKED for problem in SMALL),
        ]
        for label, own in errors.items()
    ]
    trained = "; ".join(
        f"{PROBLEMS[problem].title}: {content['samples']:,} samples, {content['epochs']} epochs"
        for problem, content in measured.items()
    )
    notes = [
        "LNO+ of width 64 with 64 latent positions, changed in one way per row, and other models "
        "of the same width and recipe. The schedule is one-cycle and the model predicts frames, "
        "unless the row says otherwise. Test error of one seed, or with ± the mean and standard "
        f"deviation of two or three. {trained}. "
        f"{measured[SMALL[0]]['rows'][0]['hardware']}. `python benchmarks/small_ladder.py PROBLEM`"
    ]
    header = ["relative L2, %", *(PROBLEMS[problem].title for problem in SMALL)]
    return Table("Ablations of LNO+, small models", header, rows, notes)


def overfitting_table(results: Path) -> Table:
    """Errors of small models after long training, on test samples and on training samples."""
    measured = {
        problem: read_json(results / "benchmarks" / f"small_overfitting_{problem}.json")
        for problem in LONG
    }
    found = {p: {r["label"]: r for r in content["rows"]} for p, content in measured.items()}
    rows = [
        [
            label,
            *(
                f"{100 * found[p][label][key]:.2f}" if label in found[p] else UNASKED
                for p in LONG
                for key in ("relative_l2", "training")
            ),
        ]
        for label in dict.fromkeys(label for own in found.values() for label in own)
    ]
    trained = "; ".join(
        f"{PROBLEMS[problem].title}: {content['samples']:,} samples, {content['epochs']} epochs"
        for problem, content in measured.items()
    )
    note = (
        "LNO+ of width 64 with 64 latent positions and the linear schedule; on Darcy flow "
        f"with 22 × 22 points. One seed. {trained}. "
        f"{measured[LONG[0]]['rows'][0]['hardware']}. "
        "`python benchmarks/small_overfitting.py PROBLEM`"
    )
    titles = [PROBLEMS[problem].title for problem in LONG]
    header = [f"{title}, {kind}" for title in titles for kind in ("test", "training")]
    return Table("Long training of small models", ["relative L2, %", *header], rows, [note])


def tried_table(results: Path) -> Table:
    """Changes of LNO+ that were tried on small models and left out."""
    content = read_json(results / "benchmarks" / "lno_plus_tried.json")
    rows = []
    for r in content["rows"]:
        (error, count), (whole, others) = ((r[key], r[f"{key}_seeds"]) for key in ("error", "base"))
        seeds = f"{count}, {others}" if max(count, others) > 1 else "1"
        title = PROBLEMS[r["problem"]].title
        rows.append([r["change"], title, f"{error:.2f}", f"{whole:.2f}", seeds, f"`{r['commit']}`"])
    note = (
        "Relative L2 with and without the change, in the setting of the table above (on "
        "Navier–Stokes with increments and the linear schedule); the commit "
        "is that of the LNO+ that was changed. Seeds: with and without the change, where there is "
        "more than one. The code of these changes is not in the package, so no command repeats "
        f"these rows. {content['hardware']}."
    )
    header = ["change", "problem", "with, %", "without, %", "seeds", "commit"]
    return Table("Changes of LNO+ that were left out", header, rows, [note], aside=("seeds",))
