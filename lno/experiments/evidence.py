"""`Evidence`: a claim of the paper, compared with our runs case by case.

A case is a problem, a ratio of observed points, a resolution. Runs that are shorter than the
paper's decide nothing, but what they suggest is stated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from lno.experiments.presets import PAPER_RECIPE
from lno.experiments.runs import RunSpec
from lno.ledger import Run

SEEDS = range(5)  # as many as the paper has of anything
NAMES = {"ns2d": "NS2d"}  # as the paper writes it


class Case(NamedTuple):
    """What a claim is about, and numbers beside it."""

    name: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.detail})" if self.detail else self.name


@dataclass(frozen=True)
class Evidence:
    """A claim, and the cases where it is true.

    Args:
        claim: that is true of each case, according to the paper.
        agree: the cases where it is true in our runs.
        differ: the cases where it is not.
        at: the preposition before them.
        shorter: how long our runs are, if they are shorter than the paper's.
        decides: whether it says something about the paper, not about our own recipe.
    """

    claim: str
    agree: tuple[Case, ...]
    differ: tuple[Case, ...]
    at: str = "on"
    shorter: str = ""
    decides: bool = True

    def __str__(self) -> str:
        """The claim and where it is true.

        >>> pair = (Case("Darcy"),), (Case("Pipe", "1.2 times"),)
        >>> str(Evidence("LNO is best", *pair, shorter="10 of 500 epochs"))
        'In shorter runs (10 of 500 epochs), LNO is best on Darcy, but not on Pipe (1.2 times).'
        >>> str(Evidence("LNO is best", (), pair[1]))
        'It is not true that LNO is best on Pipe (1.2 times).'
        """
        agree, differ = (
            f" {self.at} {listed(map(str, cases))}" if cases else ""
            for cases in (self.agree, self.differ)
        )
        text = f"{self.claim}{agree}{', but not' * bool(differ)}{differ}"
        text = text if agree else f"it is not true that {self.claim}{differ}"
        text = f"In shorter runs ({self.shorter}), {text}" if self.shorter else text
        return f"{text[:1].upper()}{text[1:]}."


Judge = Callable[[Sequence[RunSpec], Path], list[Evidence]]


@dataclass
class Cases:
    """Cases of one claim, as they are found.

    >>> cases = Cases()
    >>> cases.add("Darcy", True, epochs=500)
    >>> cases.add("Pipe", False, epochs=100)
    >>> for evidence in cases.evidence("LNO is best"):
    ...     print(evidence)
    LNO is best on Darcy.
    In shorter runs (100 of 500 epochs), it is not true that LNO is best on Pipe.
    """

    found: list[tuple[Case, bool, int]] = field(default_factory=list)

    def add(
        self, name: str, agrees: bool, epochs: int = PAPER_RECIPE.epochs, detail: str = ""
    ) -> None:
        """Add a case, in runs of so many epochs."""
        self.found.append((Case(name, detail), agrees, epochs))

    def evidence(self, claim: str, at: str = "on", decides: bool = True) -> list[Evidence]:
        """One for runs as long as the paper's and one for shorter ones, if there are any."""
        made, whole = [], PAPER_RECIPE.epochs
        for mine in (
            [found for found in self.found if found[2] >= whole],
            [found for found in self.found if found[2] < whole],
        ):
            lengths = sorted({epochs for *_, epochs in mine if epochs < whole})
            shorter = f"{listed(map(str, lengths))} of {whole} epochs" if lengths else ""
            agree, differ = (
                tuple(case for case, agrees, _ in mine if agrees == which)
                for which in (True, False)
            )
            made += [Evidence(claim, agree, differ, at, shorter, decides)] if mine else []
        return made


def listed(words: Iterable[str]) -> str:
    """Words with commas and an "and".

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def paper_name(problem: str) -> str:
    """A problem as the paper calls it.

    >>> paper_name("ns2d"), paper_name("darcy")
    ('NS2d', 'Darcy')
    """
    return NAMES.get(problem, problem.capitalize())


class Found(NamedTuple):
    """The mean error of the runs of a spec, and how long they were."""

    error: float
    epochs: int


def errors_of(specs: Sequence[RunSpec], results: Path) -> dict[RunSpec, Found]:
    """The mean relative L2 error over the seeds of each spec that has runs, on its first set."""
    found = {}
    for spec in specs:
        runs = list(spec.runs(results, SEEDS).values())
        errors = [next(iter(run.metrics.values()))["relative_l2"] for run in runs]
        if errors:
            epochs = min(round(run.epochs) for run in runs)
            found[spec] = Found(sum(errors) / len(errors), epochs)
    return found


def longest_runs(
    specs: Sequence[RunSpec], seeds: Sequence[int], results: Path
) -> dict[tuple[str, str, str], tuple[RunSpec, list[Run]]]:
    """By model, problem and protocol: the spec with the paper's recipe that is trained for longest.

    Of equally long ones that with the most seeds, then the one in tf32, like all other models.
    """
    best: dict[tuple[str, str, str], tuple[RunSpec, list[Run]]] = {}

    def rank(spec: RunSpec, runs: Sequence[Run]) -> tuple[float, int, bool]:
        return min(run.epochs for run in runs), len(runs), spec.precision == "tf32"

    for spec in (spec for spec in specs if spec.recipe == "paper"):
        runs, key = (
            list(spec.runs(results, seeds).values()),
            (spec.model, spec.problem, spec.protocol),
        )
        if runs and (key not in best or rank(spec, runs) > rank(*best[key])):
            best[key] = spec, runs
    return best


def means_of(spec: RunSpec, results: Path, metric: str) -> dict[str, float]:
    """The mean error of a spec on each test set that all of its runs have."""
    runs = list(spec.runs(results, SEEDS).values())
    names = set.intersection(*(set(run.metrics) for run in runs)) if runs else set()
    return {name: sum(run.metrics[name][metric] for run in runs) / len(runs) for name in names}


def complete(specs: Sequence[RunSpec], results: Path) -> dict[str, dict[RunSpec, Found]]:
    """By problem: the longest training for which all of its specs have runs."""
    found = errors_of(specs, results)
    budgets: dict[tuple[str, int], list[RunSpec]] = {}
    for spec in specs:
        budgets.setdefault((paper_name(spec.problem), spec.epochs or 0), []).append(spec)
    return {
        name: {spec: found[spec] for spec in several}
        for (name, _), several in sorted(budgets.items(), key=lambda item: item[0])
        if all(spec in found for spec in several)
    }  # of each name the last
