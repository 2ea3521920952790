"""Ranges of samples, joined, are the data set that one run makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from toy_problems import Fan, Stiff

from lno.data import Fields
from lno.problems import Problem
from lno.problems.join import join_files
from lno.problems.make import make, make_file

Pieces = Callable[..., list[Path]]


@pytest.fixture
def pieces(tmp_path: Path) -> Pieces:
    """Files of ranges (first, stop) of the samples of seed 1."""

    def write(*ranges: tuple[int, int], problem: Problem | None = None, **keys: Any) -> list[Path]:
        paths = []
        for first, stop in ranges:
            paths.append(tmp_path / f"{first}-{stop}{''.join(keys)}.h5")
            settings = {"seed": 1, "first": first, **keys}
            make_file(problem or Stiff(), stop - first, paths[-1], **settings)
        return paths

    return write


@pytest.mark.parametrize("problem", [Stiff(), Fan()])  # of one size, and of different sizes
@pytest.mark.parametrize("first", [0, 11])
def test_joined_ranges_are_what_one_run_makes(
    problem: Problem, first: int, pieces: Pieces, tmp_path: Path
) -> None:
    ranges = [(first + 13, first + 14), (first, first + 13), (first + 14, first + 40)]
    joined = join_files(pieces(*ranges, problem=problem), tmp_path / "all.h5")
    whole = make(problem, 40, seed=1, first=first)
    assert joined.digest == whole.digest == Fields.load(tmp_path / "all.h5").digest
    assert joined.provenance == whole.provenance
    assert ("redrawn" in joined.provenance) == isinstance(problem, Stiff)
    make_file(problem, 40, tmp_path / "whole.h5", seed=1, first=first)
    assert (tmp_path / "all.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


def test_what_was_joined_can_be_joined(pieces: Pieces, tmp_path: Path) -> None:
    a, b, c = pieces((0, 4), (4, 9), (9, 20))
    join_files([b, c], tmp_path / "bc.h5")
    joined = join_files([tmp_path / "bc.h5", a], tmp_path / "all.h5")
    assert joined.digest == make(Stiff(), 20, seed=1).digest
    [whole] = pieces((0, 20))
    assert (tmp_path / "all.h5").read_bytes() == whole.read_bytes()


def test_values_are_never_all_in_memory(
    pieces: Pieces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, largest = pieces((0, 30), (30, 90)), 0
    read = h5py.Dataset.__getitem__

    def watched(self: h5py.Dataset, index: Any, *rest: Any) -> Any:
        nonlocal largest
        values = read(self, index, *rest)
        largest = max(largest, len(values)) if self.name == "/y" and self.ndim == 3 else largest
        return values

    monkeypatch.setattr("lno.data.store.CHUNK_VALUES", 4 * 8)  # eight samples of four points
    monkeypatch.setattr(h5py.Dataset, "__getitem__", watched)
    join_files(paths, tmp_path / "all.h5")
    monkeypatch.undo()
    assert 0 < largest <= 8
    assert Fields.load(tmp_path / "all.h5").digest == make(Stiff(), 90, seed=1).digest


def refuse(paths: list[Path], out: Path) -> str:
    """The message of the error; nothing is written."""
    before = sorted(out.parent.iterdir())
    with pytest.raises(ValueError) as caught:
        join_files(paths, out)
    assert sorted(out.parent.iterdir()) == before
    return str(caught.value)


def test_missing_and_duplicated_samples_are_all_named(pieces: Pieces, tmp_path: Path) -> None:
    a, b, c, d = pieces((0, 5), (8, 12), (10, 11), (20, 22))
    message = refuse([d, c, b, a], tmp_path / "all.h5")
    assert f"missing: samples 5 to 7, between {a} and {b}" in message
    assert "--first 5 --samples 3" in message
    assert f"duplicated: sample 10, in {b} and in {c}" in message
    assert f"missing: samples 12 to 19, between {b} and {d}" in message
    assert "lno data make stiff --seed 1" in message
    assert "duplicated: samples 0 to 4" in refuse([a, a], tmp_path / "all.h5")


def test_files_of_other_settings_do_not_belong_together(pieces: Pieces, tmp_path: Path) -> None:
    [a], out = pieces((0, 5)), tmp_path / "all.h5"
    assert "made with the seed 2, not 1" in refuse([a, *pieces((5, 9), seed=2)], out)
    harder = pieces((5, 9), problem=Stiff(hard=0.9))
    assert "made with hard = 0.9, not 0.8" in refuse([a, *harder], out)
    assert "has the problem 'fan', not 'stiff'" in refuse([a, *pieces((5, 9), problem=Fan())], out)
    [b] = pieces((5, 9))
    other = Fields.load(b)
    other.provenance["device"] = "cuda"
    other.save(b)
    assert "solved on the device 'cuda', not 'cpu'" in refuse([a, b], out)
    [b] = pieces((5, 9))
    other = Fields.load(b).replace(names={"x": ["t"], "u": ["v"], "y": ["w"]})
    other.save(b)
    assert "its names is" in refuse([a, b], out)


def test_versions_of_a_generator_do_not_mix(pieces: Pieces, tmp_path: Path) -> None:
    (a, b, c), out = pieces((0, 5), (5, 9), (9, 12)), tmp_path / "all.h5"

    @dataclass(frozen=True)
    class Changed(Stiff):
        version = 2

    make_file(Changed(), 4, b, seed=1, first=5)
    assert "its generator has version 2, not version 1, so" in refuse([a, b], out)
    for path in (b, c):  # as they were before there were versions
        old = Fields.load(path)
        del old.provenance["version"]
        old.save(path)
    assert "its generator has no version, not version 1, so" in refuse([a, b], out)
    assert "Make the older files again." in refuse([a, b], out)
    assert join_files([b, c], out).digest == make(Stiff(), 7, seed=1, first=5).digest


def test_only_files_whose_samples_are_known_are_joined(pieces: Pieces, tmp_path: Path) -> None:
    (a, b), out = pieces((0, 5), (5, 9)), tmp_path / "all.h5"
    fields = Fields.load(b)
    reordered, fewer = fields.subset([3, 2, 1, 0]), fields.subset([1, 2, 3])
    for changed in (reordered, fewer, fields.replace(y=2 * fields.y)):
        changed.save(b)
        assert "not known which they are" in refuse([a, b], out)
    for key in ("problem", "first", "digest"):
        record = {k: v for k, v in fields.provenance.items() if k != key}
        fields.replace(provenance=record).save(b)
        assert f"it has no {key}. Make the data again" in refuse([a, b], out)
    wrong = ("first", -1), ("first", True), ("version", "1"), ("retried", {}), ("redrawn", {"x": 1})
    for key, value in wrong:
        fields.replace(provenance={**fields.provenance, key: value}).save(b)
        assert "damaged provenance" in refuse([a, b], out)
    assert "at least two files" in refuse([a], out)
    assert "one of the files to join" in refuse([a, b], b)
    (tmp_path / "folder.h5").mkdir()
    with pytest.raises(IsADirectoryError, match="expected the name of a file, got a folder"):
        join_files([a, b], tmp_path / "folder.h5")


def test_a_damaged_file_is_named(pieces: Pieces, tmp_path: Path) -> None:
    a, b = pieces((0, 5), (5, 9))
    with h5py.File(b, "r+") as file:  # the digest that is stored stays
        file["y"][1] = np.float64(3.0)
    assert f"{b}: its samples were selected, reordered or changed" in refuse(
        [a, b], tmp_path / "all.h5"
    )
