"""The numbers in the documentation, from the ledger.

`python -m lno.report.documents` writes them into README.md and docs/.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from lno.files import write_text
from lno.ledger import Run
from lno.report.runs import NAMES


def quickstart_table(results: Path) -> str:
    """Errors of the quickstart beside those of methods that need no training."""
    learned, *others = (
        Run.load(results / "burgers" / model / "quickstart.json")
        for model in ("lno", "kriging", "rbf")
    )
    header = ("observed", *(NAMES[run.model] for run in (learned, *others)))
    rows = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for key in learned.metrics:
        errors = [run.metrics[key]["relative_mae"] for run in (learned, *others)]
        shown = [f"{100 * e:.2f} %" for e in errors]
        best = errors.index(min(errors))
        shown[best] = f"**{shown[best]}**"
        rows.append(f"| {100 * float(key.split('=')[1]):g} % | {' | '.join(shown)} |")
    note = (
        f"Relative MAE. One model of {learned.parameters:,} weights for all three, trained for "
        f"{learned.seconds:.0f} s ({learned.hardware}); 64 solutions that it did not see."
    )
    return "\n".join([*rows, "", note])


def memory_table(results: Path) -> str:
    """Peak memory of a prediction against the number of points."""
    content = json.loads((results / "benchmarks" / "memory_predict.json").read_text())
    rows = ["| points in, points out | peak memory |", "|---|---|"]
    rows += [f"| {r['points']:,} | {r['extra_gb']:.2f} GB |" for r in content["rows"]]
    return "\n".join(rows)


def make_data_table(results: Path) -> str:
    """How long data sets take, on every kind of device that was measured."""
    rows = ["| problem | samples | seconds | on |", "|---|---|---|---|"]
    for path in sorted((results / "benchmarks").glob("make_data_*.json")):
        rows += [
            f"| {r['problem']} | {r['samples']:,} | {r['seconds']:.1f} | {r['hardware']} |"
            for r in json.loads(path.read_text())["rows"]
        ]
    command = "`python benchmarks/make_data.py darcy ns2d`, drawing and writing included."
    return "\n".join([*rows, "", command])


def statistics_table(problem: str, published: Mapping[str, float]) -> Callable[[Path], str]:
    """A table of the statistics of a problem's data, beside those of the published files."""

    def table(results: Path) -> str:
        content = json.loads((results / "benchmarks" / "make_data_cuda.json").read_text())
        [row] = [r for r in content["rows"] if r["problem"] == problem]
        rows = [
            "| channel | mean | std | std of a sample | std of a published sample |",
            "|---|---|---|---|---|",
        ]
        for name, told in row["statistics"].items():
            mean, spread = told["std_per_sample"]
            beside = f"{published[name]:g}" if name in published else "not known"
            rows.append(
                f"| {name} | {told['mean']:.3g} | {told['std']:.3g} | {mean:.3g} ± {spread:.2g} "
                f"| {beside} |"
            )
        return "\n".join(rows)

    return table


def accuracy_table(results: Path) -> str:
    """Errors of the solvers."""
    content = json.loads((results / "benchmarks" / "solver_accuracy.json").read_text())
    darcy, burgers, ns2d = (content["rows"][name] for name in ("darcy", "burgers", "ns2d"))
    iterations = [k for name, pair in darcy.items() if name.startswith("iter") for k in pair]
    least, most = min(iterations), max(iterations)
    rows = ["| solver | compared with | relative L2 |", "|---|---|---|"]
    rows += [
        f"| Darcy, {n}² | sparse direct solution | {darcy[f'direct {n}']:.0e} |" for n in (85, 421)
    ]
    rows.append(f"| Burgers | half the time step | {burgers['half steps']:.0e} |")
    rows.append(f"| Burgers | twice the points | {burgers['1024 points']:.0e} |")
    names = {"single precision": "in double precision", "half steps": "half the time step"}
    for key, errors in ns2d.items():
        told = ", ".join(f"{e:.0e}" for e in errors)
        rows.append(f"| NS2d at t = 1, 10, 20 | {names.get(key, 'twice the points')} | {told} |")
    note = (
        f"The largest of {content['samples']} samples (one for the direct solutions); Darcy takes "
        f"{least} to {most} iterations on 85², 141² and 421² alike. "
        "`python benchmarks/solver_accuracy.py`"
    )
    return "\n".join([*rows, "", note])


def training_step_table(results: Path) -> str:
    """Time and memory of a training step beside plain PyTorch."""
    content = json.loads((results / "benchmarks" / "training_step.json").read_text())
    rows = [
        "| case | points | plain | tf32 | mixed | memory: plain, tf32, mixed |",
        "|---|---|---|---|---|---|",
    ]
    together = []
    for r in content["rows"]:
        fast = [f"{r[f'{k}_ms']:.2f} ms, {r['plain_ms'] / r[f'{k}_ms']:.1f}×" for k in FAST]
        memory = ", ".join(f"{r[f'{k}_gb']:.2f}" for k in ("plain", *FAST))
        cells = [r["case"], f"{r['points']:,}", f"{r['plain_ms']:.1f} ms", *fast, f"{memory} GB"]
        rows.append(f"| {' | '.join(cells)} |")
        if "members_ms" in r:
            together.append(f"{r['members_ms'] / r['tf32_ms']:.2f}× on {r['case']}")
    mean = " and ".join(f"{content['geomean'][k]:.1f}× in {k}" for k in FAST)
    note = (
        f"Geometric mean {mean}, on one {content['hardware']}. {content['members']} members at "
        f"once cost {' and '.join(together)} of what one costs. "
        "`python benchmarks/training_step.py`"
    )
    return "\n".join([*rows, "", note])


def precision_table(results: Path) -> str:
    """Error and time of Darcy in each precision."""
    content = json.loads((results / "benchmarks" / "precision.json").read_text())
    rows = ["| precision | epochs | seeds | relative L2 | seconds |", "|---|---|---|---|---|"]
    for r in sorted(content["rows"], key=lambda r: (r["epochs"], r["precision"])):
        spread = "" if r["std"] is None else f" ± {100 * r['std']:.3f}"
        rows.append(
            f"| {r['precision']} | {r['epochs']} | {r['seeds']} | {100 * r['mean']:.3f}{spread} % "
            f"| {r['seconds']:.0f} |"
        )
    where = content["rows"][0]["hardware"]
    return "\n".join([*rows, "", f"On one {where}. `python benchmarks/precision.py`"])


def sharpness_table(results: Path) -> str:
    """Errors after a short training against the sharpness of the initial attention."""
    content = json.loads((results / "benchmarks" / "sharpness.json").read_text())
    rows = ["| sharpness | relative L2 of each seed |", "|---|---|"]
    for r in content["rows"]:
        errors = ", ".join(f"{100 * e:.1f} %" for e in r["relative_l2"])
        rows.append(f"| {r['sharpness']:g} | {errors} |")
    return "\n".join([*rows, "", "`python benchmarks/sharpness.py`"])


def completion_table(results: Path) -> str:
    """Errors of reconstructions by what they are made of."""
    content = json.loads((results / "benchmarks" / "completion.json").read_text())
    header = ("relative MAE at", *content["seen"])
    rows = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    columns = zip(*(r["relative_mae"] for r in content["rows"]), strict=True)
    least = [min(column) for column in columns]
    for r in content["rows"]:
        shown = [
            f"**{100 * e:.2f} %**" if e == best else f"{100 * e:.2f} %"
            for e, best in zip(r["relative_mae"], least, strict=True)
        ]
        rows.append(f"| {r['name']} | {' | '.join(shown)} |")
    note = (
        f"The quickstart's model, {content['samples']:,} samples, {content['epochs']} epochs, one "
        f"seed; {content['test']} others to test on ({content['hardware']}). Sensors at a share of "
        "the points, or on a grid: 2 × 16 is every 2nd time and every 16th position. What decides "
        "the mixture was chosen on 8 of these samples, with other models. "
        "`python benchmarks/completion.py`"
    )
    return "\n".join([*rows, "", note])


def pretrained_table(results: Path) -> str:
    """What the models that come with the package make of sensors."""
    content = json.loads((results / "benchmarks" / "pretrained.json").read_text())
    errors, level = content["errors"]["float16"], f"{100 * content['level']:.0f} %"
    header = (
        "observed",
        "sensors",
        "inside the window",
        "at t = 0 and t = 1",
        f"in {level} bounds",
    )
    rows = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    shares = [name.split("=")[1] for name in errors if name.startswith("test:ratio=")]
    counted = sorted(content["by_sensors"].items(), key=lambda pair: -int(pair[0]))
    for share, (sensors, inside) in zip(shares, counted, strict=True):
        found = [errors[f"test:{kind}={share}"] for kind in ("ratio", "from")]
        told = [f"{100 * error:.2f} %" for error in found]
        cells = [
            share.replace("%", " %"),
            f"{int(sensors):,}",
            *told,
            f"{100 * inside['all']:.1f} %",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    note = (
        f"Relative MAE on {content['samples']['test']} solutions that were neither trained on nor "
        "used for the bounds, and the share of all true values between the bounds. "
        "`lno reproduce pretrained`"
    )
    return "\n".join([*rows, "", note])


FAST = ("tf32", "mixed")
TABLES: dict[str, Callable[[Path], str]] = {
    "quickstart": quickstart_table,
    "pretrained": pretrained_table,
    "memory": memory_table,
    "make_data": make_data_table,
    "accuracy": accuracy_table,
    "training_step": training_step_table,
    "precision": precision_table,
    "sharpness": sharpness_table,
    "completion": completion_table,
    "darcy": statistics_table("darcy", {}),
    # Read off a published sample of the set.
    "ns2d": statistics_table("ns2d", {"w(t=1)": 0.262, "w(t=20)": 1.77}),
}
PAGES = ("README.md", "docs/data.md", "docs/training.md", "docs/reconstruction.md")


def fill(text: str, results: Path) -> str:
    """A text with the part between `<!-- name -->` and `<!-- /name -->` made anew."""
    for name, table in TABLES.items():
        before, opening, rest = text.partition(f"<!-- {name} -->\n")
        _, closing, after = rest.partition(f"<!-- /{name} -->")
        if opening and closing:
            text = f"{before}{opening}{table(results)}\n{closing}{after}"
    return text


def main() -> None:
    """Rewrite the pages of the checkout that this file is in."""
    root = Path(__file__).parents[2]
    for page in PAGES:
        path = root / page
        write_text(path, fill(path.read_text(encoding="utf-8"), root / "results"))


if __name__ == "__main__":
    main()
