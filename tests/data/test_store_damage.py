"""Damaged data files, and files of other programs, are refused."""

import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
from stored import KINDS, assert_equal, make, refuse

from lno.data import Fields


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_truncated_files(tmp_path, kind, lazy):
    path = tmp_path / "a.h5"
    make(kind, s=20).save(path)
    whole = path.read_bytes()
    lengths = {len(whole) * k // 20 for k in range(20)} | {1, 7, 8, 9, 48, 96, len(whole) - 1}
    for length in sorted(lengths):
        part = tmp_path / f"{length}.h5"
        part.write_bytes(whole[:length])
        refuse(part, lazy=lazy)


def with_flipped_bit(folder, whole, place):
    """A file like `whole` but for one bit of byte `place`, under a name of its own."""
    path = folder / f"{place}.h5"
    flipped = bytearray(whole)
    flipped[place] ^= 1 << place % 8
    path.write_bytes(flipped)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_byte_in_the_data(tmp_path, kind):
    path = tmp_path / "a.h5"
    fields = make(kind, s=20)
    fields.save(path)
    whole = path.read_bytes()
    with h5py.File(path) as file:
        regions = []
        for dataset in file.values():
            if dataset.chunks is None:
                regions.append((dataset.id.get_offset(), dataset.id.get_storage_size()))
                continue
            for k in range(dataset.id.get_num_chunks()):
                chunk = dataset.id.get_chunk_info(k)
                regions.append((chunk.byte_offset, chunk.size))
    assert len(regions) == {"uniform": 4, "shared": 4, "ragged": 8}[kind]
    for start, size in regions:
        for place in np.linspace(start, start + size - 1, 25).astype(int):
            refuse(with_flipped_bit(tmp_path, whole, int(place)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_byte_anywhere_is_an_error_or_harmless(tmp_path, kind):
    """Provenance apart, which is no part of what the hash protects."""
    path = tmp_path / "a.h5"
    fields = make(kind)
    fields.save(path)
    whole = path.read_bytes()
    refused = 0
    for place in range(0, len(whole), 7):
        path = with_flipped_bit(tmp_path, whole, place)
        try:
            loaded = Fields.load(path)
        except ValueError as error:
            assert str(path) in str(error)
            refused += 1
        else:
            assert_equal(loaded, fields, keys=("grid", "period", "names", "units", "frame"))
        path.unlink()
    assert refused > 0


class Bomb:
    def __init__(self, flag):
        self.flag = flag

    def __reduce__(self):
        return (Path.touch, (self.flag,))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_are_never_run(tmp_path, protocol):
    path, flag = tmp_path / "a.h5", tmp_path / "ran"
    path.write_bytes(pickle.dumps(Bomb(flag), protocol=protocol))
    message = refuse(path)
    assert not flag.exists()
    if protocol >= 2:
        assert "pickle" in message


def test_archives_of_other_programs(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    np.save(tmp_path / "a.npy", np.zeros(3))
    assert "zip" in refuse(tmp_path / "a.npz")
    assert "NUMPY" in refuse(tmp_path / "a.npy")


@pytest.mark.parametrize("lazy", [False, True])
def test_files_that_are_no_data(tmp_path, lazy):
    noise = tmp_path / "noise.h5"
    noise.write_bytes(np.random.default_rng(0).bytes(5000))
    refuse(noise, lazy=lazy)
    noise.write_bytes(b"\x89HDF\r\n\x1a\n" + np.random.default_rng(0).bytes(5000))
    refuse(noise, lazy=lazy)
    noise.write_bytes(b"")
    assert "empty" in refuse(noise, lazy=lazy)
    refuse(tmp_path / "missing.h5", lazy=lazy, kinds=FileNotFoundError)
    refuse(tmp_path, lazy=lazy, kinds=IsADirectoryError)


def test_hdf5_of_another_program(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.zeros(3)
    assert "lno.fields" in refuse(tmp_path / "a.h5")
