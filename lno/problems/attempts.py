"""Solving samples, and what happens to those that do not converge.

A sample that fails is solved again with safer settings (`Problem.solve_safely`). If that fails too,
another input is drawn for it, from (seed, index, attempt), and so on. All of this depends on the
sample alone. A solution that did not converge, or is not finite, is never kept, and the provenance
of the data lists what was retried and redrawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lno.data import Fields
from lno.problems.problem import Problem

ATTEMPTS = 10  # at most so many other inputs are drawn for a sample


def generator(seed: int, index: int, attempt: int = 0) -> np.random.Generator:
    """The random numbers of sample `index` of data set `seed`.

    Args:
        seed: of the data set.
        index: of the sample.
        attempt: 0 for its first input; 1, 2, … for those that replace it.
    """
    return np.random.default_rng([seed, index, attempt] if attempt else [seed, index])


@dataclass(frozen=True)
class Part:
    """Consecutive samples.

    Args:
        fields: the samples that come before the first unconverged one; None if there are none.
        unconverged: the indices of samples that have no solution after all attempts.
    """

    fields: Fields | None
    unconverged: tuple[int, ...] = ()


def solve_part(
    problem: Problem,
    inputs: Sequence[np.ndarray],
    first: int,
    device: torch.device,
    provenance: Mapping[str, Any],
) -> Part:
    """Solve consecutive samples, each as often as it needs.

    Args:
        problem: with its physics and resolution.
        inputs: the first input of each sample.
        first: the index of the first sample.
        device: where to solve.
        provenance: of the data set, with its seed. Where samples fail, `retried` is added, the
            indices of those that were solved with safer settings, and `redrawn`, the attempt that
            each replaced input comes from.
    """
    drawn, seed = list(inputs), provenance["seed"]
    solutions: dict[int, np.ndarray] = {}
    retried: list[int] = []
    redrawn: dict[int, int] = {}
    missing = list(range(len(drawn)))

    for attempt in range(ATTEMPTS + 1):
        if attempt:
            for k in missing:
                drawn[k] = problem.draw(generator(seed, first + k, attempt))
                redrawn[k] = attempt
        for safely in (False, True):
            if not missing:
                break
            solve = problem.solve_safely if safely else problem.solve
            found = zip(missing, solve([drawn[k] for k in missing], device), strict=True)
            solutions |= {k: y for k, y in found if y is not None and np.isfinite(y).all()}
            retried += [k for k in missing if safely and k in solutions]
            missing = [k for k in missing if k not in solutions]

    unconverged = tuple(first + k for k in missing)
    solved = range(missing[0] if missing else len(drawn))
    if not solved:
        return Part(None, unconverged)
    samples = range(first, first + len(solved))
    record = _failures(
        [first + k for k in retried], {str(first + k): n for k, n in redrawn.items()}, samples
    )
    fields = problem.fields(
        [drawn[k] for k in solved], [solutions[k] for k in solved], {**provenance, **record}
    )
    return Part(fields, unconverged)


def in_words(samples: range) -> str:
    """A range of samples, for messages.

    >>> in_words(range(3, 9)), in_words(range(3, 4))
    ('samples 3 to 8', 'sample 3')
    """
    last = samples.stop - 1
    return f"sample {last}" if len(samples) == 1 else f"samples {samples.start} to {last}"


def joined_provenance(records: Sequence[Mapping[str, Any]], samples: range) -> dict[str, Any]:
    """The provenance of consecutive samples, from those of the parts that they come from.

    The digest of a part is left out: it is not that of the whole.

    >>> parts = [{"seed": 1, "retried": [2]}, {"seed": 1, "redrawn": {"5": 1, "7": 3}}]
    >>> joined_provenance(parts, range(6))
    {'seed': 1, 'first': 0, 'retried': [2], 'redrawn': {'5': 1}}
    """
    own = ("first", "retried", "redrawn", "digest")
    same = {k: v for k, v in records[0].items() if k not in own}
    retried = [k for record in records for k in record.get("retried", [])]
    redrawn = {k: n for record in records for k, n in record.get("redrawn", {}).items()}
    return {**same, "first": samples.start, **_failures(retried, redrawn, samples)}


def _failures(
    retried: Sequence[int], redrawn: Mapping[str, int], samples: range
) -> dict[str, list[int] | dict[str, int]]:
    """The entries on samples that failed; none where no sample did."""
    listed = sorted(k for k in retried if k in samples)
    replaced = sorted((int(k), attempt) for k, attempt in redrawn.items() if int(k) in samples)
    record: dict[str, list[int] | dict[str, int]] = {}
    if listed:
        record["retried"] = listed
    if replaced:
        record["redrawn"] = {str(k): attempt for k, attempt in replaced}
    return record
