"""What LNO's parts are worth: other attention, separate projectors. The paper's Tables 6 and 7.

All runs have the paper's recipe, for as many epochs as LNO and Transolver are compared after in the
table of forward problems; the runs of the unchanged setup are those of that table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lno.experiments.claims import Verdict, at_least, sentence
from lno.experiments.inverse_tables import UNASKED, as_printed
from lno.experiments.paper import ATTENTION, PROJECTORS
from lno.experiments.runs import RunSpec
from lno.models.attention import LANDMARKS
from lno.report.runs import hardware_of
from lno.report.tables import Table, spread

EPOCHS = {
    "darcy": 100,
    "ns2d": 20,
    "airfoil": 100,
    "elasticity": 100,
    "plasticity": 10,
    "pipe": 50,
}
CHEAPEST = "elasticity"  # runs on other problems are not required

KINDS = {
    "physics": "LNO with Physics-Attention",
    "efficient": "LNO with efficient attention",
    "nystrom": "LNO with Nyström attention",
    "galerkin": "LNO with Galerkin-type attention",
    "softmax": "LNO",
}
KEPT = "softmax"  # what LNO has
LINEAR = ("efficient", "nystrom", "galerkin")
SHARING = {False: "LNO, separate projectors", True: "LNO"}


class Sliced(RunSpec):
    """LNO with Physics-Attention, which takes about as long as LNO."""

    def similar(self) -> RunSpec:
        """LNO itself."""
        return RunSpec(self.problem, "lno", self.recipe, self.epochs, self.precision, self.protocol)


def sliced(spec: RunSpec) -> Sliced:
    """The setup of LNO with Physics-Attention in place of Physics-Cross-Attention."""
    rest = (spec.recipe, spec.epochs, spec.precision, spec.protocol)
    return Sliced(spec.problem, "sliced_lno", *rest, required=spec.required)


def paper_run(problem: str, model: str = "lno") -> RunSpec:
    """A model trained with its published recipe, for fewer epochs."""
    required = int(problem == CHEAPEST)
    return RunSpec(problem, model, "paper", EPOCHS[problem], "tf32", required=required)


def changed(spec: RunSpec, key: str, value: Any) -> RunSpec:
    """A setup with another value of a key of its config; itself where that is its own."""
    same = getattr(spec.preset.config, key) == value
    return spec if same else replace(spec, changes=((key, value),))


# After 20 epochs no attention has learned much of NS2d: there, also for as long as in the paper.
_LONG = RunSpec("ns2d", "lno", "paper", 500, "mixed", required=0)
ATTENTION_SPECS = tuple(
    spec
    for problem in EPOCHS
    for base in (paper_run(problem), *([_LONG] if problem == _LONG.problem else []))
    for spec in (sliced(base), *(changed(base, "attention", name) for name in (*LINEAR, KEPT)))
)
PROJECTOR_SPECS = tuple(
    changed(paper_run(problem), "tied", tied) for problem in EPOCHS for tied in SHARING
)


def attention_of(spec: RunSpec) -> str:
    """The row of a spec in the table of attention."""
    return "physics" if spec.model == "sliced_lno" else spec.preset.config.attention


def attention_table(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Table:
    """Errors with each attention beside the paper's."""
    grid = Grid(specs, attention_of, seeds, results)

    def judged(kinds: Sequence[str], factor: float, problems: Sequence[str] = ()) -> list[Verdict]:
        return [
            at_least(where, [grid.mean(where, k) for k in kinds], grid.mean(where, KEPT), factor)
            for where, problem in grid.columns.items()
            if not problems or problem in problems
        ]

    printed = [ATTENTION[kind]["ns2d"] / 100 for kind in (*LINEAR, KEPT)]
    theirs = at_least("ns2d", printed[:-1], printed[-1], 2.0).found
    notes = [
        "The variants change the attention between latent tokens. With Physics-Attention, encoder "
        "and decoder are Transolver's, whose weights depend on values, and the attention between "
        "tokens is LNO's. Efficient attention is that of Shen et al.; the paper's code uses GNOT's "
        f"form instead. Nyström attention has {LANDMARKS} landmarks and no convolution.",
        *claim(
            f"linear attention at least doubles the error on NS2d ({theirs})",
            judged(LINEAR, 2.0, ["ns2d"]),
        ),
        *claim("every linear attention increases the error", judged(LINEAR, 1.0)),
        *claim("Physics-Attention increases the error", judged(["physics"], 1.0)),
        conditions(specs, seeds, results, "attention"),
    ]
    rows = grid.rows(KINDS, ATTENTION)
    title = "Attention in the latent space"
    return Table(title, grid.header(), rows, notes, aside=("seeds",))


def projector_table(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Table:
    """Errors with shared and separate projectors beside the paper's."""
    grid = Grid(specs, lambda spec: spec.preset.config.tied, seeds, results)

    def judged(where: str, worse: bool, factor: float) -> Verdict:
        return at_least(where, [grid.mean(where, worse)], grid.mean(where, not worse), factor)

    separate, shared = (PROJECTORS[tied][CHEAPEST] / 100 for tied in SHARING)
    theirs = at_least(CHEAPEST, [separate], shared, 2.0).found
    notes = [
        "In LNO, encoder and decoder share one attention projector. Separate: one for each.",
        *claim(
            f"separate projectors at least double the error on Elasticity ({theirs})",
            [judged(at, False, 2.0) for at, name in grid.columns.items() if name == CHEAPEST],
        ),
        *claim(
            "separate projectors increase the error, but reduce it on Plasticity",
            [judged(at, name == "plasticity", 1.0) for at, name in grid.columns.items()],
        ),
        conditions(specs, seeds, results, "projectors"),
    ]
    rows = grid.rows(SHARING, PROJECTORS)
    return Table("Sharing the projector", grid.header(), rows, notes, aside=("seeds",))


# -- what tables of ablations share ----------------------------------------------------------------


def errors_of(
    spec: RunSpec,
    seeds: Sequence[int],
    results: Path,
    data_set: str = "test",
    error: str = "relative_l2",
) -> list[float]:
    """The errors of all seeds that the ledger has."""
    runs = spec.runs(results, seeds).values()
    return [run.metrics[data_set][error] for run in runs if data_set in run.metrics]


def mean(errors: Sequence[float]) -> float | None:
    """The mean over seeds; None: there is no run."""
    return sum(errors) / len(errors) if errors else None


def counted(errors: Sequence[Sequence[float]]) -> str:
    """The numbers of seeds in a row, from the least to the largest.

    >>> counted([[1.0], [], [1.0, 2.0, 3.0]]), counted([[1.0]])
    ('0–3', '1')
    """
    counts = sorted({len(found) for found in errors})
    return "–".join(map(str, dict.fromkeys(counts[:1] + counts[-1:])))


def place_of(spec: RunSpec) -> str:
    """The column of a spec: its problem, and how long it is trained."""
    return f"{spec.problem} at {spec.epochs} epochs"


class Grid:
    """Errors of specs by kind, in rows, and by problem and epochs, in columns.

    Args:
        specs: the runs.
        kind_of: the row of a spec.
        seeds, results: which runs of the ledger.
    """

    def __init__(
        self,
        specs: Sequence[RunSpec],
        kind_of: Callable[[RunSpec], Any],
        seeds: Sequence[int],
        results: Path,
    ) -> None:
        self.columns = {place_of(spec): spec.problem for spec in specs}
        self.errors = {
            (place_of(spec), kind_of(spec)): errors_of(spec, seeds, results) for spec in specs
        }

    def mean(self, where: str, kind: Any) -> float | None:
        """The mean error over seeds; None: there is no run."""
        return mean(self.errors.get((where, kind), []))

    def header(self) -> list[str]:
        """The names of the columns."""
        return ["relative L2, %", "seeds", *self.columns]

    def rows(
        self,
        labels: Mapping[Any, str],
        printed: Mapping[Any, Mapping[str, float | tuple[float, float]]],
    ) -> list[list[str]]:
        """For each kind a row of errors and one of the paper's, perhaps with deviations."""
        rows = []
        for kind, label in labels.items():
            found = [self.errors.get((where, kind)) for where in self.columns]
            known = [errors for errors in found if errors is not None]
            if not known:
                continue
            shown = [UNASKED if errors is None else spread(errors) for errors in found]
            rows.append([label, counted(known), *shown])
            theirs = (as_printed(printed[kind][problem]) for problem in self.columns.values())
            rows.append([f"{label}, as published", "", *theirs])
        return rows


def claim(text: str, verdicts: Sequence[Verdict]) -> list[str]:
    """A sentence about problems; none about no problem."""
    return [sentence(text, verdicts)] if verdicts else []


def conditions(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path, command: str) -> str:
    """How the runs of a table were made, on what hardware, and by which command."""
    runs = [run for spec in specs for run in spec.runs(results, seeds).values()]
    machines = hardware_of(runs)
    ways = " and ".join(dict.fromkeys(spec.precision for spec in specs))
    return (
        f"The paper's recipe in {ways}{f', on {machines}' * bool(machines)}, for the number of "
        "epochs given; the paper trained for 500. Claims are judged by the mean over seeds. "
        f"`lno reproduce {command}`"
    )
