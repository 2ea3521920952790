"""What the paper says about its ablations, compared with our runs.

A claim is judged problem by problem, by mean errors over seeds. A sentence has its verdicts and the
numbers behind them, so that a reader can judge for themselves how clear a difference is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds on one problem.

    Args:
        problem: its name, and for how long was trained.
        holds: None: runs are missing.
        found: what was measured.
    """

    problem: str
    holds: bool | None
    found: str = ""


def sentence(claim: str, verdicts: Sequence[Verdict]) -> str:
    """A claim and where it holds.

    >>> missing = [Verdict("pipe", None), Verdict("darcy", None)]
    >>> sentence("it doubles the error", [Verdict("ns2d", True, "2.1 times"), *missing])
    'Paper: it doubles the error. Our runs: yes on ns2d (2.1 times); not run yet on pipe, darcy.'
    >>> sentence("it doubles the error", missing)
    'Paper: it doubles the error. Our runs: not run yet.'
    """
    parts = []
    for holds, text in ((True, "yes on"), (False, "no on")):
        several = [f"{v.problem} ({v.found})" for v in verdicts if v.holds is holds]
        parts += [f"{text} {', '.join(several)}"] if several else []
    absent = ", ".join(v.problem for v in verdicts if v.holds is None)
    parts += [f"not run yet on {absent}" if parts else "not run yet"] if absent else []
    return f"Paper: {claim}. Our runs: {'; '.join(parts)}."


def at_least(
    problem: str, changed: Sequence[float | None], base: float | None, factor: float
) -> Verdict:
    """Whether every changed setup has at least `factor` times the error of the base.

    >>> at_least("ns2d", [0.2, 0.23], 0.1, 2).found
    '20.00 to 23.00 against 10.00 %, 2.00 to 2.30 times'
    """
    errors = [error for error in changed if error is not None]
    if base is None or not errors or len(errors) < len(changed):
        return Verdict(problem, None)
    low, high = min(errors), max(errors)
    shown, ratio = (
        " to ".join(dict.fromkeys(f"{scale * error:.2f}" for error in (low, high)))
        for scale in (100, 1 / base)
    )
    found = f"{shown} against {100 * base:.2f} %, {ratio} times"
    return Verdict(problem, low >= factor * base, found)


def least_where(
    problem: str, errors: Mapping[int, float | None], wanted: Callable[[int], bool], unit: str
) -> Verdict:
    """Whether the least of the errors by size is at a size that is wanted.

    >>> least_where("pipe", {4: 0.01, 8: 0.008, 16: 0.009}, lambda size: size <= 8, "blocks").found
    'least with 8 blocks: 0.800 %; with 16: 0.900 %'
    """
    known = {size: error for size, error in errors.items() if error is not None}
    if len(known) < max(2, len(errors)):
        return Verdict(problem, None)
    best, second = sorted(known, key=lambda size: known[size])[:2]
    first, other = (f"{100 * known[size]:.3f} %" for size in (best, second))
    found = f"least with {best} {unit}: {first}; with {second}: {other}"
    return Verdict(problem, wanted(best), found)
