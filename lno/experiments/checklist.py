"""Every table and figure of the paper, whether its runs are there, and whether they confirm it.

A claim **holds** or **does not hold** where our runs are at least as long as the paper's. Where all
of them are shorter, it is not decidable in our budget, whichever way they point.
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
SHORTER = Verdict("open", "not decidable in our budget")
MISSING = Verdict("open", "not decided, runs missing")
NO_COMMAND = Verdict("open", "not decided, no command yet", state="no runs")
DRAWING = Verdict("open", "a drawing, no result")

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
    whole = [e for e in found if e.decides and not e.shorter]
    if any(e.differ for e in whole):
        kind = IN_PART if any(e.agree for e in whole) else FAILS
    elif whole:
        kind = HOLDS_SO_FAR if absent else HOLDS
    else:
        kind = SHORTER if any(e.decides for e in found) else MISSING
    if absent:
        why = f"{why} {'One run is' if absent == 1 else f'{absent} runs are'} missing.".strip()
    return replace(kind, why=why, state=state)


def checklist(results: Path) -> Table:
    """All rows, as a table of text."""
    rows = []
    for row in ROWS:
        found = verdict_of(row, results)
        command = f"`{row.how}`" if row.how else "none yet"
        state = f"**{found.text}**; {found.state}" if found.state else f"**{found.text}**"
        rows.append([row.heading, command, state, found.why])
    return Table("Checklist", ["in the paper", "command", "verdict and runs", "why"], rows)


def summary(results: Path) -> dict[Verdict, str]:
    """Three sentences: what holds, what does not, what is open."""
    holds, fails, missing = [], [], set()
    left: dict[str, list[str]] = {
        "our runs are shorter than the paper's": [],
        "runs are missing": [],
        "there is no command yet": [],
    }
    shorter, waiting, nothing = left.values()
    for row in ROWS:
        if not row.experiment:
            continue  # drawings and settings
        found = row.evidence(results)
        whole = [e for e in found if e.decides and not e.shorter]
        for e in whole:
            if e.agree:
                names = listed(case.name for case in e.agree)
                holds.append(f"{e.claim} {e.at} {names} ({row.number})")
            if e.differ:
                names = listed(map(str, e.differ))
                fails.append(f"{e.claim} {e.at} {names} ({row.number})")
        if not whole:
            reason = shorter if any(e.decides for e in found) else waiting
            (reason if row.exists else nothing).append(row.number)
        missing |= row.missing(results)
    yes = "; ".join(holds) or "nothing is confirmed yet"
    no = f"that {'; that '.join(fails)}" if fails else "nothing is refuted"
    why = [f"{_numbers(numbers)}, as {reason}" for reason, numbers in left.items() if numbers]
    count = f" ({len(missing):,} runs are missing in all)" if missing else ""
    return {
        HOLDS: f"**Holds in our runs:** {yes}.",
        FAILS: f"**Does not hold:** {no}.",
        MISSING: f"**Not decided:** {'; '.join(why) or 'nothing'}{count}.",
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
        "Relative L2 error on test samples in percent, smaller is better. Our longest training is "
        "shown, its epochs in brackets; the paper trained for 500 epochs throughout.",
        "forward",
        findings.forward_evidence,
    ),
    Row(
        "Table 2",
        "Relative MAE of different completers in the subdomain in the 1st stage of the inverse "
        "problem",
        INVERSE,
        "A completer reads a solution of Burgers' equation at a few random points and fills in the "
        "rest, for t between 0.25 and 0.75. The fewer points it reads, the harder it is.",
        "completer",
        findings.completer_evidence,
    ),
    Row(
        "Table 3",
        "The reconstruction error of different propagators in the 2nd stage of the inverse problem",
        INVERSE,
        "A propagator reads the field for t between 0.25 and 0.75 and continues it to t = 0 and "
        "t = 1, where its error is measured. It starts from the truth, or from what a completer "
        "has made of 10 % or 1 % of the points.",
        "propagator",
        findings.propagator_evidence,
    ),
    Row(
        "Table 4",
        "Comparison of efficiency between LNO and Transolver on the six forward problem benchmarks",
        COST,
        "What LNO needs as a share of what Transolver needs: left of the line, LNO is cheaper. "
        "Ratios can be compared across GPUs, seconds cannot.",
        COSTS,
        findings.cost_evidence,
    ),
    Row(
        "Table 5",
        "Prediction errors on Darcy with different resolutions",
        COST,
        "Models are trained on coarse grids and tested on finer grids of the same fields, without "
        "training again. A flat line is what one hopes for.",
        "resolution",
        findings.resolution_evidence,
    ),
    Row(
        "Table 6",
        "The ablation results using different attention implementations",
        ABLATIONS,
        "LNO with other attention: Transolver's Physics-Attention in place of its encoder and "
        "decoder, or linear attention between its tokens. In the paper, LNO as it is "
        "wins everywhere.",
        "attention",
        findings.best_as_published(),
    ),
    Row(
        "Table 7",
        "The ablation results of strategy of sharing weights on six forward problem benchmarks",
        ABLATIONS,
        "LNO's encoder and decoder share one attention-projector. Here each has its own. In the "
        "paper, sharing is better but for Plasticity.",
        "projectors",
        findings.best_as_published(exceptions=("plasticity",)),
    ),
    Row(
        "Table 8",
        "The mean and standard deviations of different models in solving the forward problem",
        FORWARD,
        "Training again from other random numbers shows which differences between models mean "
        "something. The paper has five trials of each.",
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
        "Our presets beside the paper's table. For the inverse problem we follow the published "
        "code where it differs from the table, with larger batches.",
        judge=findings.settings_evidence,
        command="lno train darcy --preset paper",
        specs=tuple,
    ),
    Row(
        "Figure 1",
        "The overall architecture of Latent Neural Operator",
        MODEL,
        "Points with values go in on the left; values at any other points come out on the right. "
        "Between encoder and decoder there are only latent tokens, however many points there are.",
    ),
    Row(
        "Figure 2",
        "The working mechanism of Physics-Cross-Attention in encoder and decoder respectively",
        MODEL,
        "The attention of a trained completer of Burgers' equation. Each column is one latent "
        "position: where it reads from, and where it is read.",
    ),
    Row(
        "Figure 3",
        "Sampling numbers in latent space v.s. Accuracy",
        ABLATIONS,
        "Error against the number of latent positions. In the paper, more help to the end on Darcy "
        "and NS2d; on the others there is a best number.",
        "latents",
        findings.best_size(
            "more latent positions help to the end on Darcy and NS2d and not on the others",
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
        "Error against the number of features of a token. In the paper, wider is better, and "
        "less so from 256 on.",
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
        "The two stages on a test sample, by the models that come with the package: sensors, the "
        "field that the completer makes of them, and how the propagator continues it.",
        command="lno reproduce stages",
    ),
    Row(
        "Figure 7",
        "Visualization of Burgers' equation in the fixed observation situation with different "
        "temporal and spatial sampling intervals",
        INVERSE,
        "The same sample, observed at random points, and at every k-th time and position.",
        command="lno reproduce stages",
    ),
    Row(
        "Figure 8",
        "Accuracy of solving the inverse problem at different temporal and spatial sampling "
        "intervals",
        INVERSE,
        "Error in percent by the gaps between sensors, in time (downwards) and in space (to the "
        "right), on one scale of colours.",
        "intervals",
        findings.intervals_evidence,
    ),
)
