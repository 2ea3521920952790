"""Data files: what was saved is loaded, at once or as it is needed."""

import json

import h5py
import numpy as np
import pytest
from stored import KINDS, assert_equal, make, only

from lno.data import Fields, store


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_saved_is_loaded(tmp_path, kind, lazy, dtype):
    fields = make(kind, dtype=dtype)
    fields.save(tmp_path / "a.h5")
    loaded = Fields.load(tmp_path / "a.h5", lazy=lazy)
    assert_equal(loaded, fields)
    assert loaded.digest == fields.digest
    assert loaded.subset([2, 0]).digest == fields.subset([2, 0]).digest
    assert only(tmp_path) == ["a.h5"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "index", [[3], [0, 1, 2], [5, 4, 3], [4, 0, 4, 4, 1], [-1, -6], [2, 2], [0, 2, 4]]
)
def test_lazy_subsets_in_any_order(tmp_path, kind, index):
    fields = make(kind)
    fields.save(tmp_path / "a.h5")
    lazy = Fields.load(str(tmp_path / "a.h5"), lazy=True)
    assert_equal(lazy.subset(index), fields.subset(index))
    again = [len(index) - 1, 0]
    assert_equal(lazy.subset(index).subset(again), fields.subset(index).subset(again))
    chosen = [k % 6 for k in index]
    for got, expected in zip(
        vars(lazy.batch(chosen)).values(), vars(fields.batch(chosen)).values(), strict=True
    ):
        assert (got is None) == (expected is None)
        assert got is None or np.array_equal(got.numpy(), expected.numpy())


@pytest.mark.parametrize("kind", KINDS)
def test_lazy_data_are_saved_and_concatenated_like_others(tmp_path, kind):
    fields = make(kind)
    fields.save(tmp_path / "a.h5")
    lazy = Fields.load(tmp_path / "a.h5", lazy=True)
    lazy.shuffle(3).save(tmp_path / "b.h5")
    assert_equal(Fields.load(tmp_path / "b.h5"), fields.shuffle(3))
    assert Fields.concatenate([lazy, lazy]).digest == Fields.concatenate([fields, fields]).digest
    lazy.subset([1, 0]).save(tmp_path / "a.h5")  # over the very file that it reads from
    assert_equal(Fields.load(tmp_path / "a.h5"), fields.subset([1, 0]))
    assert_equal(lazy, fields)


@pytest.mark.parametrize("kind", KINDS)
def test_no_values_no_outputs_same_points(tmp_path, kind):
    whole = make(kind)
    for fields in (
        Fields(whole.x),
        Fields(whole.x, y=whole.u),
        Fields(whole.x, whole.u, whole.x_query),
    ):
        fields.save(tmp_path / "a.h5")
        for lazy in (False, True):
            loaded = Fields.load(tmp_path / "a.h5", lazy=lazy)
            assert_equal(loaded, fields)
            assert loaded.same_points == fields.same_points


@pytest.mark.parametrize("lazy", [False, True])
def test_without_compression_the_same_is_loaded(tmp_path, lazy):
    data = Fields(np.zeros((3000, 2)), np.zeros((4, 3000, 1)), y=np.zeros((4, 3000, 1)))
    packed, plain = tmp_path / "packed.h5", tmp_path / "plain.h5"
    data.save(packed)
    data.save(plain, compress=False)
    assert packed.stat().st_size < plain.stat().st_size / 5
    assert Fields.load(plain, lazy=lazy).digest == Fields.load(packed).digest == data.digest
    damaged = bytearray(plain.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    plain.write_bytes(damaged)
    with pytest.raises(ValueError, match="damaged"):
        Fields.load(plain)


def test_parts_of_one_ragged_array(tmp_path):
    """A subset keeps the whole flat array in memory; its file must hold the subset alone."""
    part = make("ragged").subset([4, 1, 1])
    part.save(tmp_path / "a.h5")
    assert_equal(Fields.load(tmp_path / "a.h5"), part)
    with h5py.File(tmp_path / "a.h5") as file:
        assert len(file["x"]) == sum(len(s.x) for s in part)


def test_samples_of_several_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "CHUNK_VALUES", 8)
    for kind in KINDS:
        fields = make(kind, s=11)
        fields.save(tmp_path / "a.h5")
        assert_equal(Fields.load(tmp_path / "a.h5"), fields)
        assert_equal(Fields.load(tmp_path / "a.h5", lazy=True), fields)


def test_long_descriptions(tmp_path):
    """HDF5's classic limit for an attribute is 64 KiB."""
    fields = Fields(np.eye(2), provenance={"log": "é" * 200_000})
    fields.save(tmp_path / "a.h5")
    assert Fields.load(tmp_path / "a.h5").provenance == fields.provenance


def test_plain_h5py_reads_the_files(tmp_path):
    shared, ragged = make("shared"), make("ragged")
    shared.save(tmp_path / "a.h5")
    ragged.save(tmp_path / "b.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        np.testing.assert_array_equal(file["x"][:], shared.x)
        np.testing.assert_array_equal(file["y"][:], shared.y)
        meaning = json.loads(file.attrs["meaning"])
        assert meaning["names"]["x"] == ["t", "länge"]
        assert meaning["grid"] == [2, 2]
        assert file.attrs["samples"] == len(shared)
        assert file.attrs["digest"] == shared.digest
    with h5py.File(tmp_path / "b.h5") as file:
        u = np.split(file["u"][:], file["u_offsets"][1:-1])
    for got, sample in zip(u, ragged, strict=True):
        np.testing.assert_array_equal(got, sample.u)


def test_equal_shared_points_are_stored_once(tmp_path):
    x = np.random.default_rng(0).standard_normal((2000, 2))
    Fields(x, np.zeros((50, 2000, 1))).save(tmp_path / "a.h5")
    assert (tmp_path / "a.h5").stat().st_size < 2 * x.nbytes
