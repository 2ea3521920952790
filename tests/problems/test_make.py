"""Data sets are the same however they are made, also of a problem whose samples differ in size."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from toy_problems import Fan, FanInLargeBatches, Stopped, signal_at, stop_after

from lno.data import Fields
from lno.files import owning
from lno.problems import PROBLEMS, Darcy
from lno.problems import make as maker
from lno.problems.make import generator, identity, make, make_file


def same_samples(a: Fields, b: Fields) -> bool:
    """Whether two data sets have the same samples bit-for-bit, with all of their columns."""
    return len(a) == len(b) and all(
        (p is None and q is None) or np.array_equal(p, q)
        for one, other in zip(a, b, strict=True)
        for p, q in zip(one, other, strict=True)
    )


def test_samples_depend_on_seed_and_index_alone() -> None:
    whole = make(Fan(), 20, seed=3)
    assert whole.is_ragged and len({len(c) for c in whole.cells}) > 2
    for count in (1, 2, 7, 19):  # fewer samples are a prefix, in batches of another size too
        prefix = whole.subset(np.arange(count))
        assert same_samples(make(Fan(), count, seed=3), prefix)
        assert make(FanInLargeBatches(), count, seed=3).digest == prefix.digest
    assert same_samples(make(Fan(), 1, seed=3, first=11), whole.subset([11]))
    drawn = Fan().draw(generator(3, 11))
    assert np.array_equal(whole[11].parameters, drawn[:2])
    assert whole[11].cells.max() + 1 == len(whole[11].x) == len(drawn) - 1
    assert not same_samples(make(Fan(), 1, seed=4), whole.subset([0]))


def test_any_range_of_the_sequence_can_be_made(tmp_path: Path) -> None:
    whole = make(Fan(), 20, seed=3)
    for first, count in ((0, 5), (5, 1), (7, 13)):
        part = make_file(Fan(), count, tmp_path / "a.h5", seed=3, first=first)
        assert part.digest == whole.subset(np.arange(first, first + count)).digest
        assert Fields.load(tmp_path / "a.h5").provenance["first"] == first


def test_interrupted_ranges_of_one_file_do_not_mix(tmp_path: Path) -> None:
    whole, out = make(Fan(), 40, seed=3), tmp_path / "a.h5"
    for first in (0, 9, 20):  # parts of the others are left, and some begin where this one does
        with pytest.raises(Stopped):
            make_file(Fan(), 20, out, seed=3, progress=stop_after(12), first=first)
    assert len(list(tmp_path.iterdir())) == 3
    reported: list[int] = []
    made = make_file(Fan(), 20, out, seed=3, progress=reported.append, first=9)
    assert reported[0] == 12 and reported[-1] == 20
    assert made.digest == whole.subset(np.arange(9, 29)).digest
    assert list(tmp_path.iterdir()) == [out]


def test_an_interrupted_run_continues_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maker, "SAVE_SECONDS", 0.0)
    out = tmp_path / "a.h5"
    for count in (5, 11):
        with pytest.raises(Stopped):
            make_file(Fan(), 20, out, seed=3, progress=stop_after(count))
        assert not out.exists()
    reported: list[int] = []
    made = make_file(Fan(), 20, out, seed=3, progress=reported.append)
    assert reported[0] >= 9  # at least what was finished before the second stop
    whole = make(Fan(), 20, seed=3)
    assert made.digest == whole.digest == Fields.load(out).digest
    assert same_samples(made, whole) and same_samples(Fields.load(out), whole)
    assert list(tmp_path.iterdir()) == [out]
    make_file(Fan(), 20, tmp_path / "b.h5", seed=3)
    assert out.read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_other_settings_never_continue_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maker, "SAVE_SECONDS", 0.0)
    with pytest.raises(Stopped):
        make_file(Fan(), 20, tmp_path / "a.h5", seed=3, progress=stop_after(9))
    other = make_file(Fan(stiffness=5.0), 20, tmp_path / "a.h5", seed=3)
    assert other.digest == make(Fan(stiffness=5.0), 20, seed=3).digest


def test_parts_of_another_version_are_made_again(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Changed(Fan):
        version = 2

    out = tmp_path / "a.h5"
    assert identity(Changed(), 3, "cpu") != identity(Fan(), 3, "cpu")  # the cache makes a new file
    with pytest.raises(Stopped):
        make_file(Fan(), 20, out, seed=3, progress=stop_after(9))
    reported: list[int] = []
    made = make_file(Changed(), 20, out, seed=3, progress=reported.append)
    assert reported[0] == 0 and made.provenance["version"] == 2
    with pytest.raises(Stopped):
        make_file(Fan(), 20, out, seed=3, progress=stop_after(9))
    [path] = tmp_path.glob(".*.parts/*.h5")
    part = Fields.load(path)
    del part.provenance["version"]  # as it was before there were versions
    part.save(path)
    reported.clear()
    made = make_file(Fan(), 20, out, seed=3, progress=reported.append)
    assert reported[0] == 0 and made.provenance == make(Fan(), 20, seed=3).provenance


def test_a_damaged_part_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maker, "SAVE_SECONDS", 0.0)
    with pytest.raises(Stopped):
        make_file(Fan(), 20, tmp_path / "a.h5", seed=3, progress=stop_after(15))
    parts = sorted(tmp_path.glob(".*.parts/*.h5"))
    assert len(parts) >= 3
    parts[1].write_bytes(parts[1].read_bytes()[:-50])
    made = make_file(Fan(), 20, tmp_path / "a.h5", seed=3)
    assert made.digest == make(Fan(), 20, seed=3).digest


def test_fewer_samples_than_were_finished_are_a_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maker, "SAVE_SECONDS", 0.0)
    with pytest.raises(Stopped):
        make_file(Fan(), 20, tmp_path / "a.h5", seed=3, progress=stop_after(15))
    made = make_file(Fan(), 4, tmp_path / "a.h5", seed=3)
    assert made.digest == make(Fan(), 4, seed=3).digest


def test_a_killed_run_continues_bit_for_bit(tmp_path: Path) -> None:
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
    assert made.digest == make(Darcy(grid=29, every=1), 64, seed=1).digest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_keep_the_work_that_is_done(tmp_path: Path, number: int) -> None:
    out, before = tmp_path / "a.h5", signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        make_file(Fan(), 20, out, seed=3, progress=signal_at(9, number))
    assert signal.getsignal(number) is before
    assert [p.suffix for p in tmp_path.iterdir()] == [".parts"]
    reported: list[int] = []
    made = make_file(Fan(), 20, out, seed=3, progress=reported.append)
    assert reported[0] == 9
    assert made.digest == make(Fan(), 20, seed=3).digest
    assert list(tmp_path.iterdir()) == [out]


def test_a_second_signal_ends_at_once_and_leaves_nothing_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, save = tmp_path / "a.h5", Fields.save

    def interrupted(self: Fields, path: Path, **options: bool) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        save(self, path, **options)

    monkeypatch.setattr(Fields, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make_file(Fan(), 20, out, seed=3, progress=signal_at(9, signal.SIGTERM))
    assert not list(tmp_path.rglob("*"))
    monkeypatch.undo()
    assert make_file(Fan(), 20, out, seed=3).digest == make(Fan(), 20, seed=3).digest


def test_an_interruption_after_a_part_was_saved_does_not_shift_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C may come between any two lines, also right after a part was written."""
    monkeypatch.setattr(maker, "SAVE_SECONDS", 0.0)
    save, calls = Fields.save, iter(range(100))

    def interrupted(self: Fields, path: Path, **options: bool) -> None:
        save(self, path, **options)
        if next(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Fields, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make_file(Fan(), 20, tmp_path / "a.h5", seed=3)
    monkeypatch.undo()
    starts = sorted(int(p.stem) for p in tmp_path.glob(".*.parts/*.h5"))
    assert starts == [0, 3, 6]
    made = make_file(Fan(), 20, tmp_path / "a.h5", seed=3)
    assert made.digest == make(Fan(), 20, seed=3).digest


def test_a_failed_last_write_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, save = tmp_path / "a.h5", Fields.save

    def full(self: Fields, path: Path, **options: bool) -> None:
        if path == out:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(self, path, **options)

    monkeypatch.setattr(Fields, "save", full)
    with pytest.raises(OSError, match="No space left"):
        make_file(Fan(), 20, out, seed=3)
    assert not out.exists() and len(list(tmp_path.glob(".*.parts/*.h5"))) == 1
    monkeypatch.undo()
    monkeypatch.setattr(Fan, "solve", None)  # nothing is solved again
    reported: list[int] = []
    made = make_file(Fan(), 20, out, seed=3, progress=reported.append)
    monkeypatch.undo()
    assert reported == [20] and made.digest == make(Fan(), 20, seed=3).digest
    assert list(tmp_path.iterdir()) == [out]


def test_a_folder_in_place_of_a_file_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fan, "solve", None)
    (tmp_path / "a.h5").mkdir()
    with pytest.raises(IsADirectoryError, match=r"the name of a file, got a folder\. Choose"):
        make_file(Fan(), 4, tmp_path / "a.h5")
    assert [path.name for path in tmp_path.rglob("*")] == ["a.h5"]


def test_a_second_maker_of_a_file_is_refused(tmp_path: Path) -> None:
    out, done, ready = tmp_path / "a.h5", threading.Event(), []

    def owner() -> None:
        with owning(out):
            ready.append(True)
            done.wait(60)

    thread = threading.Thread(target=owner)
    thread.start()
    try:
        while not ready:
            time.sleep(0.001)
        before = sorted(tmp_path.iterdir())
        with pytest.raises(BlockingIOError, match=rf"a\.h5 is in use by process {os.getpid()}"):
            make_file(Fan(), 4, out)
        assert sorted(tmp_path.iterdir()) == before
        make_file(Fan(), 4, tmp_path / "b.h5")
    finally:
        done.set()
        thread.join()
    make_file(Fan(), 4, out)
    assert sorted(tmp_path.iterdir()) == [out, tmp_path / "b.h5"]


def test_parts_of_other_settings_go_when_the_file_is_complete(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        make_file(Fan(), 20, tmp_path / "a.h5", seed=3, progress=signal_at(9, signal.SIGTERM))
    with pytest.raises(KeyboardInterrupt):
        make_file(Fan(), 20, tmp_path / "a.h5", seed=4, progress=signal_at(9, signal.SIGTERM))
    assert len(list(tmp_path.iterdir())) == 2
    make_file(Fan(), 20, tmp_path / "a.h5", seed=4)
    assert list(tmp_path.iterdir()) == [tmp_path / "a.h5"]


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "a.h5").symlink_to(tmp_path / "disk" / "b.h5")
    make_file(Fan(), 4, tmp_path / "a.h5")
    assert (tmp_path / "a.h5").is_symlink()
    assert len(Fields.load(tmp_path / "disk" / "b.h5")) == 4


def test_provenance_is_enough_to_make_the_data_again(tmp_path: Path) -> None:
    make_file(Darcy(grid=9, every=2, high=9.0), 2, tmp_path / "a.h5", seed=5)
    record = Fields.load(tmp_path / "a.h5").provenance
    again = PROBLEMS[record["problem"]](**record["parameters"])
    assert again == Darcy(grid=9, every=2, high=9.0)
    assert make(again, 2, record["seed"]).digest == Fields.load(tmp_path / "a.h5").digest
    assert record["first"] == 0 and record["digest"] == Fields.load(tmp_path / "a.h5").digest
    assert not {"retried", "redrawn"} & set(record)


@pytest.mark.parametrize(
    ("samples", "seed", "first"),
    [(0, 0, 0), (-1, 0, 0), (1, -1, 0), (1, 2**40, 0), (1, 2**32, 0), (1, 0, -1), (2, 0, 10**9)],
)
def test_impossible_numbers_are_errors(samples: int, seed: int, first: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be a whole number"):
        make(Fan(), samples, seed, first=first)
    with pytest.raises(ValueError, match="must be a whole number"):
        make_file(Fan(), samples, tmp_path / "a.h5", seed, first=first)
    assert not list(tmp_path.iterdir())
