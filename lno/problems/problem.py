"""`Problem`: the one description of a problem, from which everything else in this package follows.

A problem is a frozen dataclass in one file. Its fields are the physics and the resolution of the
generator. Its class attributes say what holds for all of its data sets: title, equation, protocols,
published files, symmetries, what a picture of it shows. A problem without a generator still has all
of these; its data come from the published files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from lno.data import Fields
from lno.data.published import Layout
from lno.data.symmetry import Symmetry


@dataclass(frozen=True)
class Protocol:
    """A data set that results are compared on: its split, and how it is generated.

    Args:
        train: number of training samples.
        test: number of test samples; they follow the training samples.
        parameters: fields of the problem that differ from their defaults.
    """

    train: int
    test: int
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """Base class of all problems. A subclass is a frozen dataclass; see `lno/problems/darcy.py`.

    Set `name`, `title` and `equation`. To generate data, define `draw`, `solve` and `fields`, and
    `solve_safely` if the solver may fail. To read published files, set `published`.

    Attributes:
        name: what commands and result files call it.
        title: what tables and figures call it.
        equation: the equation, in one line.
        protocols: the data sets, by name. "standard" is comparable with the literature, "reference"
            with the code of the LNO paper, "small" is for a first look.
        published: how the published files are read under each protocol. The counts of samples are
            those of `protocols` unless the layout has its own.
        symmetries: maps that take solutions to solutions and leave the distribution of the random
            inputs unchanged, the identity among them. Empty if none are known.
        picture: the channels of "u" and "y" to draw. For a key that is missing, the first and the
            last channel are drawn.
        view: the part of the domain that pictures show, (left, right, bottom, top). None: all.
        version: of the generator. Raise it when samples change: then nothing that was made before
            is continued, joined with new samples, or taken from the cache.
        batch: how many samples a GPU solves at once.
        cpu_batch: how many samples a thread of a CPU takes at once: more than one where that is
            faster. What an interruption loses grows with it.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    equation: ClassVar[str]
    protocols: ClassVar[Mapping[str, Protocol]] = {}
    published: ClassVar[Mapping[str, Layout]] = {}
    symmetries: ClassVar[tuple[Symmetry, ...]] = ()
    picture: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    view: ClassVar[tuple[float, float, float, float] | None] = None
    version: ClassVar[int] = 1
    batch: ClassVar[int] = 16
    cpu_batch: ClassVar[int] = 1

    @classmethod
    def can_make(cls) -> bool:
        """Whether the problem has a generator."""
        return cls.draw is not Problem.draw

    def draw(self, random: np.random.Generator) -> np.ndarray:
        """The random input of one sample: an array of any shape, which may vary among samples.

        Everything random about a sample comes from `random`. Runs on the CPU, in several threads.
        If the sample does not converge, it is called again with other random numbers.
        """
        raise NotImplementedError(self._no_generator())

    def solve(self, inputs: list[np.ndarray], device: torch.device) -> Sequence[np.ndarray | None]:
        """The solution of each input, bit-for-bit the same whatever else is in the list.

        None stands for a solution that did not converge, judged by its residual. On a CPU, take no
        more than `torch.get_num_threads()` threads: several processes may solve at once.
        `lno.problems.numerics.batches.solve_in_batches` helps where all inputs have one shape.
        """
        raise NotImplementedError(self._no_generator())

    def solve_safely(
        self, inputs: list[np.ndarray], device: torch.device
    ) -> Sequence[np.ndarray | None]:
        """Like `solve`, with slower and safer settings, for the inputs that it did not converge on.

        An input that has no solution here either is replaced: another one is drawn for its sample.
        """
        return [None] * len(inputs)

    def fields(
        self,
        inputs: Sequence[np.ndarray],
        solutions: Sequence[np.ndarray],
        provenance: Mapping[str, Any],
    ) -> Fields:
        """Inputs and solutions as data: points, channels, names, units, and cells if any."""
        raise NotImplementedError(self._no_generator())

    @classmethod
    def _no_generator(cls) -> str:
        message = f"{cls.title} has no generator yet"
        if not cls.published:
            return f"{message}, and no published files of it are known"
        files = " ".join(next(iter(cls.published.values())).files)
        return (
            f"{message}. Read the published files instead: "
            f"lno data read {cls.name} {files} --out {cls.name}.h5"
        )
