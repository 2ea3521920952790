"""The random split of samples into those to train, to validate and to test on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lno.config import did_you_mean, require_count
from lno.data.checks import require_instance
from lno.data.columns import Index
from lno.data.fields import Fields

SHARE = 0.1  # of the samples are for testing, and of those that remain for validation
FOR_BOUNDS = 9  # validation samples: with fewer there are no bounds
LARGEST_SHARE = 0.2  # of those that remain, to have that many


@dataclass(frozen=True)
class Division:
    """A random split: a tenth of the samples is for testing, a tenth of the rest for validation.

    Small sets have up to a fifth for validation, if that gives the nine samples that bounds need.

    Args:
        seed: decides which.
        groups: a parameter by name, or a list in the provenance of the data with a value for each
            sample: samples with the same value stay together. None: each sample is by itself.

    >>> x, load = np.linspace(0, 1, 4)[:, None], np.repeat(np.arange(10.0), 5)
    >>> fields = Fields(x, y=np.zeros((50, 4, 1)), parameters=load[:, None])
    >>> [len(part) for part in Division().parts(fields)]
    [36, 9, 5]
    >>> together = Division(groups="parameter0").parts(fields)
    >>> [np.unique(load[part]).tolist() for part in together[1:]]
    [[2.0, 6.0], [4.0]]
    """

    seed: int = 0
    groups: str | None = None

    def __post_init__(self) -> None:
        require_count("Division.seed", self.seed, 2**63, least=0)
        require_instance(
            "Division.groups", self.groups, str | None, "the name of a parameter, or None"
        )

    def parts(self, fields: Fields) -> tuple[Index, Index, Index]:
        """Numbers of the samples to train, to validate and to test on, each in order.

        Very few samples leave none for validation.
        """
        count = len(fields)
        if count < 2:
            raise ValueError("expected at least two samples, one of them for testing, got one")
        labels = np.arange(count) if self.groups is None else self._labels(fields)
        values, group = np.unique(labels, return_inverse=True)
        group = group.ravel()
        if len(values) < 2:
            raise ValueError(
                f"groups: all {count} samples have the same {self.groups!r}: nothing is left to "
                "test on. Leave it out, or choose what differs between samples"
            )
        order = np.random.default_rng([self.seed, 0]).permutation(len(values))
        sizes = np.bincount(group)
        tests = _first(order, sizes, max(1, int(SHARE * count)), len(values) - 1)
        rest = order[tests:]
        left = count - int(sizes[order[:tests]].sum())
        wanted = validation_count(left)
        held_out = _first(rest, sizes, wanted, len(rest) - 1) if wanted else 0
        chosen = (rest[held_out:], rest[:held_out], order[:tests])
        train, validation, test = (np.flatnonzero(np.isin(group, part)) for part in chosen)
        return train, validation, test

    def split(self, fields: Fields) -> tuple[Fields, Fields | None, Fields]:
        """Samples to train, to validate (None where there are too few) and to test on."""
        train, validation, test = self.parts(fields)
        held_out = fields.subset(validation) if len(validation) else None
        return fields.subset(train), held_out, fields.subset(test)

    def _labels(self, fields: Fields) -> Any:
        """What decides which samples belong together, one value for each."""
        names = fields.names.get("parameters", []) if fields.parameters is not None else []
        if self.groups in names:
            return np.asarray(fields.parameters)[:, names.index(self.groups)]
        listed = {k: v for k, v in fields.provenance.items() if isinstance(v, list)}
        found = listed.get(str(self.groups))
        if found is not None and len(found) == len(fields):
            return np.array([str(value) for value in found])
        known = [*names, *(k for k, v in listed.items() if len(v) == len(fields))]
        hint = did_you_mean(str(self.groups), known)
        raise ValueError(
            f"groups: the data have no parameter {self.groups!r}{hint}; expected one of "
            f"{', '.join(known) or 'none'}, or a list in their provenance with a value for each "
            "sample"
        )


def validation_count(count: int) -> int:
    """How many of so many samples to train on are held out for validation.

    >>> [validation_count(count) for count in (20, 45, 60, 200)]
    [2, 9, 9, 20]
    """
    plain = round(SHARE * count)
    return FOR_BOUNDS if plain < FOR_BOUNDS <= LARGEST_SHARE * count else plain


def _first(order: np.ndarray, sizes: np.ndarray, wanted: int, most: int) -> int:
    """How many groups, in this order, have at least the wanted number of samples; at most some."""
    reached = np.cumsum(sizes[order]) >= wanted
    return max(1, min(int(reached.argmax()) + 1, most)) if most > 0 else 0
