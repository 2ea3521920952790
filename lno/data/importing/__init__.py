"""From files of other programs to `Fields`, with all that was understood of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lno.config import did_you_mean
from lno.data import columns
from lno.data.fields import Fields
from lno.data.foreign import ForeignFileError
from lno.data.importing.assemble import Piece, assemble, join, take_logarithm, take_remainder
from lno.data.importing.dates import with_date_parts
from lno.data.importing.gaps import (
    Whole,
    in_grid_order,
    without_flat_coordinates,
    without_gaps,
)
from lno.data.importing.guesses import guess, period_of
from lno.data.importing.names import as_in
from lno.data.importing.parameter_tables import with_parameters
from lno.data.importing.rows import is_table, split_rows
from lno.data.importing.understood import notes_on, table_of
from lno.data.imports import Source, expand, open_files
from lno.data.imports.source import require_known
from lno.data.mapping import FILE, Layout, Roles, as_layout
from lno.version import __version__

ROLES = tuple(Roles.__dataclass_fields__)
LAYOUT = tuple(Layout.__dataclass_fields__)
LISTED = 20  # files, that the provenance names


@dataclass(frozen=True)
class Imported:
    """Data that were imported.

    Args:
        fields: the data.
        table: what was understood, a row for each variable: role, name, shape, axes, values.
        notes: what was assumed, left out or changed, in sentences.
    """

    fields: Fields
    table: list[list[str]]
    notes: list[str]


def import_files(paths: str | Path | Sequence[str | Path], **how: Any) -> Imported:
    """Import files; the other arguments are those of `Fields.from_files`."""
    return import_sources(open_files(paths), how, _origin(expand(paths)))


def import_sources(
    sources: Sequence[Source], how: Mapping[str, Any], origin: Mapping[str, Any]
) -> Imported:
    """Import what files, or objects of other libraries, hold.

    Args:
        sources: what they hold; more samples of the same kind in each.
        how: roles and layout, as in `Fields.from_files`.
        origin: for the provenance.
    """
    unknown = [key for key in how if key not in (*ROLES, *LAYOUT)]
    if unknown:
        hint = did_you_mean(unknown[0], (*ROLES, *LAYOUT))
        raise TypeError(f"no argument {unknown[0]!r}{hint}; expected {', '.join(ROLES + LAYOUT)}")
    given = Roles.parse({key: how[key] for key in ROLES if how.get(key) is not None})
    tables = [t for t in given.parameters if t.variable.endswith(".csv")]
    inside = replace(given, parameters=tuple(t for t in given.parameters if t not in tables))
    asked = as_layout(how)
    dated = [term.variable for term in inside.parameters]
    sources = [with_date_parts(source, dated) for source in sources]
    inside, asked = as_in(sources[0], inside, asked)
    roles, layout = guess(sources[0], inside, asked, len(sources) > 1)
    for source in sources[1:]:
        _require_same(source, roles, layout)
    in_rows = is_table(sources[0], roles, layout)
    parts = split_rows(sources, roles, layout) if in_rows else list(sources)
    inner = replace(layout, sample=FILE) if in_rows else layout
    piece = join([assemble(part, roles, inner) for part in parts], parts)
    piece, flat = without_flat_coordinates(piece) if not inside.positions else (piece, [])
    table = table_of(sources[0], roles, layout, piece, (inside, asked))
    paired = []
    for term in tables:
        piece, rows, note = with_parameters(piece, term, parts, layout)
        table += rows
        paired.append(note)
    notes = list(dict.fromkeys(note for part in parts for note in part.notes))
    notes += [*flat, *notes_on(sources, layout, piece, in_rows), *paired]
    used = [name for labels in piece.names.values() for name in labels]
    require_known("units", layout.units or {}, [*used, *piece.seen.axes])
    require_known("log", layout.log, used)
    try:
        constants = piece.names.get("parameters", [])
        piece, remarks = take_remainder(piece, layout.period or {})
        piece, logged = take_logarithm(piece, layout.log)
        whole = without_gaps(piece)
        if whole.grid_index is None:
            whole = in_grid_order(whole)
        period, assumed = _period(whole.piece, layout, constants)
        provenance = {**origin, "arguments": _plain(how), **logged, "lno": __version__}
        fields = _fields(whole, period, {"import": provenance})
        if layout.split:
            assumed.append(_named_split(fields, layout.split))
    except ValueError as error:
        raise ForeignFileError(f"{sources[0].name}: {error}") from error
    return Imported(fields, table, [*notes, *whole.notes, *remarks, *assumed])


def _fields(whole: Whole, period: list[float | None], provenance: dict[str, Any]) -> Fields:
    piece = whole.piece
    kept = [key for key in ("x", "u", "y", "parameters") if key in piece.names]
    return Fields(
        **piece.columns,  # type: ignore[arg-type]
        parameters=piece.parameters,
        grid=piece.grid,
        grid_index=whole.grid_index,
        space=piece.space,
        period=period if any(p is not None for p in period) else None,
        names={key: piece.names[key] for key in kept},
        units={key: piece.units[key] for key in kept},
        provenance=provenance,
    )


def _named_split(fields: Fields, split: tuple[int, ...]) -> str:
    """Keep the split that the user names with the data; and say so."""
    if sum(split) > len(fields):
        listed = " + ".join(map(str, split))
        raise ValueError(
            f"split: expected numbers that add up to at most {len(fields)}, the samples that there "
            f"are, got {listed} = {sum(split)}: make one of them smaller"
        )
    fields.provenance["split"] = list(split)
    kinds = ("train", "validation", "test") if len(split) == 3 else ("train", "test")
    parts = ", ".join(f"{n} {kind}" for n, kind in zip(split, kinds, strict=True))
    rest = len(fields) - sum(split)
    return f"split in this order: {parts} samples" + f"; the last {rest} are not used" * (rest > 0)


def _plain(how: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that were given, for the provenance."""
    given = {key: value for key, value in how.items() if value is not None and value != []}
    return {
        key: value if isinstance(value, str | dict) else [str(v) for v in value]
        for key, value in given.items()
    }


def _period(
    piece: Piece, layout: Layout, parameters: Sequence[str]
) -> tuple[list[float | None], list[str]]:
    """The period of each coordinate, and which were assumed; parameters may have one as well."""
    given, names = dict(layout.period or {}), piece.names["x"]
    require_known("period", given, [*names, *parameters])
    period: list[float | None] = []
    notes = []
    x = columns.sample(piece.columns["x"], 0)
    for k, name in enumerate(names):
        found = None if name in given or k >= piece.space else period_of(name, x[:, k])
        if found is not None:
            notes.append(f"{name} goes once around: period {found:g}")
        period.append(given.get(name, found))
    return period, notes


def _require_same(source: Source, roles: Roles, layout: Layout) -> None:
    """Raise where a further file lacks a variable that the first one has."""
    for role, terms in roles.each():
        for term in terms:
            source.find(term.variable, role)
    for name in (*layout.axes, *([layout.time] if layout.time else [])):
        source.find(name, "axes")


def _origin(files: Sequence[Path]) -> dict[str, Any]:
    """The names of the files and a digest of what is in them."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    named = [file.name for file in files[:LISTED]]
    more = {"number of files": len(files)} if len(files) > LISTED else {}
    return {"files": named, **more, "sha256": digest.hexdigest()}
