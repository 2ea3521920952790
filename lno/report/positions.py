"""What latent positions look at: pictures of the weights of encoder and decoder, from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, hsv_to_rgb
from matplotlib.figure import Figure
from matplotlib.tri import Triangulation

from lno.drawing import INK, Nodes, draw, nodes_of, set_limits
from lno.report.samples import reading
from lno.text import plain

READ, WRITE, MANY = "Blues", "Oranges", "viridis"
REGIONS = 24  # colours of the map of regions; neighbours may share one


def load_positions(path: Path) -> dict[str, Any]:
    """The arrays of a file of latent positions.

    `read` (k, n): what some latent positions read of each point, as a multiple of the mean over the
    points; `write` (k, n): how much each point reads of them; `chosen` (k): their numbers; `first`
    (n): the latent position that each point reads most of; `effective_points` (m): how many points
    each reads, as a share of all; `effective_latents` (n): how many latent positions each point
    reads; and `positions`, `names_positions`, `grid`, `cells`, `view` of the points.
    """
    with reading(path), np.load(path, allow_pickle=False) as file:
        found = {key: file[key] for key in file.files}
        for key in ("read", "write", "chosen", "first", "effective_points", "effective_latents"):
            found[key]
    return found


def position_maps(path: Path, title: str) -> Figure:
    """Regions of all latent positions, and for some of them what they read and where they are read.

    On the left the position that each point reads most of, above how many it reads. To the right a
    column for each of some positions: what it reads of the input, above where it is read. Colours
    of what is read grow with its square root.
    """
    found = load_positions(path)
    with reading(path):
        return _position_maps(found, title)


def _position_maps(found: dict[str, Any], title: str) -> Figure:
    nodes = nodes_of(
        found["positions"],
        found["names_positions"].tolist(),
        cells=found.get("cells"),
        grid=found["grid"].tolist() or None,
        view=found.get("view"),
    )
    count, shape = len(found["chosen"]), min(nodes.shape, 1.2)
    size = (2.0 * (count + 1), 2 * (2.0 * shape + 0.3) + 0.3)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(2, count + 1, squeeze=False)
    _regions(axes[0, 0], nodes, found["first"])
    axes[0, 0].set_title("which one a point reads most", fontsize=9)
    many = found["effective_latents"].astype(np.float32)
    low, high = (float(end(nodes.shown(many))) for end in (np.min, np.max))
    draw(axes[1, 0], nodes, many, (MANY, low, high))
    axes[1, 0].set_title(f"how many it reads: {low:.0f} to {high:.0f}", fontsize=9)
    for k, number in enumerate(found["chosen"].tolist(), start=1):
        read, write = (found[key][k - 1].astype(np.float32) for key in ("read", "write"))
        top, share = (float(nodes.shown(values).max()) for values in (read, write))
        # Most of what is read is near a few points: square roots show the rest as well.
        draw(axes[0, k], nodes, np.sqrt(read), (READ, 0.0, top**0.5 or 1.0))
        axes[0, k].set_title(f"{number} reads up to {top:.2g}×", fontsize=9)
        draw(axes[1, k], nodes, write, (WRITE, 0.0, share or 1.0))
        axes[1, k].set_title(f"and is read up to {100 * share:.0f} %", fontsize=9)
    for axis in axes.flat:
        set_limits(axis, nodes)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.spines[:].set_color("0.8")
    figure.suptitle(plain(title), fontsize=11, color=INK)
    return figure


def _regions(axis: Axes, nodes: Nodes, first: np.ndarray) -> None:
    """Points, or cells around them, in the colour of the latent position that they read most of."""
    colours = np.random.default_rng(0).permutation(REGIONS)[first % REGIONS][nodes.rows]
    x, y = nodes.positions[:, list(nodes.axes)].T
    look: dict[str, Any] = {"cmap": _palette(), "vmin": -0.5, "vmax": REGIONS - 0.5}
    if nodes.triangles is not None:
        mesh = Triangulation(x, y, nodes.triangles)
        axis.tripcolor(mesh, facecolors=colours[nodes.triangles[:, 0]], **look)
    elif nodes.grid is not None:
        surface = (v.reshape(nodes.grid) for v in (x, y, colours))
        axis.pcolormesh(*surface, shading="nearest", **look)
    else:
        axis.scatter(x, y, float(np.clip(16_000 / len(x), 1.0, 24.0)), colours, lw=0, **look)


def _palette() -> ListedColormap:
    """Hues, pale and dark in turn."""
    hues = np.linspace(0, 1, REGIONS, endpoint=False)
    value = np.where(np.arange(REGIONS) % 2, 0.95, 0.7)
    return ListedColormap(hsv_to_rgb(np.stack((hues, np.full(REGIONS, 0.5), value), -1)))
