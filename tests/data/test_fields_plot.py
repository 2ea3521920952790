"""Pictures and tables of data: where the nodes lie in space, and clear errors where they cannot."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.collections import PathCollection, TriMesh
from matplotlib.image import AxesImage

from lno import Fields
from lno.drawing import connected, nodes_of
from lno.mesh import delaunay, grid_cells

NAMES = {"x": ["x", "y"], "u": ["a"], "y": ["p"]}


def grid(*shape: int) -> np.ndarray:
    sides = [np.linspace(0, k + 1, n) for k, n in enumerate(shape)]
    return np.stack(np.meshgrid(*sides, indexing="ij"), -1).reshape(-1, len(shape))


def cloud(count: int = 2000, hole: float = 0.25) -> np.ndarray:
    points = np.random.default_rng(0).uniform(size=(count, 2))
    return points[np.linalg.norm(points - 0.5, axis=1) > hole]


def area(points: np.ndarray, triangles: np.ndarray) -> float:
    sides = points[triangles][:, 1:] - points[triangles][:, :1]
    return float(np.abs(np.linalg.det(sides)).sum() / 2)


def test_triangles_between_loose_points_leave_holes_open() -> None:
    points = cloud()
    found = delaunay(points)
    assert found is not None
    centres = points[found].mean(1)
    assert np.linalg.norm(centres - 0.5, axis=1).min() > 0.2
    assert area(points, found) == pytest.approx(1 - np.pi * 0.25**2, rel=0.04)


def test_points_on_a_line_and_points_too_uneven_have_no_triangles() -> None:
    line = np.linspace(0, 1, 9)[:, None] * [1.0, 2.0]
    assert delaunay(line) is None and delaunay(line[:2]) is None
    layers = grid(60, 8) * [100.0, 0.001]  # a boundary layer: neighbours are all in one direction
    assert delaunay(layers) is None


@pytest.mark.parametrize("shape", [(5,), (3, 4), (3, 4, 2)])
def test_cells_of_a_grid_fill_it_once(shape: tuple[int, ...]) -> None:
    """Each cell has the corners of a unit cube; the lowest corners are all different."""
    cells = grid_cells(shape)
    corners = np.stack(np.unravel_index(cells, shape), -1)
    lowest = corners.min(1)
    assert len(np.unique(lowest, axis=0)) == len(cells) == np.prod([n - 1 for n in shape])
    assert set(map(tuple, (corners - lowest[:, None])[0])) == set(np.ndindex((2,) * len(shape)))
    parts = [grid_cells(shape, rows=slice(k, k + 1)) for k in range(shape[0] - 1)]
    np.testing.assert_array_equal(np.concatenate(parts), cells)


def test_a_picture_has_the_values_of_the_sample_at_its_nodes() -> None:
    points = grid(6, 9)
    u, y = np.sin(points[None, :, :1]) + np.zeros((2, 1, 1)), np.arange(108.0).reshape(2, 54, 1)
    figure = Fields(points, u, y=y, grid=(6, 9), names=NAMES).plot(1)
    by_title = {axis.get_title(): axis for axis in figure.axes}
    axis = by_title["p"]
    assert axis.get_xlabel() == "x" and by_title["a"].get_ylabel() == "y"
    assert axis.get_xlim() == (0, 1) and axis.get_aspect() == 1.0
    [image] = axis.images
    np.testing.assert_allclose(image.get_array(), y[1, :, 0].reshape(6, 9).T)
    assert figure.get_suptitle() == "sample 1"
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_fields_between_loose_points_are_filled_and_sensors_are_points() -> None:
    points = cloud()
    data = Fields(points[::50], points[None, ::50, :1], points, y=points[None, :, 1:], names=NAMES)
    shown = {axis.get_title(): axis.collections for axis in data.plot().axes}
    assert isinstance(shown["p"][0], TriMesh)
    assert isinstance(shown["a"][0], PathCollection)
    np.testing.assert_allclose(shown["a"][0].get_offsets(), points[::50])


def test_nodes_are_where_the_geometry_says() -> None:
    points = grid(6, 9)
    moved = points + np.array([10.0, 20.0])
    data = Fields(
        points,
        moved[None],
        y=points[None, :, :1],
        grid=(6, 9),
        geometry={"u": ["X", "Y"]},
        names={"u": ["X", "Y"], "y": ["p"]},
    )
    [axis] = [axis for axis in data.plot().axes if axis.get_title()]  # X and Y are no values
    assert axis.get_title() == "p" and axis.get_xlabel() == "X"
    assert axis.get_xlim() == (10, 11) and axis.get_ylim() == (20, 22)


def test_of_three_dimensions_a_slice_is_drawn_and_named() -> None:
    points = grid(4, 5, 6)
    data = Fields(points, y=points[None], grid=(4, 5, 6), names={"x": ["x", "y", "z"]})
    last = data.plot(channels=["y2"])
    assert last.get_suptitle() == "sample 0, z = 3"
    assert isinstance(last.axes[0].images[0], AxesImage)
    other = data.plot(channels=["y0"], at={"x": 0.3})
    assert other.get_suptitle() == "sample 0, x = 0.3333"
    assert (other.axes[0].get_xlabel(), other.axes[0].get_ylabel()) == ("y", "z")
    np.testing.assert_allclose(other.axes[0].images[0].get_array(), 1 / 3)


def test_loose_points_in_three_dimensions_need_a_slice() -> None:
    points = np.random.default_rng(0).uniform(size=(3000, 3))
    data = Fields(points, y=points[None, :, 2:], names={"x": ["x", "y", "z"], "y": ["h"]})
    with pytest.raises(ValueError, match=r"cannot draw points over x, y, z.*plot\(at=\{'z': 0\.5"):
        data.plot()
    figure = data.plot(at={"z": 0.5})
    assert "≤ z ≤" in figure.get_suptitle()
    values = np.asarray(figure.axes[0].collections[0].get_array())
    assert 0.47 < values.min() < values.max() < 0.53
    with pytest.raises(ValueError, match="at: expected one of three coordinates"):
        data.plot(at={"w": 0.5})
    flat = Fields(points[:, :2], y=points[None, :, 2:])
    with pytest.raises(ValueError, match="at: expected one of three coordinates"):
        flat.plot(at={"x0": 0.5})


def test_wrong_channels_and_data_without_values_are_clear() -> None:
    points = grid(4, 5)
    data = Fields(points, points[None, :, :1], y=points[None, :, 1:], names=NAMES)
    with pytest.raises(ValueError, match="channels: expected names among a, p, got the list"):
        data.plot(channels=["q"])
    with pytest.raises(ValueError, match="nothing to draw: the data have positions only"):
        Fields(points).plot()
    with pytest.raises(IndexError, match="no sample 3"):
        data.plot(3)
    with pytest.raises(ValueError, match="cannot draw fields over"):
        Fields(np.zeros((5, 4)), y=np.zeros((1, 5, 1))).plot()


def test_time_and_space_are_scaled_before_points_are_connected() -> None:
    places = cloud(hole=0.0) * [1.0, 1e6]
    assert connected(nodes_of(places, ["x", "t"])).triangles is not None


def test_a_notebook_shows_names_units_and_shapes_of_data_and_no_markup_of_theirs() -> None:
    points = grid(4, 5)
    data = Fields(
        points,
        np.ones((3, 20, 1)),
        y=np.ones((3, 20, 1)),
        parameters=np.ones((3, 2)),
        grid=(4, 5),
        period=(None, 2.0),
        names={"x": ["x", "y"], "u": ["<script>"], "y": ["p"]},
        units={"y": ["Pa"]},
        frame="unit & square",
    )
    html = data._repr_html_()
    for text in ("3 samples", "20 × 2, shared", "p [Pa]", "4 × 5", "–, 2", "unit &amp; square"):
        assert text in html
    assert "<script>" not in html and "&lt;script&gt;" in html


def test_data_are_imported_without_matplotlib() -> None:
    code = "import sys, lno; lno.Fields; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_axes_titles_and_slices_have_the_units_of_the_data() -> None:
    units = {"x": ["m", "m", "s"], "u": [""], "y": ["Pa"]}
    names = {"x": ["x", "y", "t"], "u": ["a"], "y": ["p"]}
    x, values = grid(4, 5, 3), np.random.default_rng(0).normal(size=(1, 60, 1))
    whole = Fields(x, values, y=values, grid=(4, 5, 3), names=names, units=units)
    figure = whole.plot()
    assert [axis.get_title() for axis in figure.axes[:2]] == ["a", "p [Pa]"]
    assert figure.axes[0].get_xlabel() == "x [m]" and figure.axes[0].get_ylabel() == "y [m]"
    assert figure.get_suptitle() == "sample 0, t = 3 s"
    across = whole.plot(at={"y": 1.0}).axes[0]
    assert (across.get_xlabel(), across.get_ylabel()) == ("x [m]", "t [s]")


def test_dimensionless_data_and_data_without_units_show_names_alone() -> None:
    values = np.random.default_rng(0).normal(size=(1, 20, 1))
    for unit in ("", "1", "-"):
        units = {"x": [unit, unit], "u": [unit], "y": [unit]}
        figure = Fields(grid(4, 5), values, y=values, grid=(4, 5), names=NAMES, units=units).plot()
        assert [axis.get_title() for axis in figure.axes[:2]] == ["a", "p"]
        assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("x", "y")


def test_nodes_that_are_channels_have_the_units_of_these_channels() -> None:
    names = {"x": ["i", "j"], "u": ["X", "Y", "T"], "y": ["p"]}
    units = {"x": ["", ""], "u": ["mm", "mm", "K"], "y": ["Pa"]}
    places = grid(4, 5)
    u = np.concatenate((2 * places, places[:, :1]), 1)[None]
    moved = Fields(
        places, u, y=u[..., :1], grid=(4, 5), names=names, units=units, geometry={"u": ["X", "Y"]}
    )
    figure = moved.plot()
    assert figure.axes[0].get_xlabel() == "X [mm]" and figure.axes[0].get_ylabel() == "Y [mm]"
    assert [axis.get_title() for axis in figure.axes[:2]] == ["T [K]", "p [Pa]"]
