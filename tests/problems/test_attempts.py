"""Samples that do not converge are solved again or replaced, and all of them are listed."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_problems import Stiff, Stopped, signal_at, stop_after

from lno.data import Fields
from lno.problems import Darcy
from lno.problems import make as maker
from lno.problems.attempts import ATTEMPTS, generator
from lno.problems.make import identity, make, make_file


def expected(problem: Stiff, seed: int, index: int) -> tuple[float, float, bool, int]:
    """Input, solution, whether it was solved safely, and the attempt, found one by one."""
    for attempt in range(ATTEMPTS + 1):
        entropy = [seed, index, attempt] if attempt else [seed, index]
        [v] = np.random.default_rng(entropy).uniform(0, 1, 1)
        if v < problem.hard:
            return v, (v if v < problem.easy else -v), v >= problem.easy, attempt
    raise AssertionError("choose another seed")


@pytest.mark.parametrize("first", [0, 13])
def test_every_sample_is_what_it_is_alone(first: int) -> None:
    made = make(Stiff(), 60, seed=1, first=first)
    alone = [expected(Stiff(), 1, k) for k in range(first, first + 60)]
    assert np.array_equal(made.u[:, 0, 0], [v for v, *_ in alone])
    assert np.array_equal(made.y[:, 0, 0], [y for _, y, *_ in alone])
    numbered = list(enumerate(alone, start=first))
    assert made.provenance["retried"] == [k for k, (*_, safely, _) in numbered if safely]
    redrawn = {str(k): attempt for k, (*_, attempt) in numbered if attempt}
    assert made.provenance["redrawn"] == redrawn
    assert len(redrawn) > 5 and max(redrawn.values()) > 1
    assert set(map(str, made.provenance["retried"])) & set(redrawn)  # both happen to some


def test_the_first_attempt_draws_what_it_always_drew() -> None:
    first = [generator(5, 7).random(), generator(5, 7, 0).random()]
    assert first == [np.random.default_rng([5, 7]).random()] * 2
    others = {generator(5, 7, attempt).random() for attempt in range(ATTEMPTS + 1)}
    assert len(others) == ATTEMPTS + 1


def test_failures_are_listed_however_a_file_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make_file(Stiff(), 40, tmp_path / "whole.h5", seed=1)
    for k, seconds in enumerate((0.0, 1000.0)):  # saved after every part, or only when stopped
        monkeypatch.setattr(maker, "SAVE_SECONDS", seconds)
        out = tmp_path / f"{k}.h5"
        with pytest.raises(KeyboardInterrupt):
            make_file(Stiff(), 40, out, seed=1, progress=signal_at(15, signal.SIGTERM))
        assert make_file(Stiff(), 40, out, seed=1).digest == whole.digest
        assert Fields.load(out).provenance == whole.provenance
        assert out.read_bytes() == (tmp_path / "whole.h5").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        make_file(Stiff(), 40, out, seed=1, progress=signal_at(30, signal.SIGTERM))
    fewer = make_file(Stiff(), 10, out, seed=1)  # of more that are finished
    assert fewer.provenance == make(Stiff(), 10, seed=1).provenance
    assert all(k < 10 for k in fewer.provenance["retried"])


def test_without_failures_nothing_is_listed() -> None:
    made = make(Stiff(easy=2.0), 20, seed=1)
    assert not {"retried", "redrawn"} & set(made.provenance)
    assert set(make(Stiff(easy=0.99, hard=2.0), 9, seed=1).provenance) == set(made.provenance)


def test_failures_change_neither_the_digest_nor_the_name_of_parts() -> None:
    made = make(Stiff(), 10, seed=1)
    assert made.replace(provenance={}).digest == made.digest
    # Data sets that were made before there were retries, or versions, are still in the cache.
    assert identity(Darcy(), 0, "cpu") == "f2787a242c64"


@dataclass(frozen=True)
class Stuck(Stiff):
    """Some inputs of seed 1 never converge, whatever is drawn."""

    cpu_batch = 8

    def draw(self, random: np.random.Generator) -> np.ndarray:
        """The samples 21 and 23 are above `hard` in all attempts."""
        state = str(random.bit_generator.state["state"])
        bad = [generator(1, k, a) for k in (21, 23) for a in range(ATTEMPTS + 1)]
        stuck = state in [str(one.bit_generator.state["state"]) for one in bad]
        return np.ones(1) if stuck else super().draw(random)


def test_samples_that_never_converge_are_named_and_those_before_are_kept(tmp_path: Path) -> None:
    out, message = tmp_path / "a.h5", "Stiff: samples 21, 23 did not converge, nor did any of 10"
    with pytest.raises(RuntimeError, match=message):
        make(Stuck(), 40, seed=1)
    with pytest.raises(RuntimeError, match=message):
        make_file(Stuck(), 40, out, seed=1)
    assert not out.exists()
    reported: list[int] = []
    made = make_file(Stuck(), 21, out, seed=1, progress=reported.append)
    assert reported == [21]
    assert made.digest == make(Stiff(), 21, seed=1).digest
    with pytest.raises(RuntimeError, match="sample 21 did not"):
        make(Stuck(), 1, seed=1, first=21)
    make(Stuck(), 5, seed=1, first=24)


def test_a_solver_must_return_something_for_every_input() -> None:
    @dataclass(frozen=True)
    class Short(Stiff):
        def solve(
            self, inputs: list[np.ndarray], device: torch.device
        ) -> Sequence[np.ndarray | None]:
            return inputs[1:]

    with pytest.raises(ValueError, match="shorter"):
        make(Short(), 4)


def test_an_error_keeps_what_was_solved(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        make_file(Stiff(), 20, tmp_path / "a.h5", seed=1, progress=stop_after(9))
    reported: list[int] = []
    make_file(Stiff(), 20, tmp_path / "a.h5", seed=1, progress=reported.append)
    assert reported[0] == 12
