"""Joining data files that hold ranges of one sequence of samples.

The result is bit-for-bit the data set that one run would have made. Values go from file to file in
small pieces: memory holds one piece, however large the files are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from lno.config import require_count, require_type
from lno.data import Fields, columns
from lno.data.columns import Column, Rows
from lno.data.fields import COLUMNS, INDEX_COLUMNS
from lno.files import owning
from lno.problems.attempts import in_words, joined_provenance
from lno.problems.make import require_file_name

SAME = ("problem", "parameters", "seed", "device")  # what all files must have in common


@dataclass(frozen=True)
class Piece:
    """A data file and the samples that it holds."""

    path: Path
    fields: Fields
    samples: range


def join_files(paths: Sequence[str | Path], out: str | Path) -> Fields:
    """Write the samples of several files, which `make_file` wrote, to one file.

    Args:
        paths: the files, in any order. Together they must hold consecutive samples of one problem
            with the same parameters, seed and kind of device, made by one version of its generator.
        out: the file to write, none of `paths`.

    Returns:
        The data, whose values stay in the file until they are used.
    """
    if len(paths) < 2:
        raise ValueError(f"expected at least two files to join, got {len(paths)}")
    out = require_file_name(out)
    if out.resolve() in (Path(path).resolve() for path in paths):
        raise ValueError(f"{out} is one of the files to join: write the result to another file")
    pieces = sorted((_read(Path(path)) for path in paths), key=lambda piece: piece.samples.start)
    for other in pieces[1:]:
        _require_same_kind(pieces[0], other)
    _require_consecutive(pieces)
    for piece in pieces:
        _require_unchanged(piece)
    whole = _concatenate(pieces)
    with owning(out):
        whole.save(out)
    return Fields.load(out, lazy=True)


def _read(path: Path) -> Piece:
    """Open a file; an error unless it says which samples it holds."""
    fields = Fields.load(path, lazy=True)
    record = fields.provenance
    lacks = [key for key in (*SAME, "first", "digest") if key not in record]
    if lacks:
        raise ValueError(
            f"{path}: expected a file of 'lno data make', whose provenance says which samples it "
            f"holds; it has no {', '.join(lacks)}. Make the data again: files of older versions, "
            "published data and your own cannot be joined."
        )
    try:
        require_count("first", record["first"], 10**9, least=0)
        require_count("version", record.get("version", 1), 10**9)
        require_type("retried", record.get("retried", []), list[int])
        require_type("redrawn", record.get("redrawn", {}), dict[str, int])
        if not all(key.isdecimal() for key in record.get("redrawn", {})):
            raise ValueError(f"redrawn: expected indices of samples, got {record['redrawn']}")
    except ValueError as error:
        raise ValueError(f"{path}: damaged provenance: {error}") from error
    return Piece(path, fields, range(record["first"], record["first"] + len(fields)))


def _require_same_kind(first: Piece, other: Piece) -> None:
    """Raise unless two files hold samples of one sequence, in the same columns."""

    def refuse(what: str, one: Any, two: Any) -> None:
        if one != two:
            raise ValueError(
                f"{other.path} does not belong to {first.path}: {what} {two!r}, not {one!r}. Join "
                "files that were made with the same settings."
            )

    one, two = first.fields.provenance, other.fields.provenance
    refuse("it has the problem", one["problem"], two["problem"])
    if one.get("version") != two.get("version"):
        raise ValueError(
            f"{other.path} does not belong to {first.path}: its generator has {_version(two)}, not "
            f"{_version(one)}, so samples may differ. Make the older files again."
        )
    a, b = ({"parameters": r["parameters"]} for r in (one, two))
    if isinstance(one["parameters"], Mapping) and isinstance(two["parameters"], Mapping):
        a, b = dict(one["parameters"]), dict(two["parameters"])
    for key in a | b:
        refuse(f"it was made with {key} =", a.get(key), b.get(key))
    refuse("it was made with the seed", one["seed"], two["seed"])
    refuse("it was solved on the device", one["device"], two["device"])
    for key, value in first.fields.meaning().items():
        refuse(f"its {key} is", value, other.fields.meaning().get(key))
    refuse("its columns are", _kinds(first.fields), _kinds(other.fields))


def _version(record: Mapping[str, Any]) -> str:
    return f"version {record['version']}" if "version" in record else "no version"


def _kinds(fields: Fields) -> dict[str, str]:
    """The columns that there are, with type and number of channels."""
    found = {name: fields.column(name) for name in (*COLUMNS, *INDEX_COLUMNS)}
    kinds = {k: f"{c.dtype}, {columns.channels(c)}" for k, c in found.items() if c is not None}
    if fields.parameters is not None:
        kinds["parameters"] = f"{fields.parameters.dtype}, {fields.parameters.shape[1]}"
    return kinds


def _require_consecutive(pieces: Sequence[Piece]) -> None:
    """Raise where samples are missing or duplicated; the error lists all of them."""
    wrong, before = [], pieces[0]
    for piece in pieces[1:]:
        end, start = before.samples.stop, piece.samples.start
        if start > end:
            wrong.append(
                f"missing: {in_words(range(end, start))}, between {before.path} and {piece.path}; "
                f"make the missing ones with --first {end} --samples {start - end}"
            )
        elif start < end:
            twice = range(start, min(end, piece.samples.stop))
            wrong.append(
                f"duplicated: {in_words(twice)}, in {before.path} and in {piece.path}; leave one "
                "of the files out, or make it again without them"
            )
        before = max(before, piece, key=lambda one: one.samples.stop)
    if wrong:
        record = pieces[0].fields.provenance
        raise ValueError(
            "expected files that hold consecutive samples, each once, of "
            f"'lno data make {record['problem']} --seed {record['seed']}' with the same settings.\n"
            + "\n".join(wrong)
        )


def _require_unchanged(piece: Piece) -> None:
    """Raise unless the values, and their order, are those that were made."""
    values = piece.fields.subset(np.arange(len(piece.fields)))  # forgets the digest that was stored
    if values.digest != piece.fields.provenance["digest"]:
        raise ValueError(
            f"{piece.path}: its samples were selected, reordered or changed after they were made, "
            "so it is not known which they are. Make them again."
        )


def _concatenate(pieces: Sequence[Piece]) -> Fields:
    """All samples; their values stay in the files."""
    parts, counts = [piece.fields for piece in pieces], [len(piece.samples) for piece in pieces]
    joined: dict[str, Any] = {}
    for name in (*COLUMNS, *INDEX_COLUMNS):
        present = [c for c in (part.column(name) for part in parts) if c is not None]
        if present:
            joined[name] = _chain(present, counts)
    numbers = [part.parameters for part in parts if part.parameters is not None]
    if numbers:
        joined["parameters"] = np.concatenate(numbers)
    samples = range(pieces[0].samples.start, pieces[-1].samples.stop)
    whole = parts[0].replace(**joined)
    record = joined_provenance([part.provenance for part in parts], samples)
    whole.provenance = {**record, "digest": whole.digest}
    return whole


def _chain(present: Sequence[Column], counts: Sequence[int]) -> Column:
    rows = [column for column in present if isinstance(column, Rows)]
    if len(rows) == len(present) and len({column.shape[1:] for column in rows}) == 1:
        return Rows(Chain(rows), np.arange(sum(counts)))
    return columns.concatenate(present, counts)  # shared by all samples, or of different sizes


class Chain:
    """Samples (s, n, c) of several files, one after the other, read when they are asked for."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts]).tolist()
        self.shape, self.dtype = (self.ends[-1], *parts[0].shape[1:]), parts[0].dtype

    def __len__(self) -> int:
        return self.ends[-1]

    def __getitem__(self, index: int | slice) -> np.ndarray:
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            bounds = [start, *(end for end in self.ends if start < end < stop), stop]
            return np.concatenate([self._within(a, b) for a, b in pairwise(bounds)])
        return self._within(index, index + 1)[0]

    def _within(self, start: int, stop: int) -> np.ndarray:
        """Samples that one part holds."""
        k = bisect_right(self.ends, start)
        before = self.ends[k - 1] if k else 0
        return np.asarray(self.parts[k][start - before : stop - before])
