"""Drawing fields on whatever they live on: lines, grids, deformed grids, meshes, clouds of points.

`nodes_of` decides once what can be drawn; `draw` draws any field there. x points to the right, and
positions in space have equal scales in both directions. Of fields over three coordinates, a slice
is drawn.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.tri import Triangulation

from lno import mesh
from lno.text import amount, plain, with_unit

FIELD, ERROR, INK = "RdBu_r", "magma_r", "#1c2430"
CROWDED = 0.125  # of the domain: if half of the nodes lie within it, a picture shows that part
FINE = 10_000  # triangles, that a mesh is divided into before it is drawn
LINES = 64  # of a grid along the width of a picture, at most, that a picture of the mesh has
SLAB = 0.05  # of the extent: how thick a slice of loose points is
Scale = tuple[str, float, float]  # a colour map and its limits
View = Sequence[float]  # left, right, bottom and top of what a picture shows


@dataclass(frozen=True)
class Nodes:
    """Points that fields are drawn at, in one or two dimensions.

    Args:
        positions: of the points that are drawn.
        names: of the coordinates.
        rows: the numbers of these points among all points of the field.
        triangles: that connect the drawn points.
        grid: the shape of the grid that they form, which is drawn as a surface.
        cells: that connect the drawn points; `triangles` are parts of them.
        lines: the shape of the grid that they form, with or without cells.
        view: the part to show.
        part: which slice of a field over three coordinates it is, in words.
        units: of the coordinates; none: not known.
    """

    positions: Float[np.ndarray, "n d"]
    names: tuple[str, ...]
    rows: Int[np.ndarray, " n"]
    triangles: Int[np.ndarray, "m 3"] | None = None
    grid: tuple[int, ...] | None = None
    cells: Int[np.ndarray, "cells k"] | None = None
    lines: tuple[int, ...] | None = None
    view: View | None = None
    part: str = ""
    units: tuple[str, ...] = ()

    def shown(self, values: Float[np.ndarray, q * c]) -> Float[np.ndarray, k * c]:
        """The values of a field at the nodes that are within the limits of a picture."""
        at = self.positions[:, list(self.axes)]
        low, high = np.array(self.limits).T
        inside = ((at >= low) & (at <= high)).all(1)
        return np.asarray(values)[self.rows[inside] if inside.any() else self.rows]

    @property
    def axes(self) -> tuple[int, ...]:
        """The coordinates to the right and upwards: x or longitude to the right, else the first."""
        if self.positions.shape[1] == 1:
            return (0,)
        return (1, 0) if self.names[1].lower() in ("x", "lon", "longitude") else (0, 1)

    @property
    def labels(self) -> list[str]:
        """The names of the drawn axes, with their units."""
        known = dict(enumerate(self.units))
        return [with_unit(self.names[k], known.get(k, "")) for k in self.axes]

    @property
    def limits(self) -> list[tuple[float, float]]:
        """The part to show along each drawn axis: all, or where most nodes are crowded."""
        if self.view is not None and len(self.axes) == 2:
            left, right, bottom, top = map(float, self.view)
            return [(left, right), (bottom, top)]
        low, first, middle, third, high = np.quantile(self.positions, (0, 0.25, 0.5, 0.75, 1), 0)
        spread = third - first
        if self.positions.shape[1] == 2 and np.all(spread < CROWDED * (high - low)):
            low, high = np.maximum(low, middle - 2 * spread), np.minimum(high, middle + 2 * spread)
        return [(float(low[k]), float(high[k])) for k in self.axes]

    @property
    def shape(self) -> float:
        """Height over width of a picture."""
        if self.positions.shape[1] == 1:
            return 0.7
        (left, right), (bottom, top) = self.limits
        if "t" in self.names:  # time and space have no common scale
            return 1.0
        return float(np.clip((top - bottom) / ((right - left) or 1.0), 0.2, 1.6))


def nodes_of(
    positions: Float[np.ndarray, "q d"],
    names: Sequence[str],
    *,
    cells: Int[np.ndarray, "m k"] | None = None,
    grid: Sequence[int] | None = None,
    grid_index: Int[np.ndarray, " q"] | None = None,
    view: View | None = None,
    at: Mapping[str, float] | None = None,
    units: Sequence[str] = (),
) -> Nodes:
    """The points of a field that a picture shows.

    With a third coordinate, a slice of it: by default at its end, the last time or the top of a
    volume.

    Args:
        positions: of all points.
        names: of their coordinates.
        cells: triangles or quadrilaterals.
        grid: the shape of the grid that the points form.
        grid_index: where the points lie in the grid, if some of it are missing.
        view: left, right, bottom and top of the part to show; None: what most nodes suggest.
        at: the slice to show, like `{"z": 0.5}`.
        units: of the coordinates; none: not known.

    >>> nodes_of(np.zeros((6, 1)), ["x"], grid=(6,)).names
    ('x',)
    """
    d = positions.shape[1]
    units = tuple(units) or ("",) * d
    rows, shape = np.arange(len(positions)), tuple(grid) if grid is not None else None
    if d > 3 or (shape is not None and len(shape) > 3):
        raise ValueError(f"cannot draw fields over {', '.join(names)}: expected 1 to 3 coordinates")
    if at is not None and (d != 3 or len(at) != 1 or not set(at) <= set(names)):
        raise ValueError(
            "at: expected one of three coordinates and its value, like {'z': 0.5}, got "
            f"{dict(at)} for the coordinates {', '.join(names)}"
        )
    if cells is not None and d == 2:
        rows = np.unique(cells)
        own = np.searchsorted(rows, np.asarray(cells))
        lines = None if shape is None or prod(shape[:2]) != len(rows) else shape[:2]
        drawn, faces = (positions[rows], tuple(names), rows), mesh.triangles(own)
        return Nodes(*drawn, faces, None, own, lines, view, units=units)
    whole = shape is not None and grid_index is None and prod(shape) == len(positions)
    kept, part = list(range(min(d, 2))), ""
    if d == 3:
        [(name, value)] = at.items() if at else [(names[2], float(positions[:, 2].max()))]
        axis = list(names).index(name)
        kept = [k for k in range(3) if k != axis]
        cube = shape if whole and shape is not None and len(shape) == 3 else None
        if cube is None:
            rows, part = _slice(positions[:, axis], name, value, SLAB if at else 0.0)
        else:
            rows, part = _plane(positions[:, axis], name, value, cube, axis)
        if len(rows) < 3:
            raise ValueError(_no_slice(positions, names))
        part = amount(part, units[axis])
        shape, whole = (None, False) if cube is None else (_without(cube, axis), True)
    elif whole and shape is not None and len(shape) == 3:
        rows, shape = rows.reshape(shape)[..., -1].ravel(), shape[:2]
    shown, axes = positions[rows][:, kept], tuple(names[k] for k in kept)
    units = tuple(units[k] for k in kept)
    if d == 2 and grid_index is not None and shape is not None and len(shape) == 2:
        filled = mesh.triangles(mesh.grid_cells(shape, grid_index))
        return Nodes(shown, axes, rows, filled, view=view, units=units)
    flat = whole and shape is not None and len(shape) == min(d, 2)
    form = shape if flat else None
    return Nodes(shown, axes, rows, grid=form, lines=form, view=view, part=part, units=units)


def connected(nodes: Nodes) -> Nodes:
    """Loose points in a plane with triangles between neighbours; all other nodes as they are.

    For whole fields. Sensors are better shown as the points that they are.
    """
    if len(nodes.axes) == 1 or nodes.triangles is not None or nodes.grid is not None:
        return nodes
    places = nodes.positions
    if "t" in nodes.names:  # time and space have no common scale
        places = places / (np.ptp(places, 0) + (np.ptp(places, 0) == 0))
    return replace(nodes, triangles=mesh.delaunay(places))


def _plane(
    values: Float[np.ndarray, " q"], name: str, value: float, grid: Sequence[int], axis: int
) -> tuple[Int[np.ndarray, " n"], str]:
    """The points of the nearest plane of a grid, and which it is in words."""
    planes = np.moveaxis(np.arange(prod(grid)).reshape(tuple(grid)), axis, 0)
    heights = np.array([values[plane].mean() for plane in planes])
    nearest = int(np.abs(heights - value).argmin())
    return planes[nearest].ravel(), f"{name} = {heights[nearest]:.4g}"


def _slice(
    values: Float[np.ndarray, " q"], name: str, value: float, thickness: float
) -> tuple[Int[np.ndarray, " n"], str]:
    """Loose points in the nearest plane, or, where no three lie in one, in a slab around it."""
    far, extent = np.abs(values - value), float(np.ptp(values))
    rows = np.flatnonzero(far <= far.min() + 1e-6 * extent)
    if len(rows) >= 3:
        return rows, f"{name} = {values[rows[0]]:.4g}"
    low, high = value - thickness / 2 * extent, value + thickness / 2 * extent
    return np.flatnonzero((values >= low) & (values <= high)), f"{low:.4g} ≤ {name} ≤ {high:.4g}"


def _without(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return tuple(n for k, n in enumerate(shape) if k != axis)


def _no_slice(positions: Float[np.ndarray, "q 3"], names: Sequence[str]) -> str:
    middle = {names[2]: float(f"{np.median(positions[:, 2]):.3g}")}
    return (
        f"cannot draw points over {', '.join(names)}: expected a grid, or several points in one "
        f"slice. Name a slice, plot(at={middle}), or write a .vtu file for ParaView"
    )


@dataclass(frozen=True)
class Panel:
    """One field of a figure.

    Args:
        title: above it.
        nodes: where it is drawn.
        values: at all points of the field; None: the mesh is drawn.
        scale: colours; None: those of the values.
        marks: positions to mark on top, like those of sensors.
        domain: decides the limits of the axes; None: `nodes`.
    """

    title: str
    nodes: Nodes
    values: Float[np.ndarray, " q"] | None
    scale: Scale | None = None
    marks: np.ndarray | None = None
    domain: Nodes | None = None


class Picture(Figure):
    """A figure that notebooks show, whether pyplot was imported or not."""

    def _repr_png_(self) -> bytes:
        shown = io.BytesIO()
        self.savefig(shown, format="png", dpi=90)
        return shown.getvalue()


def figure_of(rows: Sequence[Sequence[Panel]], title: str = "") -> Picture:
    """Rows of fields, each with its colours below it, or beside the row if they share them."""
    columns = max(map(len, rows))
    shape = max(panel.nodes.shape for row in rows for panel in row)
    heights = [2.5 * shape + 0.65 if _shares_colours(row) else 2.85 * shape + 1.1 for row in rows]
    size = (3.1 * columns, sum(heights) + 0.4 * bool(title))
    figure = Picture(figsize=size, layout="compressed")  # for axes of equal scales
    axes = figure.subplots(len(rows), columns, squeeze=False)
    bar: dict[str, Any] = {"location": "bottom", "aspect": 24, "format": "{x:g}"}
    for r, row in enumerate(rows):
        together = _shares_colours(row)
        for axis, panel in zip(axes[r], row, strict=False):
            shown: ScalarMappable | None = None
            if panel.values is None:
                draw_mesh(axis, panel.nodes)
            else:
                shown = draw(axis, panel.nodes, panel.values, panel.scale)
            domain = panel.domain or panel.nodes
            if panel.marks is not None and len(domain.axes) == 2:
                across, up = domain.axes
                where = panel.marks[:, across], panel.marks[:, up]
                axis.plot(*where, "o", ms=3, mfc="none", mec=INK, mew=0.7)
            set_limits(axis, domain)
            axis.set_title(plain(panel.title), fontsize=11)
            axis.set_xlabel(plain(domain.labels[0]))
            if shown is not None and not together:
                figure.colorbar(shown, ax=axis, ticks=MaxNLocator(4), **bar)
            elif panel.values is None and len(row) > 1 and any(p.values is not None for p in row):
                empty = figure.colorbar(ScalarMappable(), ax=axis, **bar)  # of the same height
                empty.ax.set_visible(False)
        if shown is not None and together:  # one bar for the row
            figure.colorbar(shown, ax=axes[r].tolist(), shrink=0.8, pad=0.01)
        for axis in axes[r][len(row) :]:
            axis.set_axis_off()
        first = row[0].domain or row[0].nodes
        if len(first.axes) == 2:
            axes[r][0].set_ylabel(plain(first.labels[1]))
    if title:
        figure.suptitle(plain(title))
    return figure


def _shares_colours(row: Sequence[Panel]) -> bool:
    return len(row) > 1 and row[0].scale is not None and len({p.scale for p in row}) == 1


def draw(
    axis: Axes, nodes: Nodes, values: Float[np.ndarray, " q"], scale: Scale | None = None
) -> ScalarMappable | None:
    """A field at its nodes; returns what a colour bar needs, None for a line.

    Meshes and grids with missing points are triangles, regular grids images, deformed grids
    surfaces, clouds points.
    """
    shown = np.asarray(values)[nodes.rows]
    if len(nodes.axes) == 1:
        order = np.argsort(nodes.positions[:, 0], kind="stable")
        axis.plot(nodes.positions[order, 0], shown[order], lw=1.4, color="#0072b2")
        return None
    cmap, low, high = scale or scale_of(shown)
    colours: dict[str, Any] = {"cmap": cmap, "vmin": low, "vmax": high}
    across, up = nodes.axes
    x, y = nodes.positions[:, across], nodes.positions[:, up]
    if nodes.triangles is not None:
        fine, shown = _refined(x, y, nodes.triangles, shown)
        return axis.tripcolor(fine, shown, shading="gouraud", **colours)
    if nodes.grid is None:
        size = float(np.clip(16000 / len(x), 1.0, 24.0))
        return axis.scatter(x, y, size, shown, lw=0, **colours)
    surface, right, top = (v.reshape(nodes.grid) for v in (shown, x, y))
    if not _is_regular(nodes, nodes.grid):
        return axis.pcolormesh(right, top, surface, shading="gouraud", **colours)
    image = surface.T if across == 0 else surface
    extent = (float(x.min()), float(x.max()), float(y.min()), float(y.max()))
    return axis.imshow(image, origin="lower", extent=extent, aspect="auto", **colours)


def has_mesh(nodes: Nodes) -> bool:
    """Whether there is more to see of a mesh than a regular grid."""
    if len(nodes.axes) == 1 or (nodes.cells is None and nodes.lines is None):
        return False
    return nodes.lines is None or not _is_regular(nodes, nodes.lines)


def draw_mesh(axis: Axes, nodes: Nodes) -> None:
    """The lines of a grid, not too many of them, or the edges of all cells."""
    places = nodes.positions[:, list(nodes.axes)]
    style: dict[str, Any] = {"linewidths": 0.35, "edgecolors": INK}
    if nodes.lines is not None:
        grid, (left, right) = places.reshape(*nodes.lines, 2), nodes.limits[0]
        for lines in (grid, grid.transpose(1, 0, 2)):
            across = np.linalg.norm(np.diff(lines, axis=0), axis=-1).sum(0).mean()
            most = int(np.clip(LINES * across / (right - left or 1.0), 6, LINES))
            every = np.unique(np.linspace(0, len(lines) - 1, min(len(lines), most)).round())
            axis.add_collection(LineCollection(list(lines[every.astype(int)]), **style))
    elif nodes.cells is not None:
        axis.add_collection(PolyCollection(places[nodes.cells], facecolors="none", **style))


def set_limits(axis: Axes, nodes: Nodes) -> None:
    """Show the domain of nodes, with equal scales where both coordinates are positions."""
    limits = nodes.limits
    axis.set_xlim(*_widened(*limits[0]))
    if len(limits) == 2:
        axis.set_ylim(*_widened(*limits[1]))
        axis.set_aspect("auto" if "t" in nodes.names else "equal")


def scale_of(values: np.ndarray) -> Scale:
    """Colours for values, NaN for none: symmetric about zero where both signs matter."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    span = max(-low, high)
    return (FIELD, -span, span) if min(-low, high) > 0.05 * span else ("viridis", low, high)


def error_scale(errors: np.ndarray) -> Scale:
    """Colours for absolute errors: from zero on."""
    return (ERROR, 0.0, float(np.max(errors)) or 1.0)


def _widened(low: float, high: float) -> tuple[float, float]:
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _is_regular(nodes: Nodes, grid: tuple[int, ...]) -> bool:
    """Whether the nodes are those of a regular grid along the coordinates."""
    low, high = nodes.positions.min(0), nodes.positions.max(0)
    regular = np.meshgrid(*map(np.linspace, low, high, grid), indexing="ij")
    found = np.moveaxis(nodes.positions.reshape(*grid, 2), -1, 0)
    return np.allclose(found, regular, atol=1e-4 * float(np.ptp(nodes.positions)))


def _refined(
    x: np.ndarray, y: np.ndarray, triangles: Int[np.ndarray, "m 3"], values: np.ndarray
) -> tuple[Triangulation, np.ndarray]:
    """A coarse mesh with its triangles divided, values interpolated linearly.

    Between the nodes of a triangle matplotlib blends colours, not values: in small triangles that
    is the same.
    """
    points = mesh.divided(np.stack((x, y, values), -1)[triangles], FINE).reshape(-1, 3)
    fine = Triangulation(points[:, 0], points[:, 1], np.arange(len(points)).reshape(-1, 3))
    return fine, points[:, 2]
