"""Every table and figure of the paper, whether its runs are there, and whether they confirm it.

A claim **holds** or **does not hold** where our runs are at least as long as the paper's. Where all
of them are shorter, or have our own recipe, it is undecided, whatever they suggest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lno.experiments import efficiency, findings, inverse
from lno.experiments.evidence import Evidence, Judge, listed
from lno.experiments.paper import EFFICIENCY
from lno.experiments.runs import RunSpec
from lno.experiments.tables import EXPERIMENTS
from lno.report.sections import Verdict
from lno.report.tables import Table

COSTS = "efficiency"  # the command that measures costs; it trains nothing

HOLDS = Verdict("good", "holds")
HOLDS_SO_FAR = Verdict("good", "holds so far")
IN_PART = Verdict("part", "holds in part")
FAILS = Verdict("bad", "does not hold")
SHORTER = Verdict("open", "undecided, our runs are shorter")
OWN_RECIPE = Verdict("open", "undecided, our own recipe")
MISSING = Verdict("open", "undecided, runs missing")
NO_COMMAND = Verdict("open", "undecided, no command yet", state="no runs")
DRAWING = Verdict("open", "illustration")
WHY = {
    SHORTER: "our runs are shorter than the paper's",
    OWN_RECIPE: "our runs have our own recipe",
    MISSING: "runs are missing",
    NO_COMMAND: "there is no command yet",
}

MODEL, FORWARD, INVERSE = "The model", "Forward problems", "Inverse problem"
COST, ABLATIONS, SETTINGS = "Cost and resolution", "Ablations and scaling", "Settings"
GROUPS = (MODEL, FORWARD, INVERSE, COST, ABLATIONS, SETTINGS)


@dataclass(frozen=True)
class Row:
    """A table or figure of the paper.

    Args:
        number: as printed, like "Table 1".
        title: the words of its caption.
        group: the part of the report that it is in.
        text: how to read it.
        experiment: the command of `lno reproduce` that makes its runs; empty: it needs none.
        judge: from specs and the ledger to evidence; None: there is nothing to judge.
        command: if it is not simply that of the experiment.
        specs: if they are not simply those of the experiment.
    """

    number: str
    title: str
    group: str
    text: str
    experiment: str = ""
    judge: Judge | None = None
    command: str = ""
    specs: Callable[[], Sequence[RunSpec]] | None = None

    @property
    def heading(self) -> str:
        """Number and title."""
        return f"{self.number}. {self.title}"

    @property
    def exists(self) -> bool:
        """Whether there is a command that makes it."""
        return self.experiment in ("", COSTS, *EXPERIMENTS)

    @property
    def how(self) -> str:
        """The command that makes it; empty: there is none yet."""
        if self.command or not self.exists:
            return self.command
        return f"lno reproduce {self.experiment}" if self.experiment else "lno report"

    def wanted(self) -> Sequence[RunSpec]:
        """The specs of its runs."""
        if self.specs is not None:
            return self.specs()
        known = EXPERIMENTS.get(self.experiment)
        return known.specs() if known is not None else ()

    def runs(self, results: Path) -> dict[str, bool]:
        """The runs that it needs, one for every row of its table at least; which are there."""
        if self.experiment == COSTS:
            there = efficiency.as_printed(results)
            every = [(p, m) for m, printed in EFFICIENCY.items() for p in printed]
            return {" ".join(case): case in there for case in every}
        paths = [
            spec.path(results, seed)
            for spec in self.wanted()
            for seed in range(max(1, spec.required))
        ]
        return {str(path): path.exists() for path in paths}

    def missing(self, results: Path) -> set[str]:
        """The runs that are not there."""
        return {name for name, there in self.runs(results).items() if not there}

    def evidence(self, results: Path) -> list[Evidence]:
        """What our runs say about it."""
        return [] if self.judge is None else self.judge(self.wanted(), results)


def verdict_of(row: Row, results: Path) -> Verdict:
    """What became of a table or figure, by the rule above, and why."""
    if row.judge is None:
        return DRAWING
    if not row.exists:
        return NO_COMMAND
    found = row.evidence(results)
    total, absent = len(row.runs(results)), len(row.missing(results))
    state = f"{total - absent} of {total} runs" if absent else f"all {total} runs" * bool(total)
    why = " ".join(map(str, found))
    whole = _deciding(found)
    if any(e.differ for e in whole):
        kind = IN_PART if any(e.agree for e in whole) else FAILS
    elif whole:
        kind = HOLDS_SO_FAR if absent else HOLDS
    else:
        kind = _undecided(found, bool(absent))
    if absent:
        why = f"{why} {'One run is' if absent == 1 else f'{absent} runs are'} missing.".strip()
    return replace(kind, why=why, state=state)


def _deciding(found: Sequence[Evidence]) -> list[Evidence]:
    """Evidence from runs that are as long as the paper's."""
    return [e for e in found if e.decides and not e.shorter]


def _undecided(found: Sequence[Evidence], runs_are_missing: bool) -> Verdict:
    """Why evidence decides nothing."""
    if any(e.decides for e in found):
        return SHORTER
    return MISSING if runs_are_missing or not found else OWN_RECIPE


def checklist(results: Path) -> Table:
    """All rows, as a table of text; the reasons are in the sections."""
    rows = []
    for row in ROWS:
        found = verdict_of(row, results)
        command = f"`{row.how}`" if row.how else "none yet"
        rows.append([row.heading, f"**{found.text}**", found.state or "–", command])
    return Table("Checklist", ["table or figure", "verdict", "runs", "command"], rows)


def summary(results: Path) -> dict[Verdict, str]:
    """Three sentences: what holds, what does not, what is open."""
    holds, fails, missing = [], [], set()
    left: dict[Verdict, list[str]] = {kind: [] for kind in WHY}
    for row in ROWS:
        if not row.experiment:
            continue  # drawings and settings
        found = row.evidence(results)
        whole, absent = _deciding(found), row.missing(results)
        for e in whole:
            if e.agree:
                names = listed(case.name for case in e.agree)
                holds.append(f"{e.claim} {e.at} {names} ({row.number})")
            if e.differ:
                names = listed(map(str, e.differ))
                fails.append(f"{e.claim} {e.at} {names} ({row.number})")
        if not whole:
            left[_undecided(found, bool(absent)) if row.exists else NO_COMMAND].append(row.number)
        missing |= absent
    yes = "; ".join(holds) or "nothing is confirmed yet"
    no = f"that {'; that '.join(fails)}" if fails else "nothing is refuted"
    why = [f"{_numbers(numbers)}, because {WHY[kind]}" for kind, numbers in left.items() if numbers]
    count = f" ({len(missing):,} runs are missing in total)" if missing else ""
    return {
        HOLDS: f"**Holds in our runs:** {yes}.",
        FAILS: f"**Does not hold:** {no}.",
        MISSING: f"**Undecided:** {'; '.join(why) or 'nothing'}{count}.",
    }


def _numbers(rows: Sequence[str]) -> str:
    """Numbers of tables, then of figures.

    >>> _numbers(["Table 2", "Table 3", "Figure 4"])
    'Tables 2 and 3, Figure 4'
    """
    found = []
    for kind in ("Table", "Figure"):
        mine = [row.split()[1] for row in rows if row.startswith(kind)]
        if mine:
            found.append(f"{kind}{'s' * (len(mine) > 1)} {listed(mine)}")
    return ", ".join(found)


def _three_seeds() -> list[RunSpec]:
    """Both stages with the paper's recipe, three seeds of each."""
    every = (*inverse.COMPLETERS, *inverse.PROPAGATORS)
    mine = [s for s in every if s.trained and s.recipe in ("completer", "propagator")]
    return [replace(spec, required=3) for spec in mine]


_ON_VALUES = ("Darcy", "NS2d")  # problems whose inputs are values, not positions alone

ROWS = (
    Row(
        "Table 1",
        "Prediction error on the six forward problems",
        FORWARD,
        "Relative L2 error on test samples in percent; smaller is better. Ours is the longest run "
        "so far, with its epochs in brackets. The paper trained for 500 epochs throughout.",
        "forward",
        findings.forward_evidence,
    ),
    Row(
        "Table 2",
        "Relative MAE of different completers in the subdomain in the 1st stage of the inverse "
        "problem",
        INVERSE,
        "A completer observes a solution of Burgers' equation at random points with t between 0.25 "
        "and 0.75 and reconstructs it there. The columns give the share of points observed.",
        "completer",
        findings.completer_evidence,
    ),
    Row(
        "Table 3",
        "The reconstruction error of different propagators in the 2nd stage of the inverse problem",
        INVERSE,
        "A propagator takes the field for t between 0.25 and 0.75 and extrapolates it to t = 0 and "
        "t = 1, where its error is measured. Its input is the true field, or a completer's "
        "reconstruction from 10 % or 1 % of the points.",
        "propagator",
        findings.propagator_evidence,
    ),
    Row(
        "Table 4",
        "Comparison of efficiency between LNO and Transolver on the six forward problem benchmarks",
        COST,
        "The figure shows LNO's cost divided by Transolver's: left of the line, LNO is cheaper. "
        "Compare these ratios, not seconds: the GPUs differ.",
        COSTS,
        findings.cost_evidence,
    ),
    Row(
        "Table 5",
        "Prediction errors on Darcy with different resolutions",
        COST,
        "Zero-shot super-resolution: models are trained on coarse grids and tested on finer grids "
        "of the same fields. Ideally the error does not grow.",
        "resolution",
        findings.resolution_evidence,
    ),
    Row(
        "Table 6",
        "The ablation results using different attention implementations",
        ABLATIONS,
        "LNO with other attention: Transolver's Physics-Attention as encoder and decoder, or "
        "linear attention between the latent tokens. In the paper, unmodified LNO is best on every "
        "problem.",
        "attention",
        findings.best_as_published(),
    ),
    Row(
        "Table 7",
        "The ablation results of strategy of sharing weights on six forward problem benchmarks",
        ABLATIONS,
        "LNO's encoder and decoder share one attention projector; the variant has one for each. In "
        "the paper, sharing is better except on Plasticity.",
        "projectors",
        findings.best_as_published(exceptions=("plasticity",)),
    ),
    Row(
        "Table 8",
        "The mean and standard deviations of different models in solving the forward problem",
        FORWARD,
        "Training with several random seeds shows which differences between models are "
        "significant. The paper has five trials of each.",
        "seeds",
        findings.forward_spread_evidence,
    ),
    Row(
        "Table 9",
        "The mean and standard deviations of different models in solving the inverse problem",
        INVERSE,
        "The same for both stages of the inverse problem, three seeds of each.",
        "completer",
        findings.inverse_spread_evidence,
        "lno reproduce completer --seeds 3 && lno reproduce propagator --seeds 3",
        _three_seeds,
    ),
    Row(
        "Table 10",
        "The hyperparameters and training configuration of LNO in solving the forward and inverse "
        "problems",
        SETTINGS,
        "Our presets next to the paper's. For the inverse problem we use larger batches, and "
        "follow the published code where it differs from the table.",
        judge=findings.settings_evidence,
        command="lno report",
        specs=tuple,
    ),
    Row(
        "Figure 1",
        "The overall architecture of Latent Neural Operator",
        MODEL,
        "Observed points and values enter on the left; values at the query points come out on the "
        "right. The number of latent tokens in between is fixed, however many points there are.",
    ),
    Row(
        "Figure 2",
        "The working mechanism of Physics-Cross-Attention in encoder and decoder respectively",
        MODEL,
        "Attention weights of a trained completer for Burgers' equation. Each column is one latent "
        "position: the points that it attends to, and the points that attend to it.",
    ),
    Row(
        "Figure 3",
        "Sampling numbers in latent space v.s. Accuracy",
        ABLATIONS,
        "Error against the number of latent positions. In the paper, more positions keep helping "
        "on Darcy and NS2d; on the other problems the error has a minimum.",
        "latents",
        findings.best_size(
            "the best number is as in the paper",
            "latents",
            lambda name, sizes, best: (best == sizes[-1]) == (name in _ON_VALUES),
        ),
    ),
    Row(
        "Figure 4",
        "The influence of model depth on the performance of LNO across six forward problem "
        "benchmarks",
        ABLATIONS,
        "Error against the number of transformer blocks. In the paper, 4 or 8 are best.",
        "depth",
        findings.best_size(
            "4 or 8 blocks are best", "blocks", lambda name, sizes, best: best in (4, 8)
        ),
    ),
    Row(
        "Figure 5",
        "The influence of model width on the performance of LNO across six forward problem "
        "benchmarks",
        ABLATIONS,
        "Error against the width, the number of features of a token. In the paper, wider is "
        "better, with little gain beyond 256.",
        "width",
        findings.best_size(
            "the widest model is best", "width", lambda name, sizes, best: best == sizes[-1]
        ),
    ),
    Row(
        "Figure 6",
        "Visualization of Burgers' equation with different observation situations in different "
        "regions",
        INVERSE,
        "Both stages on one test sample, with the models shipped with the package: the sensors, "
        "the completer's reconstruction, and the propagator's extrapolation.",
        command="lno reproduce stages",
    ),
    Row(
        "Figure 7",
        "Visualization of Burgers' equation in the fixed observation situation with different "
        "temporal and spatial sampling intervals",
        INVERSE,
        "The same sample, observed at random points and on regular grids of sensors.",
        command="lno reproduce stages",
    ),
    Row(
        "Figure 8",
        "Accuracy of solving the inverse problem at different temporal and spatial sampling "
        "intervals",
        INVERSE,
        "Error in percent by the spacing of the sensors, in time (downwards) and in space (to the "
        "right). All panels share one colour scale.",
        "intervals",
        findings.intervals_evidence,
    ),
)
