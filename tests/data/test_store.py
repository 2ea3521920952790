"""Data files: nothing is lost when writing, nothing is believed when reading."""

import io
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import h5py
import numpy as np
import pytest

from lno.data import Fields, store

KINDS = ("uniform", "shared", "ragged")
MEANING = {
    "names": {"x": ["t", "länge"], "u": ["p"], "y": ["v", "w"]},
    "units": {"x": ["s", "m"], "u": ["Pa"], "y": ["m/s", ""]},
    "frame": "reference grid",
    "period": [None, 2.0],
    "provenance": {"made by": "a test", "seeds": [1, 2]},
}


def make(kind, s=6, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 9, s) if kind == "ragged" else np.full(s, 5)
    q = rng.integers(1, 9, s) if kind == "ragged" else np.full(s, 4)

    def draw(sizes, c):
        return [rng.standard_normal((k, c)).astype(dtype) for k in sizes]

    x, x_query = draw(n, 2), draw(q, 2)
    if kind == "shared":
        x, x_query = x[0], x_query[0]
    grid = None if kind == "ragged" else (2, 2)
    return Fields(x, draw(n, 1), x_query, draw(q, 2), grid=grid, **MEANING)


def assert_equal(a, b, keys=("grid", "period", "names", "units", "frame", "provenance")):
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        for v, w in zip(one, other, strict=True):
            assert (v is None) == (w is None)
            if v is not None:
                assert v.dtype == w.dtype
                np.testing.assert_array_equal(v, w)
    for key in keys:
        assert getattr(a, key) == getattr(b, key)


def only(folder):
    return sorted(p.name for p in Path(folder).iterdir())


# -- round trips -----------------------------------------------------------------------------------


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
def test_no_values_no_answers_same_points(tmp_path, kind):
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


# -- interrupted writing ---------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError("no"), OSError(28, "No space left"), KeyError("k")])
def test_a_failure_in_the_middle_keeps_the_old_file(tmp_path, monkeypatch, error):
    path = tmp_path / "a.h5"
    make("ragged").save(path)
    old = path.read_bytes()
    write, calls = h5py.Dataset.__setitem__, []

    def fail(*args):
        calls.append(args)
        if len(calls) == 3:
            raise error
        write(*args)

    monkeypatch.setattr(h5py.Dataset, "__setitem__", fail)
    with pytest.raises(type(error)) as caught:
        make("uniform").save(path)
    if isinstance(error, OSError):
        assert f"cannot write {path}: No space left" in str(caught.value)
    assert path.read_bytes() == old
    assert only(tmp_path) == ["a.h5"]
    monkeypatch.undo()
    make("uniform").save(path)
    assert_equal(Fields.load(path), make("uniform"))


def in_another_process(code, *args):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_killed_process_keeps_the_old_file(tmp_path):
    path = tmp_path / "a.h5"
    make("ragged").save(path)
    old = path.read_bytes()
    done = in_another_process(
        """
        import os, sys
        import h5py, numpy as np
        from lno.data import Fields
        write, calls = h5py.Dataset.__setitem__, []
        def die(self, *args):
            write(self, *args)
            self.file.flush()
            calls.append(1)
            if len(calls) == 2:
                os.kill(os.getpid(), 9)
        h5py.Dataset.__setitem__ = die
        Fields(np.zeros((1, 9)), np.ones((3, 1, 4)), y=np.ones((3, 1, 4))).save(sys.argv[1])
        """,
        path,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert path.read_bytes() == old
    assert_equal(Fields.load(path), make("ragged"))


def test_a_disk_with_too_little_room_keeps_the_old_file(tmp_path):
    """A limit on the size of files makes real writes fail inside HDF5, as a full disk does."""
    path = tmp_path / "a.h5"
    make("ragged").save(path)
    old = path.read_bytes()
    done = in_another_process(
        """
        import resource, signal, sys
        import numpy as np
        from lno.data import Fields
        fields = Fields(np.zeros((1, 2)), np.random.default_rng(0).random((200, 1, 1000)))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        try:
            fields.save(sys.argv[1])
        except OSError as error:
            print(error, flush=True)
        """,
        path,
    )
    assert f"cannot write {path}" in done.stdout
    assert path.read_bytes() == old
    assert only(tmp_path) == ["a.h5"]
    assert done.returncode == 0, f"crashed with {done.returncode}: {done.stderr}"


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match="cannot write") as caught:
        make("uniform").save(tmp_path / "file" / "a.h5")
    assert str(tmp_path / "file" / "a.h5") in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match=r"cannot write .*a\.h5.*[Pp]ermission"):
        make("uniform").save(tmp_path / "a.h5")


def test_a_folder_in_the_place_of_the_file(tmp_path):
    (tmp_path / "a.h5").mkdir()
    with pytest.raises(OSError, match=r"cannot write .*a\.h5"):
        make("uniform").save(tmp_path / "a.h5")
    assert only(tmp_path) == ["a.h5"]


def test_missing_folders_are_made(tmp_path):
    make("uniform").save(tmp_path / "new" / "folder" / "a.h5")
    assert only(tmp_path / "new" / "folder") == ["a.h5"]


# -- damaged files ---------------------------------------------------------------------------------


def refuse(path, *, lazy=False, kinds=ValueError):
    """The message of the error that loading `path` must raise."""
    with pytest.raises(kinds) as caught:
        Fields.load(path, lazy=lazy)
    message = str(caught.value)
    assert len(message) >= 20
    assert str(path) in message
    return message


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


# -- hostile HDF5 ----------------------------------------------------------------------------------


@pytest.fixture
def tamper(tmp_path):
    """A valid file, changed by a function of the open h5py file."""

    def change(how, kind="ragged"):
        path = tmp_path / "a.h5"
        make(kind).save(path)
        with h5py.File(path, "r+") as file:
            how(file)
        return path

    return change


def put(name, values):
    def how(file):
        del file[name]
        file[name] = values

    return how


def mark(key, value):
    """Set an attribute, or a part of the meaning, which is JSON, to some text."""

    def how(file):
        if key in store.MEANING:
            parts = {k: json.dumps(v) for k, v in json.loads(file.attrs["meaning"]).items()}
            pairs = (f'"{k}": {v}' for k, v in {**parts, key: value}.items())
            file.attrs["meaning"] = f"{{{', '.join(pairs)}}}"
        else:
            file.attrs[key] = value

    return how


def forget(key):
    def how(file):
        if key in store.MEANING:
            meaning = json.loads(file.attrs["meaning"])
            del meaning[key]
            file.attrs["meaning"] = json.dumps(meaning)
        else:
            del file.attrs[key]

    return how


def drop(name):
    def how(file):
        del file[name]

    return how


def test_hdf5_of_another_program(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.zeros(3)
    assert "lno.fields" in refuse(tmp_path / "a.h5")


def test_an_older_version_says_how_to_convert_it(tamper):
    def age(file):
        meaning = json.loads(file.attrs.pop("meaning"))
        for key in ("grid", "period", "names", "units"):
            file.attrs[key] = json.dumps(meaning[key])
        file.attrs.update(version=1, frame=meaning["frame"], hash=file.attrs.pop("digest"))

    path = tamper(age)
    message = refuse(path)
    recipe = message[message.index("with h5py.File") :]
    exec(recipe, {"h5py": h5py, "json": json, "PATH": path})  # what a user would paste
    assert Fields.load(path).digest == make("ragged").digest


def test_a_newer_version(tamper):
    assert "pip install" in refuse(tamper(mark("version", store.VERSION + 1)))


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    "how",
    [
        *(forget(key) for key in ("format", "version", "digest", "frame", "names", "provenance")),
        mark("names", "{not json"),
        mark("names", '{"x": 5}'),
        mark("names", '{"x": ["a"]}'),
        mark("period", "[1.0]"),
        mark("period", "7"),
        mark("grid", "[3, 3]"),
        mark("grid", '"ab"'),
        mark("provenance", "[1]"),
        mark("version", "one"),
        mark("version", np.array([1, 2])),
        mark("format", np.array([1, 2])),
        drop("x"),
        drop("u"),
        put("x", np.array([b"text"], dtype="S4")),
        put("x", np.array(["text"], dtype=h5py.string_dtype())),
        put("x", np.zeros((4, 2), dtype=np.complex64)),
        put("x", np.zeros((4, 2), dtype=np.int32)),
        put("x", np.float32(3)),
        put("x", h5py.Empty("f4")),
        put("x_offsets", np.array([0, 1])),
        put("x_offsets", np.array([0])),
        put("x_offsets", np.array([], dtype=np.int64)),
        put("x_offsets", np.array([[0, 1]])),
        put("x_offsets", np.array([0.0, 1.0])),
        put("x_offsets", np.int64(3)),
    ],
)
def test_files_of_wrong_content(tamper, how, lazy):
    refuse(tamper(how), lazy=lazy)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    "how",
    [
        mark("names", "[1]"),
        mark("units", '"text"'),
        mark("grid", "[Infinity]"),
        mark("version", np.inf),
    ],
    ids=["names a list", "units a string", "infinite grid", "infinite version"],
)
def test_attributes_of_the_wrong_type(tamper, how, lazy):
    refuse(tamper(how), lazy=lazy)


def test_offsets_that_run_backwards(tamper):
    def backwards(file):
        file["u_offsets"][1] = file["u_offsets"][-1] + 5

    for lazy in (False, True):
        assert "u_offsets" in refuse(tamper(backwards), lazy=lazy)


def test_offsets_that_do_not_fit_the_points(tamper):
    def shift(file):
        offsets = file["u_offsets"][:]
        k = int(np.argmax(np.diff(offsets)))
        file["u_offsets"][k + 1] = offsets[k + 1] - 1

    for lazy in (False, True):
        assert "points as in x" in refuse(tamper(shift), lazy=lazy)


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_were_changed(tamper, kind):
    def change(file):
        file["y"][0] += 1

    assert "digest" in refuse(tamper(change, kind))

    def poison(file):
        file["u"][0] = np.nan

    message = refuse(tamper(poison, kind))
    assert "u, sample 0" in message
    assert "nan" in message


def test_meaning_that_was_changed(tamper):
    units = {"x": ["s", "km"], "u": ["Pa"], "y": ["m/s", ""]}
    assert "digest" in refuse(tamper(mark("units", json.dumps(units))))


@pytest.mark.parametrize("lazy", [False, True])
def test_links_out_of_the_file_are_not_followed(tamper, tmp_path, lazy):
    secret = tmp_path / "secret.h5"
    make("uniform").save(secret)

    def external(file):
        del file["u"]
        file["u"] = h5py.ExternalLink(str(secret), "/u")

    def soft(file):
        del file["u"]
        file["u"] = h5py.SoftLink("/x")

    def virtual(file):
        layout = h5py.VirtualLayout((6, 5, 1), "f4")
        layout[:] = h5py.VirtualSource(str(secret), "u", (6, 5, 1))
        del file["u"]
        file.create_virtual_dataset("u", layout)

    def outside(file):
        del file["u"]
        file.create_dataset("u", (6, 5, 1), "f4", external=[(str(secret), 0, 120)])

    def group(file):
        del file["u"]
        file.create_group("u")

    for how in (external, soft, virtual, outside, group):
        assert "plain dataset" in refuse(tamper(how, "uniform"), lazy=lazy)


@pytest.mark.parametrize("lazy", [False, True])
def test_a_failed_load_closes_its_file(tamper, lazy):
    """HDF5 answers from a file it still has open, whatever was since written in its place."""
    path = tamper(mark("names", "{not json"))
    with pytest.raises(ValueError, match=r"a\.h5") as caught:  # which keeps the failed frames alive
        Fields.load(path, lazy=lazy)
    opened = h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)
    still = [
        f for f in h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)
        if f.name == os.fsencode(path)
    ]  # fmt: skip
    assert not still, f"{opened} files are open after {caught.value}"


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


def test_ctrl_c_while_hdf5_writes_does_not_crash_it(tmp_path, monkeypatch):
    class Interrupted(io.FileIO):
        calls = 0

        def write(self, data):
            Interrupted.calls += 1
            if Interrupted.calls == 3:
                raise KeyboardInterrupt
            return super().write(data)

    class Guarded(store._Guarded, Interrupted):
        pass

    path = tmp_path / "a.h5"
    make("ragged").save(path)
    old = path.read_bytes()
    monkeypatch.setattr(store, "_Guarded", Guarded)
    with pytest.raises(KeyboardInterrupt):
        make("uniform").save(path)
    assert Interrupted.calls >= 3
    assert path.read_bytes() == old and only(tmp_path) == ["a.h5"]
