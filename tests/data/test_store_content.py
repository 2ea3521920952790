"""Data files whose content was changed: nothing is believed when reading."""

import json
import os

import h5py
import numpy as np
import pytest
from stored import KINDS, make, mark, refuse

from lno.data import Fields, store


def put(name, values):
    def how(file):
        del file[name]
        file[name] = values

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
