"""Tiny jobs for tests of several processes: these import this module and see no patches."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lno import Fields
from lno.evaluation import Errors
from lno.experiments.runs import RunSpec, Samples
from lno.operator import Operator
from lno.training import loop
from lno.training.device import SHARING

SIZES = (("width", 16), ("latents", 8), ("blocks", 1), ("heads", 2), ("layers", 1))


def save_data(path: Path) -> str:
    """Ten fields on a small grid."""
    random = np.random.default_rng(0)
    axes = np.meshgrid(np.linspace(0, 1, 6), np.linspace(0, 1, 6), indexing="ij")
    x = np.stack(axes, -1).reshape(-1, 2)
    phase = random.uniform(0, 6, size=(10, 1, 1))
    fields = Fields(x, np.sin(5 * x[:, :1] + phase), y=np.cos(5 * x[:, :1] + phase), grid=(6, 6))
    fields.save(path)
    return str(path)


def tiny(data: str, epochs: int = 2, kind: type[RunSpec] = RunSpec) -> RunSpec:
    """A small model on these fields."""
    return kind("darcy", "lno", "paper", epochs, "fp32", data=data, changes=SIZES)


class Failing(RunSpec):
    """Its data cannot be read."""

    def samples(self, device: str) -> Samples:
        """Raise."""
        raise RuntimeError("CUDA out of memory, says a test")


class Dying(RunSpec):
    """Its process is killed."""

    def samples(self, device: str) -> Samples:
        """Kill the process."""
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


class After(RunSpec):
    """Starts from the operator of the plain spec with as many epochs less one."""

    def needs(self) -> tuple[RunSpec, ...]:
        """That spec."""
        assert self.data is not None and self.epochs is not None
        return (tiny(self.data, self.epochs - 1),)

    def errors(self, operator: Operator, test: Fields, seed: int) -> dict[str, Errors]:
        """Its own errors; the other operator must be there."""
        assert self.needs()[0].operator(seed) is not None
        return super().errors(operator, test, seed)


class AfterFailing(After):
    """Starts from one that fails."""

    def needs(self) -> tuple[RunSpec, ...]:
        """That spec."""
        assert self.data is not None
        return (tiny(self.data, kind=Failing),)


class Slow(RunSpec):
    """Takes a while for each step if it shares the device."""

    def samples(self, device: str) -> Samples:
        """Warn, and slow steps down."""
        if SHARING in os.environ:
            fast = loop.next_batches

            def slow(*arguments: Any) -> Any:
                time.sleep(0.1)
                return fast(*arguments)

            loop.next_batches = slow
        plain = replace(tiny(self.data or ""), epochs=self.epochs)
        return plain.samples(device)
