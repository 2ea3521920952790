from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from lno import Fields
from lno.problems import PROBLEMS, Darcy
from lno.problems import make as maker
from lno.problems.make import generator, make, make_file


@dataclass(frozen=True)
class Doubling:
    """A problem that takes no time: four random numbers to twice their value."""

    factor: float = 2.0

    name: ClassVar[str] = "doubling"
    batch: ClassVar[int] = 48  # three at a time on a CPU

    def draw(self, random: np.random.Generator) -> np.ndarray:
        return random.standard_normal(4)

    def solve(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.factor * inputs

    def fields(
        self, inputs: np.ndarray, solutions: np.ndarray, provenance: dict[str, Any]
    ) -> Fields:
        x = np.arange(4.0)[:, None]
        return Fields(x, u=inputs[..., None], y=solutions[..., None], provenance=provenance)


class Stopped(Exception):
    pass


def stop_after(count: int):
    def progress(done: int) -> None:
        if done >= count:
            raise Stopped

    return progress


def test_samples_depend_on_seed_and_index_alone() -> None:
    whole = make(Doubling(), 20, seed=3)
    for count in (1, 2, 7, 19):
        assert np.array_equal(make(Doubling(), count, seed=3).y, whole.y[:count])
    assert np.array_equal(whole.u[11, :, 0], generator(3, 11).standard_normal(4))
    assert not np.array_equal(make(Doubling(), 1, seed=4).u, whole.u[:1])


def test_an_interrupted_run_continues_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maker, "SAVE_SECONDS", 0.0)
    out = tmp_path / "a.h5"
    for count in (5, 11):
        with pytest.raises(Stopped):
            make_file(Doubling(), 20, out, seed=3, progress=stop_after(count))
        assert not out.exists()
    heard: list[int] = []
    made = make_file(Doubling(), 20, out, seed=3, progress=heard.append)
    assert heard[0] >= 9  # at the least what was finished before the second stop
    assert made.hash == make(Doubling(), 20, seed=3).hash == Fields.load(out).hash
    assert list(tmp_path.iterdir()) == [out]


def test_other_settings_never_continue_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maker, "SAVE_SECONDS", 0.0)
    with pytest.raises(Stopped):
        make_file(Doubling(), 20, tmp_path / "a.h5", seed=3, progress=stop_after(9))
    other = make_file(Doubling(factor=5.0), 20, tmp_path / "a.h5", seed=3)
    assert other.hash == make(Doubling(factor=5.0), 20, seed=3).hash


def test_a_damaged_part_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maker, "SAVE_SECONDS", 0.0)
    with pytest.raises(Stopped):
        make_file(Doubling(), 20, tmp_path / "a.h5", seed=3, progress=stop_after(15))
    parts = sorted(tmp_path.glob(".*.parts/*.h5"))
    assert len(parts) >= 3
    parts[1].write_bytes(parts[1].read_bytes()[:-50])
    made = make_file(Doubling(), 20, tmp_path / "a.h5", seed=3)
    assert made.hash == make(Doubling(), 20, seed=3).hash


def test_fewer_samples_than_were_finished_are_a_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maker, "SAVE_SECONDS", 0.0)
    with pytest.raises(Stopped):
        make_file(Doubling(), 20, tmp_path / "a.h5", seed=3, progress=stop_after(15))
    made = make_file(Doubling(), 4, tmp_path / "a.h5", seed=3)
    assert made.hash == make(Doubling(), 4, seed=3).hash


def test_a_killed_run_continues_with_the_same_bits(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        from lno.problems import Darcy, make
        make.SAVE_SECONDS = 0.0
        make.make_file(Darcy(grid=29, every=1), 64, {str(tmp_path / "a.h5")!r}, seed=1)
    """)
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        limit = time.monotonic() + 60
        while len(list(tmp_path.glob(".*.parts/*.h5"))) < 2 and time.monotonic() < limit:
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
    assert not (tmp_path / "a.h5").exists()
    made = make_file(Darcy(grid=29, every=1), 64, tmp_path / "a.h5", seed=1)
    assert made.hash == make(Darcy(grid=29, every=1), 64, seed=1).hash


def test_provenance_tells_how_to_make_it_again(tmp_path: Path) -> None:
    make_file(Darcy(grid=9, every=2, high=9.0), 2, tmp_path / "a.h5", seed=5)
    told = Fields.load(tmp_path / "a.h5").provenance
    again = PROBLEMS[told["problem"]](**told["parameters"])
    assert again == Darcy(grid=9, every=2, high=9.0)
    assert make(again, 2, told["seed"]).hash == Fields.load(tmp_path / "a.h5").hash


@pytest.mark.parametrize(("samples", "seed"), [(0, 0), (-1, 0), (1, -1), (1, 2**40)])
def test_impossible_numbers_are_errors(samples: int, seed: int) -> None:
    with pytest.raises(ValueError, match="must be a whole number"):
        make(Doubling(), samples, seed)
