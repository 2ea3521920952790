"""Toy problems that other processes can import too, and interruptions of making them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from lno.data import Fields
from lno.problems import Problem, Protocol


@dataclass(frozen=True)
class Fan(Problem):
    """A fan of 4 to 9 triangles, under a load and heated: a toy whose samples differ in size."""

    stiffness: float = 2.0

    name: ClassVar[str] = "fan"
    title: ClassVar[str] = "Triangle fan"
    equation: ClassVar[str] = "y = load · |x|² / stiffness + heat"
    protocols: ClassVar[Mapping[str, Protocol]] = {"small": Protocol(6, 2)}
    cpu_batch: ClassVar[int] = 3

    def draw(self, random: np.random.Generator) -> np.ndarray:
        """Load, heat, and the radii of the rim."""
        return random.uniform(0.5, 1.0, 2 + random.integers(5, 11))

    def solve(self, inputs: list[np.ndarray], device: torch.device) -> Sequence[np.ndarray | None]:
        """The solution at the centre and on the rim."""
        radii = [np.append(0, drawn[2:]) for drawn in inputs]
        pairs = zip(inputs, radii, strict=True)
        return [drawn[0] * r**2 / self.stiffness + drawn[1] for drawn, r in pairs]

    def fields(
        self,
        inputs: Sequence[np.ndarray],
        solutions: Sequence[np.ndarray],
        provenance: Mapping[str, Any],
    ) -> Fields:
        """Nodes, triangles around the centre, and two parameters."""
        x, cells = [], []
        for drawn in inputs:
            rim = np.arange(len(drawn) - 2)
            angle = rim * np.pi / 6
            nodes = drawn[2:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
            x.append(np.concatenate([np.zeros((1, 2)), nodes]))
            cells.append(np.stack([0 * rim[1:], rim[1:], rim[1:] + 1], axis=-1))
        return Fields(
            x,
            y=[y[:, None] for y in solutions],
            parameters=np.stack([drawn[:2] for drawn in inputs]),
            cells=cells,
            names={"x": ["x", "y"], "y": ["y"], "parameters": ["load", "heat"]},
            provenance=provenance,
        )


@dataclass(frozen=True)
class FanInLargeBatches(Fan):
    """The same samples, solved in other batches."""

    cpu_batch: ClassVar[int] = 10


@dataclass(frozen=True)
class Stiff(Problem):
    """A toy whose solver fails: v ~ U(0, 1) decides how.

    Below `easy` it converges. Up to `hard` it gives nothing or NaN, and converges safely with
    another solution. Above `hard` it never converges.
    """

    easy: float = 0.5
    hard: float = 0.8

    name: ClassVar[str] = "stiff"
    title: ClassVar[str] = "Stiff"
    equation: ClassVar[str] = "y = v, or −v if solved safely"
    cpu_batch: ClassVar[int] = 4

    def draw(self, random: np.random.Generator) -> np.ndarray:
        """One number."""
        return random.uniform(0, 1, 1)

    def solve(self, inputs: list[np.ndarray], device: torch.device) -> Sequence[np.ndarray | None]:
        """Half of the failures are None, the others are not finite."""
        bad = (None, np.array([np.nan]), np.array([np.inf]))
        return [v if v[0] < self.easy else bad[int(1e6 * v[0]) % 3] for v in inputs]

    def solve_safely(
        self, inputs: list[np.ndarray], device: torch.device
    ) -> Sequence[np.ndarray | None]:
        """The sign tells who solved it."""
        assert all(v[0] >= self.easy for v in inputs), "only those that failed"
        return [-v if v[0] < self.hard else np.array([np.nan]) for v in inputs]

    def fields(
        self,
        inputs: Sequence[np.ndarray],
        solutions: Sequence[np.ndarray],
        provenance: Mapping[str, Any],
    ) -> Fields:
        """Four points with the same value, all of one size."""
        u, y = (np.repeat(np.stack(v)[:, None], 4, axis=1) for v in (inputs, solutions))
        return Fields(np.arange(4.0)[:, None], u=u, y=y, provenance=provenance)


@dataclass(frozen=True)
class Fragile(Stiff):
    """One solver call ends its process, or raises, or takes long, at a sample of seed 3."""

    what: str = "die"
    folder: str = "."

    name: ClassVar[str] = "fragile"

    def solve(self, inputs: list[np.ndarray], device: torch.device) -> Sequence[np.ndarray | None]:
        """Sample 14 of seed 3 does it."""
        if any(v[0] == np.random.default_rng([3, 14]).uniform(0, 1, 1)[0] for v in inputs):
            if self.what == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.what == "raise":
                raise ArithmeticError("no such luck")
            Path(self.folder, f"{os.getpid()}.pid").touch()
            time.sleep(600)
        return super().solve(inputs, device)


class Stopped(Exception):
    """Raised by `stop_after`."""


def stop_after(count: int) -> Callable[[int], None]:
    """A progress that raises once so many samples are done."""

    def progress(done: int) -> None:
        if done >= count:
            raise Stopped

    return progress


def signal_at(count: int, number: int) -> Callable[[int], None]:
    """A progress that sends this process a signal once so many samples are done."""

    def progress(done: int) -> None:
        if done >= count:
            os.kill(os.getpid(), number)

    return progress
