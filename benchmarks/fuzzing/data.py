"""Attacks on data files (HDF5)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from fuzzing import models, mutate
from fuzzing.engine import CHANGED, SAME, WRITTEN, Attack, Attacks, Section
from fuzzing.mutate import Random, pick
from lno import Fields
from lno.commands.info import describe_fields

Tamper = Callable[[h5py.File, Random, Path], None]


def prepare(folder: Path) -> None:
    """Small data of each layout in files."""
    models.waves().save(folder / "shared.h5")
    random = np.random.default_rng(0)
    x, u = random.random((5, 7, 2)), random.random((5, 7, 1))
    meaning = {"names": {"x": ["x", "h"], "u": ["p"]}, "period": [2.0, None], "space": 1}
    Fields(x, u, x[:, :4] + 1, u[:, :4], provenance={"a": [1]}, **meaning).save(folder / "own.h5")
    sizes = (6, 4, 9)
    xs = [random.random((n, 2)) for n in sizes]
    Fields(
        xs,
        [random.random((n, 2)) for n in sizes],
        y=[random.random((n, 1)) for n in sizes],
        parameters=random.random((3, 2)),
        weights=[np.ones(n) for n in sizes],
        background=[np.zeros((n, 1)) for n in sizes],
        cells=[np.array([[0, 1, 2]] * k) for k in (1, 2, 3)],
        grid=(4, 4),
        grid_index=[np.arange(n) for n in sizes],
    ).save(folder / "ragged.h5")


# -- changes through h5py: what an attacker, or a careless script, would make ----------------------


def attribute(file: h5py.File, random: Random, work: Path) -> None:
    """An attribute that is missing, of another type, or has another value."""
    name = pick(random, list(file.attrs))
    kind = int(random.integers(4))
    if kind == 0:
        del file.attrs[name]
    elif kind == 1 and name in ("meaning", "provenance"):
        content = mutate.change({"": json.loads(file.attrs[name])}, random)
        file.attrs[name] = mutate.dumps(content.get("", content))
    elif kind == 2:
        odd = (np.zeros(3), np.float32(2), b"\xff\xfe", "", "2", -1, 2**40, np.nan, "[" * 5000)
        file.attrs[name] = pick(random, odd)
    else:
        more = (h5py.Empty("f"), np.array([[1]]), "null", "{}", "[]", True, 2, 3, 1)
        file.attrs[name] = pick(random, more)


def values(file: h5py.File, random: Random, work: Path) -> None:
    """Another value in a dataset."""
    dataset = file[pick(random, list(file))]
    flat = dataset[...]
    at = int(random.integers(flat.size))
    new = (1.5, -1.0, np.nan, np.inf, 1e300) if flat.dtype.kind == "f" else (0, -1, 1, 10**9, 2**62)
    with np.errstate(over="ignore"):
        flat.flat[at] = pick(random, new) if flat.flat[at] not in new else flat.flat[at] + 7
    dataset[...] = flat


def replace(file: h5py.File, random: Random, work: Path) -> None:
    """A dataset of another shape or type."""
    name = pick(random, list(file))
    old = file[name][...]
    del file[name]
    text = np.array(["a", "b"], dtype=h5py.string_dtype())
    new = (
        old[:-1],
        old[None],
        old.reshape(-1),
        old[..., None],
        np.zeros((0, *old.shape[1:]), old.dtype),
        np.concatenate([old, old]),
        old.astype(">f8"),
        old.astype("i1"),
        old.astype("c16"),
        old.astype(bool),
        text,
        np.float64(3),
        h5py.Empty("f8"),
        old.astype([("a", "f4")]),
        old.astype("f2"),
    )
    file[name] = new[int(random.integers(len(new)))]


def offsets(file: h5py.File, random: Random, work: Path) -> None:
    """Offsets that do not fit, or that appear where there were none."""
    names = [n for n in file if n.endswith("_offsets")] or ["x_offsets", "u_offsets"]
    name = pick(random, names)
    old = file[name][...] if name in file else np.array([0, 1, len(file[name[0]])])
    if name in file:
        del file[name]
    new = old.copy()
    new[int(random.integers(len(new)))] += int(pick(random, (-1, 1, 2**40, -(2**40))))
    file[name] = pick(random, (new, old[::-1], old[:1], old[:0], old[:, None], old * 2, old + 1))


def unallocated(file: h5py.File, random: Random, work: Path) -> None:
    """A dataset that claims much and stores nothing, or a part."""
    name = pick(random, [n for n in file if not n.endswith("_offsets")])
    shape, dtype = file[name].shape, file[name].dtype
    del file[name]
    many = int(pick(random, (10**4, 10**7, 10**9, 10**12, 2**60 // 8)))
    axis = int(random.integers(len(shape)))
    claimed = tuple(many if k == axis else n for k, n in enumerate(shape))
    if random.integers(3) == 0:
        file.create_dataset(name, shape=claimed, dtype=dtype)  # contiguous
        return
    chunks = tuple(min(n, 1000) for n in claimed)
    options = pick(random, ({}, {"compression": "gzip"}, {"fletcher32": True}))
    dataset = file.create_dataset(name, shape=claimed, dtype=dtype, chunks=chunks, **options)
    if random.integers(2):
        dataset[tuple(slice(0, n) for n in chunks)] = np.ones(chunks, dtype)


def links(file: h5py.File, random: Random, work: Path) -> None:
    """A link, a group, or a dataset whose values are elsewhere, in the place of a dataset."""
    name = pick(random, list(file))
    dataset = file[name]
    shape, dtype, kind = dataset.shape, dataset.dtype, int(random.integers(7))
    if kind == 0:
        del file[name]
        file[name] = h5py.SoftLink(pick(random, ("/x", "/nowhere", f"/{name}")))
    elif kind == 1:
        del file[name]
        target = pick(random, ("other.h5", "/dev/zero", "/etc/passwd", "fifo"))
        if target == "other.h5":
            with h5py.File(work / target, "w") as other:
                other[name] = np.zeros(shape, dtype)
        file[name] = h5py.ExternalLink(target, name)
    elif kind == 2:
        del file[name]
        file.create_group(name)["x"] = 1.0
    elif kind == 3:
        del file[name]
        layout = h5py.VirtualLayout(shape, dtype)
        layout[...] = h5py.VirtualSource(pick(random, (".", "other.h5")), "u", shape, dtype)
        file.create_virtual_dataset(name, layout)
    elif kind == 4:
        del file[name]
        size = int(np.prod(shape)) * dtype.itemsize
        files = [(pick(random, ("/dev/zero", "/etc/passwd", "raw.bin")), 0, size)]
        file.create_dataset(name, shape=shape, dtype=dtype, external=files)
    elif kind == 5:
        file.move(name, pick(random, (f"{name}2", "parameters2")))
    else:
        file[pick(random, ("parameters_offsets", "y_offsets", "extra"))] = dataset[...]


def packing(file: h5py.File, random: Random, work: Path) -> None:
    """Values that are packed otherwise, or extremely well."""
    name = pick(random, [n for n in file if not n.endswith("_offsets")])
    old, kind = file[name][...], int(random.integers(5))
    del file[name]
    if kind == 0:
        file.create_dataset(name, data=old, compression="lzf")
    elif kind == 1:
        file.create_dataset(name, data=old, scaleoffset=3)
    elif kind == 2:
        file.create_dataset(name, data=old, chunks=tuple(1 for _ in old.shape), fletcher32=True)
    elif kind == 3:
        file.create_dataset(name, data=old, maxshape=tuple(None for _ in old.shape), chunks=True)
    else:
        shape = (*old.shape[:-2], int(pick(random, (10**6, 5 * 10**7))), 1)
        few = {"chunks": (*(1 for _ in old.shape[:-2]), 10**6, 1), "compression": "gzip"}
        file.create_dataset(name, shape=shape, dtype="f4", fillvalue=0, **few)
        if shape[-2] <= 10**6:
            file[name][...] = np.zeros(shape, "f4")


TAMPER: dict[str, Tamper] = {
    "attribute": attribute,
    "values": values,
    "shape or type": replace,
    "offsets": offsets,
    "nothing stored": unallocated,
    "links": links,
    "packing": packing,
}
KINDS = ("bit flip", "bit flip", "bytes overwritten", "cut or extended", *TAMPER)


def attacks(folder: Path) -> Attacks:
    """The function that makes attack k on a data file."""
    bases = sorted(folder.glob("*.h5"))
    whole = [path.read_bytes() for path in bases]
    digests = [Fields.load(path).digest for path in bases]

    def attack(k: int, random: Random, work: Path) -> Attack:
        which, path = k % len(bases), work / "data.h5"
        kind = KINDS[(k // len(bases)) % len(KINDS)]
        lazy = kind not in ("values", "attribute") and bool(random.integers(2))
        if kind in TAMPER:
            shutil.copy(bases[which], path)
            try:
                with h5py.File(path, "r+") as file:
                    TAMPER[kind](file, random, work)
            except (TypeError, ValueError, OSError, RuntimeError):
                path.write_bytes(whole[which][:-1])  # h5py itself cannot write such a file
        else:
            change = {"bit flip": mutate.flip, "bytes overwritten": mutate.scramble}
            path.write_bytes(change.get(kind, mutate.resize)(whole[which], random))

        def act() -> str:
            fields = Fields.load(path, lazy=lazy)
            fields._digest = None  # that of the values that were read, not the one in the file
            same = fields.digest == digests[which]
            describe_fields(fields)
            fields.batch(np.arange(len(fields)))
            if same or not lazy or kind not in TAMPER:
                return SAME if same else CHANGED
            # Checksums fit, so nothing is damaged; a lazy reader does not check the digest.
            try:
                Fields.load(path)
            except ValueError as error:
                return WRITTEN if "digest" in str(error) else CHANGED
            return CHANGED

        return Attack(f"{kind}, read lazily" if lazy else kind, act, path)

    return attack


SECTION = Section("data", 1200, prepare, attacks)
