"""The numbers in the documentation, from the ledger, and a picture.

`python -m lno.experiments.documents` writes them into README.md and docs/.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from lno.experiments import highlights, ladder, model_table, pareto, pretrained, resolution
from lno.experiments.default_tables import defaults_table, sensors_table
from lno.experiments.own_tables import OWN_TABLES
from lno.experiments.size_tables import large_predictions_table
from lno.experiments.solver_tables import (
    accuracy_table,
    checks_table,
    known_statistics_table,
    make_data_table,
    statistics_table,
)
from lno.files import read_json, write_text
from lno.ledger import Run
from lno.report import plots
from lno.report.runs import model_name
from lno.report.samples import sample_fields
from lno.report.tables import Table

FAST = ("tf32", "mixed")
TUTORIALS = (
    "varying_geometry",
    "parameters_to_field",
    "zero_shot_resolution",
    "sensors_on_an_ocean",
    "stations",
)
MESHES = ("elasticity", "pipe", "plasticity", "airfoil")  # problems with a page of their own


def quickstart_table(results: Path) -> Table:
    """Errors of the quickstart and of interpolation methods without training."""
    learned, *others = (
        Run.load(results / "burgers" / model / "quickstart.json")
        for model in ("lno", "kriging", "rbf")
    )
    runs, rows = (learned, *others), []
    for key in learned.metrics:
        errors = [run.metrics[key]["relative_mae"] for run in runs]
        shown = [_bold(f"{100 * e:.2f} %", e == min(errors)) for e in errors]
        rows.append([f"{100 * float(key.split('=')[1]):g} %", *shown])
    note = (
        f"Relative MAE. One model of {learned.parameters:,} weights for all rows, trained for "
        f"{learned.seconds:.0f} s ({learned.hardware}); 64 held-out solutions."
    )
    return Table("Quickstart", ["observed", *(model_name(run.model) for run in runs)], rows, [note])


def memory_table(results: Path) -> Table:
    """Peak memory of a prediction against the number of points."""
    found = _measured(results, "memory_predict")["rows"]
    rows = [[f"{r['points']:,}", f"{r['extra_gb']:.2f} GB"] for r in found]
    return Table("Memory", ["points in, points out", "peak memory"], rows)


def streaming_table(results: Path) -> Table:
    """Time of a prediction in chunks of points, and with all points at once."""
    content = _measured(results, "streaming")
    rows = [
        [
            model_name(r["model"]),
            f"{r['whole_s']:.2f}",
            f"{r['chunked_s']:.2f}",
            f"{r['chunked_s'] / r['whole_s']:.2f}",
        ]
        for r in content["rows"]
    ]
    note = (
        f"CPU seconds for {content['points']:,} observed points and as many other query points, in "
        f"chunks of {content['chunk']:,}; models with four blocks or rounds and width 64. "
        f"{content['hardware']}. `python benchmarks/streaming.py`"
    )
    return Table("Streaming", ["model", "at once, s", "in chunks, s", "ratio"], rows, [note])


def training_step_table(results: Path) -> Table:
    """Time and memory of a training step, compared with plain PyTorch."""
    content = _measured(results, "training_step")
    rows, together = [], []
    for r in content["rows"]:
        fast = [f"{r[f'{k}_ms']:.2f} ms, {r['plain_ms'] / r[f'{k}_ms']:.1f}×" for k in FAST]
        memory = ", ".join(f"{r[f'{k}_gb']:.2f}" for k in ("plain", *FAST))
        plain = f"{r['plain_ms']:.1f} ms"
        rows.append([r["case"], f"{r['points']:,}", plain, *fast, f"{memory} GB"])
        if "members_ms" in r:
            together.append(f"{r['members_ms'] / r['tf32_ms']:.2f}× on {r['case']}")
    mean = " and ".join(f"{content['geomean'][k]:.1f}× in {k}" for k in FAST)
    note = (
        f"Geometric mean {mean}, on one {content['hardware']}. Training {content['members']} "
        f"members together costs {' and '.join(together)} compared with one. "
        "`python benchmarks/training_step.py`"
    )
    header = ["case", "points", "plain", *FAST, "memory: plain, tf32, mixed"]
    return Table("A training step", header, rows, [note])


def precision_table(results: Path) -> Table:
    """Error and training time on Darcy in each precision."""
    found, rows = _measured(results, "precision")["rows"], []
    for r in sorted(found, key=lambda r: (r["epochs"], r["precision"])):
        spread = "" if r["std"] is None else f" ± {100 * r['std']:.3f}"
        error = f"{100 * r['mean']:.3f}{spread} %"
        epochs, seeds, seconds = (f"{r[key]:.0f}" for key in ("epochs", "seeds", "seconds"))
        rows.append([r["precision"], epochs, seeds, error, seconds])
    header = ["precision", "epochs", "seeds", "relative L2", "seconds"]
    note = f"On one {found[0]['hardware']}. `python benchmarks/precision.py`"
    return Table("Precision", header, rows, [note])


def sharpness_table(results: Path) -> Table:
    """Errors after a short training against the sharpness of the initial attention."""
    rows = [
        [f"{r['sharpness']:g}", ", ".join(f"{100 * e:.1f} %" for e in r["relative_l2"])]
        for r in _measured(results, "sharpness")["rows"]
    ]
    header = ["sharpness", "relative L2 of each seed"]
    return Table("Sharpness", header, rows, ["`python benchmarks/sharpness.py`"])


def completion_table(results: Path) -> Table:
    """Errors of reconstructions, part by part."""
    content = _measured(results, "completion")
    columns = zip(*(r["relative_mae"] for r in content["rows"]), strict=True)
    least, rows = [min(column) for column in columns], []
    for r in content["rows"]:
        pairs = zip(r["relative_mae"], least, strict=True)
        rows.append([r["name"], *(_bold(f"{100 * e:.2f} %", e == best) for e, best in pairs)])
    note = (
        f"The quickstart's model, {content['samples']:,} samples, {content['epochs']} epochs, one "
        f"seed; {content['test']} held-out test samples ({content['hardware']}). Sensors at a "
        "share of the points, or on a grid: 2 × 16 is every 2nd time and every 16th position. The "
        "blending rule was chosen on 8 of these samples, with other models. "
        "`python benchmarks/completion.py`"
    )
    return Table("Completion", ["relative MAE at", *content["seen"]], rows, [note])


def bounds_table(results: Path) -> Table:
    """Coverage of bounds for sensor patterns other than those of the calibration."""
    content = _measured(results, "bounds")
    rows = [
        [
            r["sensors"],
            f"{r['effective_sensors']:.0f}",
            *(f"{100 * r[key]:.0f} %" for key in ("inside", "outside")),
            f"{100 * r['relative_mae']:.2f} %",
        ]
        for r in content["rows"]
    ]
    header = ["sensors", "effective", "coverage inside", "outside", "relative MAE inside"]
    note = (
        f"{100 * content['level']:.0f} % bounds on {content['samples']} fields of Burgers' "
        "equation with values of order one; inside and outside the window. "
        "`python benchmarks/bounds.py`"
    )
    return Table("Bounds", header, rows, [note])


def attention_table(results: Path) -> Table:
    """Physics-Cross-Attention with and without storing its matrix."""
    content = _measured(results, "attention")
    rows = [
        [
            f"{r['points']:,}",
            str(r["position_sets"]),
            r["method"],
            f"{r['ms']:.1f}",
            f"{r['gb']:.2f}",
        ]
        for r in content["rows"]
        if r.get("ms") is not None
    ]
    note = (
        f"Encode and decode, forward and backward, for {content['batch']} samples on one "
        f"{content['hardware']}. `python benchmarks/attention.py`; {content['note']}."
    )
    return Table("Attention", ["points", "position sets", "method", "ms", "GB"], rows, [note])


def latent_block_table(results: Path) -> Table:
    """Attention between tokens with centred keys in one product, in two, and without centring."""
    content = _measured(results, "latent_block")
    kinds = ("one", "two", "uncentred")
    rows = [
        [r["case"], r["precision"], *(f"{r[f'{kind}_ms']:.2f}" for kind in kinds)]
        for r in content["rows"]
        if r["one_ms"] is not None
    ]
    note = f"Milliseconds on one {content['hardware']}. `python benchmarks/latent_block.py`"
    header = ["blocks of", "precision", "one product", "two products", "uncentred"]
    return Table("Centred keys", header, rows, [note])


def viscosity_table(results: Path) -> Table:
    """Fields with other viscosities: flagged as out of distribution, and coverage of bounds."""
    content, keys = _measured(results, "viscosity"), ("inside", "outside")
    rows = []
    for r in content["rows"]:
        shares = [r[key] for key in (*keys, *(f"{key}_all" for key in keys))]
        shown = ["–" if share is None else f"{100 * share:.0f} %" for share in shares]
        name = _bold(f"{r['viscosity']:g}", r["viscosity"] == content["trained"])
        rows.append([name, str(r["sensors"]), f"{100 * r['flagged']:.1f} %", *shown])
    header = ["viscosity", "sensors", "flagged", "coverage inside", "outside"]
    note = (
        f"Coverage of {100 * content['level']:.0f} % bounds inside and outside the window, for "
        f"{content['samples']} fields of each viscosity (bold: that of training) with randomly "
        f"placed sensors: over the fields that are not flagged (– if fewer than "
        f"{content['fewest']}), and over all. `python benchmarks/viscosity.py`"
    )
    return Table("Viscosity", [*header, "inside, all", "outside, all"], rows, [note])


def trust_table(results: Path) -> Table:
    """Out-of-distribution samples: detection, and coverage of their bounds."""
    content, rows = _measured(results, "trust"), []
    for r in content["rows"]:
        areas = [f"{r[key]:.3f}" for key in ("auroc", "auroc_latent")]
        keys = ("false_alarms", "flagged", "contained", "contained_others")
        shares = [f"{100 * r[key]:.1f} %" for key in keys]
        rows.append([r["problem"], str(len(r["seeds"])), *areas, *shares])
    header = ["problem", "operators", "AUROC", "latent alone", "false alarms", "flagged"]
    header += ["coverage", "coverage, out of distribution"]
    note = (
        f"Means over operators of different seeds ({content['hardware']}). "
        "AUROC: of all scores, and of the latent score alone. Flagged: the share of the "
        f"out-of-distribution samples. Coverage of {100 * content['level']:.0f} % bounds. "
        "`python benchmarks/trust.py`"
    )
    return Table("Trust", header, rows, [note])


ATTACKS = {
    "models": "model files",
    "checkpoints": "checkpoints, then resumed",
    "data": "data files (HDF5)",
    "imports": "imported files (NPZ, CSV, HDF5, NetCDF, MATLAB, meshes)",
    "csv": "CSV files of sensors",
    "json": "JSON files of the ledger",
    "api": "wrong and unusual arguments",
    "kills": "`kill -9`, then continued",
    "disk": "full disk, then continued",
    "writers": "two processes at once",
}
OUTCOMES = {
    "refused": "refused",
    "same": "same result",
    "as written": "as written",
    "changed": "silently changed",
    "unclear": "unclear error",
    "crash": "crash",
    "hang": "hang",
    "memory": "memory",
    "hang in HDF5": "hang in HDF5",
}


def fuzz_table(results: Path) -> Table:
    """Outcomes of fuzzing files, functions and processes."""
    content = _measured(results, "fuzz")
    rows = []
    for r in content["rows"]:
        counts = (r["cases"], *(r["outcomes"][key] for key in OUTCOMES))
        rows.append([ATTACKS[r["name"]], *(f"{count:,}" for count in counts)])
    seconds = sum(r["seconds"] for r in content["rows"])
    note = (
        f"Seed {content['rows'][0]['seed']}, {seconds / 60:.0f} minutes ({content['hardware']}). "
        "`python benchmarks/fuzz.py`"
    )
    return Table("Fuzzing", ["attack on", "cases", *OUTCOMES.values()], rows, [note])


TABLES: dict[str, Callable[[Path], Table]] = {
    "highlights": highlights.table,
    "fuzz": fuzz_table,
    "viscosity": viscosity_table,
    "attention": attention_table,
    "latent_block": latent_block_table,
    "quickstart": quickstart_table,
    "pretrained": pretrained.table,
    "memory": memory_table,
    "large_predictions": large_predictions_table,
    "models": model_table.table,
    "streaming": streaming_table,
    "small_ladder": ladder.small_table,
    "small_overfitting": ladder.overfitting_table,
    "tried": ladder.tried_table,
    "small_resolution": resolution.small_table,
    "defaults": defaults_table,
    "sensors": sensors_table,
    "make_data": make_data_table,
    "accuracy": accuracy_table,
    "training_step": training_step_table,
    "precision": precision_table,
    "sharpness": sharpness_table,
    "completion": completion_table,
    "bounds": bounds_table,
    "trust": trust_table,
    **OWN_TABLES,
    "darcy": statistics_table("darcy", {}),
    # Read off a published sample of the set.
    "ns2d": statistics_table("ns2d", {"w(t=1)": 0.262, "w(t=20)": 1.77}),
    **{f"checks {name}": checks_table(name) for name in MESHES},
    **{f"statistics {name}": known_statistics_table(name) for name in MESHES},
}
PARETO = "pareto"  # a picture, and the lines of the README that show it
PICTURES = {"ns2d_prediction": "ns2d/lno/paper-500-mixed-seed0"}  # in docs/images, of runs
PAGES = (
    "README.md",
    "docs/data.md",
    "docs/design_decisions.md",
    "docs/index.md",
    "docs/lno_plus.md",
    "docs/models.md",
    "docs/predict.md",
    "docs/reconstruction.md",
    "docs/reliability.md",
    "docs/training.md",
    "docs/trust.md",
    *(f"docs/problems/{name}.md" for name in ("darcy", "ns2d", *MESHES)),
    *(f"docs/tutorials/{name}.md" for name in TUTORIALS),
)


def fill(text: str, results: Path) -> str:
    """A text with the part between `<!-- name -->` and `<!-- /name -->` made anew."""
    made = {name: lambda of=of: of(results).markdown() for name, of in TABLES.items()}
    for name, content in {**made, PARETO: lambda: _pareto(results)[0]}.items():
        before, opening, rest = text.partition(f"<!-- {name} -->\n")
        _, closing, after = rest.partition(f"<!-- /{name} -->")
        if opening and closing:
            text = f"{before}{opening}{content()}\n{closing}{after}"
    return text


def _pareto(results: Path) -> tuple[str, Figure | None]:
    """The picture of error against training time, and the lines of the README that show it."""
    drawn = pareto.figures(pareto.SPECS, range(3), results)
    if not drawn:
        return "", None
    [(caption, figure)] = drawn
    text = f"![{caption}](docs/images/{PARETO}.png)\n\n*{caption}. `lno reproduce pareto`*"
    return text, figure


def main() -> None:
    """Rewrite pages and pictures of the checkout that this file is in."""
    root = Path(__file__).parents[2]
    results, images = root / "results", root / "docs" / "images"
    for name, run in PICTURES.items():
        figure = sample_fields((results / run).with_suffix(".npz"), "")
        plots.save(figure, images / f"{name}.png", dpi=110)
    _, against_time = _pareto(results)
    if against_time is not None:
        plots.save(against_time, images / f"{PARETO}.png", dpi=110)
    for page in PAGES:
        path = root / page
        write_text(path, fill(path.read_text(encoding="utf-8"), results))


def _measured(results: Path, name: str) -> Any:
    """What `benchmarks/<name>.py` wrote."""
    return read_json(results / "benchmarks" / f"{name}.json")


def _bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


if __name__ == "__main__":
    main()
