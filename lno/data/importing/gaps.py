"""Points without a value: left out, while samples remember where in the grid the others lie."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lno.data import columns
from lno.data.columns import Column
from lno.data.foreign import ForeignFileError
from lno.data.grids import find_grid
from lno.data.importing.assemble import Piece


@dataclass(frozen=True)
class Whole:
    """Samples without gaps.

    Args:
        piece: the samples.
        grid_index: where in the grid their points lie, if some of it are missing.
        notes: what was left out, in words.
    """

    piece: Piece
    grid_index: Any = None
    notes: tuple[str, ...] = ()


def without_flat_coordinates(piece: Piece) -> tuple[Piece, list[str]]:
    """Leave out the third coordinate of clouds in a plane, which programs write anyway."""
    x = piece.columns["x"]
    values = x.flat if isinstance(x, columns.Ragged) else np.asarray(x)
    if piece.grid is not None or piece.space != 3 or np.isnan(values).any():
        return piece, []
    low, high = (f(values.reshape(-1, values.shape[-1]), axis=0) for f in (np.min, np.max))
    flat = [k for k in range(3) if low[k] == high[k]]
    if len(flat) != 1:
        return piece, []
    [k] = flat
    kept = [j for j in range(values.shape[-1]) if j != k]
    inner = values[..., kept]
    whole = columns.Ragged(inner, x.starts, x.stops) if isinstance(x, columns.Ragged) else inner
    names, units = (
        {**labels, "x": [labels["x"][j] for j in kept]} for labels in (piece.names, piece.units)
    )
    note = f"{piece.names['x'][k]} is {low[k]:g} at all points and was left out"
    parts = {**piece.columns, "x": whole}
    return replace(piece, columns=parts, names=names, units=units, space=2), [note]


def without_gaps(piece: Piece) -> Whole:
    """Leave out points where an output or a position is NaN, and samples that have no others.

    Raises where an input is NaN at a point that stays.
    """
    there = _there(piece)
    sizes = np.array([int(mask.sum()) for mask in there])
    total = sum(len(mask) for mask in there)
    missing, empty = total - int(sizes.sum()), np.flatnonzero(sizes == 0)
    if len(empty) == piece.count:
        raise ForeignFileError("no point of any sample has a value: all outputs are NaN")
    notes = []
    if len(empty):
        listed = ", ".join(map(str, empty[:10])) + ", …" * (len(empty) > 10)
        plural = "s" * (len(empty) > 1)
        notes.append(f"left out {len(empty)} sample{plural} without any value: {listed}")
        kept = np.flatnonzero(sizes)
        there, piece = [there[k] for k in kept], _subset(piece, kept)
    if missing == 0:
        _require_inputs(piece)
        return Whole(piece)
    notes.append(
        f"left out {missing:,} of {total:,} points ({100 * missing / total:.1f} %) without a value"
    )
    same = all(np.array_equal(mask, there[0]) for mask in there)
    if same and there[0].all():  # only whole samples were missing
        _require_inputs(piece)
        return Whole(piece, None, tuple(notes))
    chosen = [np.flatnonzero(mask) for mask in there]
    parts: dict[str, Column] = {}
    for key, column in piece.columns.items():
        if key == "cells":
            parts[key], lost = _renumbered(column, there, same)
            notes += [f"left out {lost:,} cells with such a corner"] if lost else []
        elif same and isinstance(column, np.ndarray):
            parts[key] = column[..., chosen[0], :]
        else:
            arrays = [columns.sample(column, k)[index] for k, index in enumerate(chosen)]
            parts[key] = columns.stack(arrays)
    grid_index = None
    if piece.grid is not None:
        places = [index[:, None] for index in chosen]
        grid_index = places[0] if same else columns.stack(places)
    left = replace(piece, columns=parts)
    _require_inputs(left)
    return Whole(left, grid_index, tuple(notes))


def in_grid_order(whole: Whole) -> Whole:
    """With the grid that the points form, if all samples share them and they form one."""
    piece = whole.piece
    x = piece.columns["x"]
    alone = piece.grid is None and "cells" not in piece.columns
    found = find_grid(np.asarray(x)) if alone and columns.is_shared(x) else None
    if found is None:
        return whole
    shape, order = found
    moved: dict[str, Column] = {
        key: np.asarray(column)[..., order, :] for key, column in piece.columns.items()
    }
    how = "" if np.array_equal(order, np.arange(len(order))) else ", and were put in its order"
    note = f"the points form a grid {' × '.join(map(str, shape))}{how}"
    return replace(
        whole, piece=replace(piece, columns=moved, grid=shape), notes=(*whole.notes, note)
    )


def _there(piece: Piece) -> list[np.ndarray]:
    """For each sample which points have a value."""
    parts = piece.columns
    key = "y" if "y" in parts else "u"
    masks = []
    for k in range(piece.count):
        mask = ~np.isnan(columns.sample(parts["x"], k)).any(1)
        if key in parts:
            absent = np.isnan(columns.sample(parts[key], k))
            mask &= ~(absent.any(1) if key == "y" else absent.all(1))
        masks.append(mask)
    return masks


def _require_inputs(piece: Piece) -> None:
    """Raise where an input, a weight or a background is NaN at a point that has an output."""
    for key, role in (("u", "inputs"), ("background", "background"), ("weights", "weights")):
        column = piece.columns.get(key)
        if column is None:
            continue
        labels = piece.names.get(key, [key])
        shared = columns.is_shared(column)
        found = [
            (k, *np.argwhere(absent)[0], int(absent.sum()))
            for k, values in enumerate(columns.samples(column, piece.count))
            if (absent := np.isnan(values)).any()
        ]
        if found:
            k, point, channel, _ = found[0]
            place = ", ".join(
                f"{name} = {value:g}"
                for name, value in zip(
                    piece.names["x"], columns.sample(piece.columns["x"], k)[point], strict=True
                )
            )
            where = "" if shared else f"sample {k}, "
            raise ForeignFileError(
                f"{role}: {labels[channel]!r} is NaN at {sum(f[3] for f in found):,} points that "
                f"have outputs, first at {where}{place}. Fill them, leave {labels[channel]!r} out, "
                "or set the outputs to NaN there"
            )
    if piece.parameters is not None and np.isnan(piece.parameters).any():
        k, p = np.argwhere(np.isnan(piece.parameters))[0]
        raise ForeignFileError(
            f"parameters: {piece.names['parameters'][p]!r} is NaN in sample {k}: fill it, or leave "
            "the sample out"
        )


def _subset(piece: Piece, kept: np.ndarray) -> Piece:
    parts = {key: columns.take(column, kept) for key, column in piece.columns.items()}
    parameters = None if piece.parameters is None else piece.parameters[kept]
    return replace(piece, columns=parts, parameters=parameters, count=len(kept))


def _renumbered(cells: Column, there: list[np.ndarray], same: bool) -> tuple[Column, int]:
    """Cells of the points that are left, and how many others there were."""
    found, lost = [], 0
    shared = columns.is_shared(cells) and same
    for k, mask in enumerate(there[:1] if shared else there):
        number = np.cumsum(mask) - 1
        here = columns.sample(cells, k)
        whole = mask[here].all(1)
        lost += int((~whole).sum())
        found.append(number[here[whole]])
    return (found[0] if shared else columns.stack(found)), lost
