"""Data files that claim more than they hold take no memory."""

import h5py
import numpy as np
import pytest
from stored import in_another_process, make, mark, refuse

from lno.data import Fields


def test_a_small_file_cannot_claim_to_be_huge(tmp_path):
    path = tmp_path / "bomb.h5"
    make("uniform").save(path)
    with h5py.File(path, "r+") as file:
        del file["y"]
        file.create_dataset("y", shape=(10**6, 10**6, 1), dtype="f4", chunks=(1, 1000, 1))
    with pytest.raises(ValueError, match=r"bomb\.h5.*y: claims 4,000,000,000,000 bytes"):
        Fields.load(path)


def test_constant_data_compress_well_and_load(tmp_path):
    Fields(np.arange(5000.0)[:, None], y=np.zeros((400, 5000, 1))).save(tmp_path / "a.h5")
    assert (tmp_path / "a.h5").stat().st_size < 200_000
    assert not np.any(Fields.load(tmp_path / "a.h5").y)


def grown(**arguments):
    """The file with another y, which is not written."""

    def how(file):
        del file["y"]
        file.create_dataset("y", **arguments)

    return how


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    ("how", "word"),
    [
        (grown(shape=(6, 4, 2), dtype="f4", chunks=(1, 4, 2)), "y: expected 6 stored chunks"),
        (grown(shape=(6, 4, 2), dtype="f4"), "y: 192 bytes are claimed and 0 are stored"),
        (grown(shape=(6, 10**7, 2), dtype="f4", chunks=(1, 9, 2)), "y: claims 480,000,000 bytes"),
        (
            grown(data=np.ones((6, 4, 2), "f4"), compression="lzf"),
            "compressed in a way that lno does not write",
        ),
        (
            grown(data=np.ones((6, 4, 2), "f4"), scaleoffset=2),
            "compressed in a way that lno does not write",
        ),
        (
            grown(shape=(6, 4, 2), maxshape=(None, 4, 2), chunks=(10**6, 4, 2), dtype="f4"),
            "are larger than",
        ),
        (grown(shape=(10**12, 4, 0), dtype="f4"), "y: claims 1,000,000,000,000 rows"),
    ],
    ids=["chunks", "contiguous", "huge", "lzf", "scale offset", "large chunks", "empty rows"],
)
def test_values_that_are_not_in_the_file_are_not_allocated(tamper, how, word, lazy):
    assert word in refuse(tamper(how, "uniform"), lazy=lazy)


@pytest.mark.parametrize("lazy", [False, True])
def test_a_file_with_some_missing_chunks_takes_no_memory(tmp_path, lazy):
    """6 MB on disk, the values of which would take 6 GB."""
    path, values = tmp_path / "a.h5", np.random.default_rng(0).random((6, 250_000, 1), "f4")
    make("uniform").save(path)
    with h5py.File(path, "r+") as file:
        del file["y"]
        file.create_dataset("y", shape=(6000, 250_000, 1), dtype="f4", chunks=(1, 250_000, 1))
        file["y"][:6] = values
    assert 6e6 < path.stat().st_size < 7e6
    done = in_another_process(
        """
        import resource, sys
        from lno.data import Fields
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            Fields.load(sys.argv[1], lazy=sys.argv[2] == "True")
        except ValueError as error:
            print(error)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        """,
        path,
        lazy,
    )
    message, kilobytes = done.stdout.splitlines()
    assert "y: claims 6,000,000,000 bytes, which a file of 6" in message
    assert int(kilobytes) < 20_000


@pytest.mark.parametrize("key", ["meaning", "provenance"])
def test_json_that_is_too_deep(tamper, key):
    deep = "[" * 50_000 + "]" * 50_000
    assert "nested deeper than 200 levels" in refuse(tamper(mark(key, deep)))
