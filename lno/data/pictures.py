"""Pictures of the samples of a data set, on their real geometry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lno.data.checks import described, is_texts
from lno.drawing import Nodes, Panel, Picture, View, connected, figure_of, has_mesh, nodes_of
from lno.text import with_unit

if TYPE_CHECKING:
    from lno.data.fields import Fields

Shown = Mapping[str, Sequence[int]]  # which channels of u and of y


def sample_picture(
    fields: Fields, k: int, channels: Sequence[str] | None, at: Mapping[str, float] | None
) -> Picture:
    """The mesh of a sample and its channels, side by side; see `Fields.plot`."""
    nodes = connected(nodes_of_sample(fields, k, at=at))
    panels = sample_panels(fields, k, nodes, _chosen(fields, channels))
    if not panels:
        raise ValueError("nothing to draw: the data have positions only")
    return figure_of([panels], slice_title(f"sample {k % len(fields)}", nodes))


def sample_panels(fields: Fields, k: int, nodes: Nodes, shown: Shown) -> list[Panel]:
    """The mesh of a sample, if there is more to see than a regular grid, and some channels."""
    panels = [Panel("mesh", nodes, None)] if has_mesh(nodes) else []
    sample = fields[k]
    for key, values in (("u", sample.u), ("y", sample.y)):
        if values is None:
            continue
        for c in shown[key]:
            name = with_unit(fields.names[key][c], fields.units[key][c])
            if key == "y" or fields.same_points:
                panels.append(Panel(name, nodes, values[:, c]))
            elif len(nodes.names) == fields.space:
                seen = observed_nodes(fields, sample.x)
                panels.append(Panel(name, seen, values[:, c], domain=nodes))
    return panels


def nodes_of_sample(
    fields: Fields, k: int, view: View | None = None, at: Mapping[str, float] | None = None
) -> Nodes:
    """The query points of a sample where they lie in space."""
    sample = fields[k]
    return nodes_of(
        fields.geometry_of(k),
        position_names(fields),
        cells=sample.cells,
        grid=fields.grid,
        grid_index=sample.grid_index,
        view=view,
        at=at,
        units=position_units(fields),
    )


def observed_nodes(fields: Fields, x: np.ndarray) -> Nodes:
    """Observed points (n, d) where they lie in space."""
    d = fields.space
    return nodes_of(x[:, :d], fields.names["x"][:d], units=fields.units["x"][:d])


def position_names(fields: Fields) -> list[str]:
    """The names of what `Fields.geometry_of` gives."""
    if fields.geometry is None:
        return fields.names["x"][: fields.space]
    [names] = fields.geometry.values()
    return list(names)


def position_units(fields: Fields) -> list[str]:
    """The units of what `Fields.geometry_of` gives."""
    if fields.geometry is None:
        return fields.units["x"][: fields.space]
    [(key, names)] = fields.geometry.items()
    known = dict(zip(fields.names[key], fields.units[key], strict=True))
    return [known[name] for name in names]


def first_and_last(fields: Fields, key: str) -> list[int]:
    """Of the channels of u or y, but those that hold the positions of nodes."""
    names, positions = fields.names[key], (fields.geometry or {}).get(key, ())
    others = [c for c, name in enumerate(names) if name not in positions]
    return sorted({others[0], others[-1]} if others else set())


def slice_title(title: str, nodes: Nodes) -> str:
    """With the slice of three dimensions that a picture shows."""
    return f"{title}, {nodes.part}" if nodes.part else title


def _chosen(fields: Fields, channels: Sequence[str] | None) -> dict[str, list[int]]:
    """The channels to draw, by their names."""
    if channels is None:
        return {key: first_and_last(fields, key) for key in ("u", "y")}
    known = [*fields.names["u"], *fields.names["y"]]
    if not is_texts(channels) or not set(channels) <= set(known):
        raise ValueError(
            f"channels: expected names among {', '.join(known)}, got {described(channels)}"
        )
    return {
        key: [c for c, name in enumerate(fields.names[key]) if name in channels]
        for key in ("u", "y")
    }
