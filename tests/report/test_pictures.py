"""Pictures of fields: what is drawn is what the file says, where it says."""

import matplotlib.image
import numpy as np
import pytest
from matplotlib.collections import PathCollection, QuadMesh, TriMesh

from lno import drawing
from lno.drawing import nodes_of
from lno.report import plots, samples


def lattice(rows, columns):
    """Positions (n, 2) of a grid on a rectangle, in C order."""
    sides = np.linspace(0, 1, rows), np.linspace(2, 4, columns)
    return np.stack(np.meshgrid(*sides, indexing="ij"), -1).reshape(-1, 2)


def a_sample(path, x, grid, inputs=1, outputs=1, names=("x", "y", "z")):
    """A file like those beside runs; values are functions of the position and the channel."""
    u, y = (np.sin(3 * x[:, :1]) + x[:, 1:2] + np.arange(c) for c in (inputs, outputs))
    np.savez(
        path,
        x=x.astype(np.float32),
        u=u,
        y=y,
        prediction=y + 0.1 * x[:, :1],
        grid=np.array(grid),
        names_x=np.array(names[: x.shape[1]]),
        names_u=np.array([f"a{k}" for k in range(inputs)]),
        names_y=np.array([f"b{k}" for k in range(outputs)]),
    )
    return u, y, y + 0.1 * x[:, :1]


def panels_of(figure):
    """The artist that shows values, by title; meshes have none."""
    shown = {}
    for axis in figure.axes:
        if axis.get_title() and not axis.get_title().startswith("mesh"):
            (shown[axis.get_title()],) = [*axis.images, *axis.collections]
    return shown


def test_a_sample_on_a_grid_is_images_of_its_last_channels(tmp_path):
    x = lattice(6, 9)
    u, y, prediction = a_sample(tmp_path / "a.npz", x, (6, 9), inputs=3, outputs=2)
    figure = samples.sample_fields(tmp_path / "a.npz", "a trajectory")
    shown = panels_of(figure)
    assert list(shown) == ["input: a2", "truth: b1", "prediction: b1", "absolute error"]
    wanted = (u[:, -1], y[:, -1], prediction[:, -1], np.abs(prediction - y)[:, -1])
    for image, values in zip(shown.values(), wanted, strict=True):
        np.testing.assert_allclose(image.get_array(), values.reshape(6, 9).T)
        np.testing.assert_allclose(image.get_extent(), [0, 1, 2, 4])
    assert figure.axes[0].get_xlabel() == "x" and figure.axes[0].get_ylabel() == "y"
    assert figure.get_suptitle() == "a trajectory"
    plots.save(figure, tmp_path / "a.png", dpi=40)


def test_other_grids_are_surfaces_and_clouds_are_points(tmp_path):
    bent = lattice(6, 9) ** 2
    _, y, _ = a_sample(tmp_path / "bent.npz", bent, (6, 9))
    surface = panels_of(samples.sample_fields(tmp_path / "bent.npz", ""))["truth: b0"]
    assert isinstance(surface, QuadMesh)
    np.testing.assert_allclose(np.ravel(surface.get_array()), y[:, 0])
    cloud = np.random.default_rng(0).uniform(size=(54, 2))
    _, y, _ = a_sample(tmp_path / "cloud.npz", cloud, ())
    points = panels_of(samples.sample_fields(tmp_path / "cloud.npz", ""))["truth: b0"]
    assert isinstance(points, PathCollection)
    np.testing.assert_allclose(points.get_offsets(), cloud, rtol=1e-6)
    np.testing.assert_allclose(points.get_array(), y[:, 0])


def test_of_a_third_coordinate_the_end_is_shown(tmp_path):
    x = np.stack(np.meshgrid(range(6), range(3), range(4), indexing="ij"), -1).reshape(-1, 3)
    for grid in ((6, 3, 4), ()):
        _, y, _ = a_sample(tmp_path / "a.npz", x, grid)
        shown = panels_of(samples.sample_fields(tmp_path / "a.npz", ""))["truth: b0"]
        assert isinstance(shown, matplotlib.image.AxesImage if grid else PathCollection)
        found = shown.get_array().T.ravel() if grid else shown.get_array()
        np.testing.assert_allclose(found, y[x[:, 2] == 3, 0])
    a_sample(tmp_path / "a.npz", np.random.default_rng(0).uniform(size=(54, 3)), ())
    with pytest.raises(ValueError, match=r"a\.npz: cannot draw points over x, y, z"):
        samples.sample_fields(tmp_path / "a.npz", "")


def area(triangles):
    """Of triangles (m, 3, 2) together."""
    sides = triangles[:, 1:] - triangles[:, :1]
    return np.abs(np.linalg.det(sides)).sum() / 2


def linear(x):
    return 2 * x[..., 0] - x[..., 1] + 3


@pytest.mark.parametrize("corners", [3, 4])
def test_meshes_are_drawn_on_their_cells_and_nowhere_else(corners):
    """A linear field is exact at every drawn point, and a hole stays empty."""
    x = lattice(5, 5)
    at = np.arange(25).reshape(5, 5)
    quads = np.stack((at[:-1, :-1], at[1:, :-1], at[1:, 1:], at[:-1, 1:]), -1).reshape(-1, 4)
    quads = np.delete(quads, 5, 0)
    cells = quads if corners == 4 else np.concatenate((quads[:, :3], quads[:, [0, 2, 3]]))
    nodes = nodes_of(x, ["x", "y"], cells=cells)
    axis = plots.Figure().subplots()
    shown = drawing.draw(axis, nodes, linear(x))
    assert isinstance(shown, TriMesh)
    mesh = shown._triangulation
    points = np.stack((mesh.x, mesh.y), -1)
    np.testing.assert_allclose(shown.get_array(), linear(points), atol=1e-12)
    assert area(points[mesh.triangles]) == pytest.approx(2 * 15 / 16)
    assert not ((points > [0.26, 2.51]) & (points < [0.49, 2.99])).all(1).any()


def test_a_grid_with_missing_points_has_holes():
    grid, kept = (6, 9), np.delete(np.arange(54), [0, 22])
    x = lattice(*grid)[kept]
    nodes = nodes_of(x, ["x", "y"], grid=grid, grid_index=kept)
    shown = drawing.draw(plots.Figure().subplots(), nodes, linear(x))
    mesh = shown._triangulation
    points = np.stack((mesh.x, mesh.y), -1)
    np.testing.assert_allclose(shown.get_array(), linear(points), atol=1e-12)
    assert area(points[mesh.triangles]) == pytest.approx(2 * (40 - 1 - 4) / 40)


def test_cells_of_some_points_leave_the_others_out():
    """Of a block at several times, the cells are those of the last."""
    x = np.array([[0, 0], [1, 0], [1, 1], [5, 5], [0, 1]], float)
    nodes = nodes_of(x, ["x", "y"], cells=np.array([[0, 1, 2, 4]]))
    assert nodes.rows.tolist() == [0, 1, 2, 4]
    assert nodes.limits == [(0, 1), (0, 1)]


@pytest.mark.parametrize(("names", "labels"), [(("x", "y"), "xy"), (("t", "x"), "xt")])
def test_x_points_to_the_right_and_space_has_equal_scales(tmp_path, names, labels):
    a_sample(tmp_path / "a.npz", lattice(6, 9), (6, 9), names=names)
    axis = samples.sample_fields(tmp_path / "a.npz", "").axes[0]
    assert axis.get_xlabel() + axis.get_ylabel() == labels
    assert axis.get_aspect() == ("auto" if "t" in names else 1.0)
    low, high = (0, 1) if names[0] == "x" else (2, 4)
    assert axis.get_xlim() == (low, high)


def test_a_picture_shows_where_most_nodes_are():
    """An airfoil in a large domain: half of the nodes lie within a hundredth of it."""
    angle, radius = np.linspace(0, 6, 40), np.geomspace(0.1, 40, 30)
    ring = np.stack((np.outer(radius, np.cos(angle)), np.outer(radius, np.sin(angle))), -1)
    (left, right), (bottom, top) = nodes_of(ring.reshape(-1, 2), ["x", "y"], grid=(30, 40)).limits
    assert right - left < 20 and top - bottom < 20
    assert nodes_of(lattice(9, 9), ["x", "y"]).limits == [(0, 1), (2, 4)]


def test_sensors_are_shown_where_they_are(tmp_path):
    x, at = lattice(6, 9), np.array([[0.2, 2.5], [0.9, 3.0], [0.4, 3.5]])
    a_sample(tmp_path / "a.npz", x, (6, 9))
    with np.load(tmp_path / "a.npz") as file:
        arrays = dict(file)
    values = np.array([[1.0], [2.0], [3.0]])
    np.savez(tmp_path / "a.npz", **{**arrays, "x": at, "u": values, "x_query": x})
    figure = samples.sample_fields(tmp_path / "a.npz", "")
    shown = panels_of(figure)
    assert isinstance(shown["input: a0"], PathCollection)
    np.testing.assert_allclose(shown["input: a0"].get_offsets(), at)
    assert figure.axes[0].get_xlim() == (0, 1)
    np.testing.assert_allclose(shown["truth: b0"].get_array().T.ravel(), arrays["y"][:, 0])


def test_the_nodes_of_a_deformed_mesh_are_its_positions(tmp_path):
    x, moved = lattice(6, 9), lattice(6, 9) ** 2
    _, y, _ = a_sample(tmp_path / "a.npz", x, (6, 9), outputs=2)
    with np.load(tmp_path / "a.npz") as file:
        arrays = dict(file)
    arrays |= {"positions": moved, "names_positions": np.array(["X", "Y"])}
    arrays |= {"shown_y": np.array(["b0"]), "parameters": np.array([2.5])}
    np.savez(tmp_path / "a.npz", **arrays, names_parameters=np.array(["load"]))
    figure = samples.sample_fields(tmp_path / "a.npz", "deformed")
    surface = panels_of(figure)["truth: b0"]
    assert isinstance(surface, QuadMesh)
    np.testing.assert_allclose(surface.get_coordinates().reshape(-1, 2), moved)
    np.testing.assert_allclose(np.ravel(surface.get_array()), y[:, 0])
    assert figure.get_suptitle() == "deformed (load = 2.5)"


def test_frames_of_a_rollout_are_truth_prediction_and_error(tmp_path):
    x = lattice(4, 5)
    _, y, prediction = a_sample(tmp_path / "a.npz", x, (4, 5), outputs=16)
    assert samples.rollout_frames(tmp_path / "a.npz", "") is None
    with np.load(tmp_path / "a.npz") as file:
        np.savez(tmp_path / "b.npz", **dict(file), channels=np.array(2))
    figure = samples.rollout_frames(tmp_path / "b.npz", "")
    shown = [axis for axis in figure.axes if axis.get_title()]
    assert len(shown) == 3 * 5
    for row, values in enumerate((y, prediction, np.abs(prediction - y))):
        for axis, frame in zip(shown[5 * row :], (0, 2, 4, 5, 7), strict=False):
            wanted = values[:, 2 * frame + 1].reshape(4, 5).T
            np.testing.assert_allclose(axis.images[0].get_array(), wanted)
    assert len({axis.images[0].get_clim() for axis in shown[:10]}) == 1


@pytest.mark.parametrize("grid", [(6, 9), ()])
def test_truth_and_prediction_share_their_colours(tmp_path, grid):
    a_sample(tmp_path / "a.npz", lattice(6, 9), grid)
    shown = panels_of(samples.sample_fields(tmp_path / "a.npz", ""))
    truth, prediction = shown["truth: b0"], shown["prediction: b0"]
    assert truth.get_clim() == prediction.get_clim()
    assert truth.get_cmap().name == prediction.get_cmap().name
    values = np.asarray(truth.get_array())
    np.testing.assert_allclose(truth.get_clim(), [values.min(), values.max()])
    assert shown["absolute error"].get_clim()[0] == 0


def test_a_sample_of_constants_and_without_inputs(tmp_path):
    x = lattice(4, 4)
    a_sample(tmp_path / "a.npz", x, (), inputs=0)
    assert "truth: b0" in (shown := panels_of(samples.sample_fields(tmp_path / "a.npz", "")))
    assert not any("input" in title for title in shown)
    with np.load(tmp_path / "a.npz") as file:
        arrays = dict(file)
    arrays |= {"y": np.ones((16, 1)), "prediction": np.ones((16, 1))}
    np.savez(tmp_path / "b.npz", **arrays)
    plots.save(samples.sample_fields(tmp_path / "b.npz", ""), tmp_path / "b.png", dpi=40)


def test_in_one_dimension_fields_are_lines(tmp_path):
    x = np.random.default_rng(0).permutation(np.linspace(0, 1, 9))[:, None]
    values = {"u": x**2, "y": x**3, "prediction": x**3 + 1}
    names = {f"names_{key}": np.array([key]) for key in "xuy"}
    np.savez(tmp_path / "a.npz", x=x, grid=np.array([9]), **values, **names)
    figure = samples.sample_fields(tmp_path / "a.npz", "")
    lines = {axis.get_title(): axis.lines[0] for axis in figure.axes}
    assert list(lines) == ["input: u", "truth: y", "prediction: y", "absolute error"]
    np.testing.assert_allclose(lines["truth: y"].get_xdata(), np.sort(x[:, 0]))
    np.testing.assert_allclose(lines["truth: y"].get_ydata(), np.sort(x[:, 0]) ** 3)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([-2.0, 0.0, 1.0], ("RdBu_r", -2.0, 2.0)),
        ([-1e-9, 0.5, 1.0], ("viridis", -1e-9, 1.0)),  # zero on a boundary, to rounding
        ([3.0, 12.0], ("viridis", 3.0, 12.0)),
        ([-4.0, -1.0], ("viridis", -4.0, -1.0)),
    ],
)
def test_colours_are_symmetric_where_both_signs_matter(values, expected):
    assert drawing.scale_of(np.array(values)) == expected
