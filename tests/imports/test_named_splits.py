"""A split in the order of the samples is named at import and kept in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run
from plates import ROLES, S, T, stacked

from lno import Fields
from lno.data.importing import import_files

HOW = {**ROLES, "positions": "nodes:x,y"}


def npz(path: Path, **changes: Any) -> Path:
    np.savez(path / "a.npz", **stacked() | changes)
    return path / "a.npz"


@pytest.mark.parametrize("split", [(3, 1, 1), [3, 1, 1], "3,1,1", "3, 1, 1", np.array([3, 1, 1])])
def test_the_split_is_part_of_the_file(split: Any, tmp_path: Path) -> None:
    given = list(split) if isinstance(split, np.ndarray) else split
    done = import_files(npz(tmp_path), **HOW, split=given)
    assert done.fields.provenance["split"] == [3, 1, 1]
    assert "split in this order: 3 train, 1 validation, 1 test samples" in done.notes
    done.fields.save(tmp_path / "a.h5")
    assert Fields.load(tmp_path / "a.h5").provenance["split"] == [3, 1, 1]


def test_two_numbers_and_samples_that_are_left_over(tmp_path: Path) -> None:
    done = import_files(npz(tmp_path), **HOW, split=(2, 1))
    assert done.fields.provenance["split"] == [2, 1]
    assert "split in this order: 2 train, 1 test samples; the last 2 are not used" in done.notes
    assert "split" not in import_files(npz(tmp_path), **HOW).fields.provenance


@pytest.mark.parametrize(
    "split", ["", "3", "3,1,1,1", "3;2", "3,x", "3,1.5", (3, 0, 2), (4, -1, 1), (3.0, 2), (True, 2)]
)
def test_what_is_no_split(split: Any, tmp_path: Path) -> None:
    message = r"split: expected two or three positive whole numbers.*like 800,100,100; got "
    with pytest.raises(ValueError, match=message):
        import_files(npz(tmp_path), **HOW, split=split)


def test_more_samples_than_there_are(tmp_path: Path) -> None:
    message = r"a\.npz: split: expected numbers that add up to at most 5, the samples that there "
    with pytest.raises(ValueError, match=message + r"are, got 3 \+ 2 \+ 1 = 6: make one of them"):
        import_files(npz(tmp_path), **HOW, split=(3, 2, 1))
    t = T.copy()
    t[1] = np.nan  # this sample is left out
    with pytest.raises(ValueError, match="at most 4, the samples that there are, got 3 \\+ 2 = 5"):
        import_files(npz(tmp_path, T=t), **HOW, split=(3, 2))


def test_samples_are_shuffled_before_they_are_split(tmp_path: Path, run: Run) -> None:
    words = [word for role, names in HOW.items() for word in (f"--{role}", names)]
    words += ["--split", "3,1,1", "--shuffle", "2", "--out", str(tmp_path / "a.h5")]
    done = run("data", "import", npz(tmp_path), *words)
    assert done.returncode == 0, done.stderr
    assert "split in this order: 3 train, 1 validation, 1 test samples" in done.stdout
    found, whole = Fields.load(tmp_path / "a.h5"), Fields.from_files(tmp_path / "a.npz", **HOW)
    assert found.provenance["split"] == [3, 1, 1]
    assert found.provenance["import"]["shuffled, seed"] == 2
    order = np.random.default_rng(2).permutation(S)
    assert found.split(3, 1, 1)[2].digest == whole.subset(order[4:]).digest


def test_the_command_says_what_is_wrong(tmp_path: Path, run: Run) -> None:
    words = ("--outputs", "T", "--split", "4,2", "--out", tmp_path / "a.h5")
    done = run("data", "import", npz(tmp_path), *words)
    assert done.returncode == 1 and "got 4 + 2 = 6: make one of them smaller" in done.stderr
    assert not (tmp_path / "a.h5").exists()
