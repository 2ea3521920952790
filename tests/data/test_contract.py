"""What data may bring besides positions and values: parameters, weights, cells, background, …"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from lno import Fields
from lno.data.normalize import Normalizers
from lno.data.symmetry import RandomSymmetry, Symmetry, square

RANDOM = np.random.default_rng(0)


def meshes(sizes=(4, 6, 5)):
    """Fans of triangles with different numbers of nodes, and everything that data may bring."""
    x = [RANDOM.random((n, 3)) for n in sizes]
    return Fields(
        x,
        u=[RANDOM.random((n, 2)) for n in sizes],
        y=[RANDOM.random((n, 1)) for n in sizes],
        parameters=RANDOM.random((len(sizes), 2)),
        weights=[RANDOM.random(n) + 0.1 for n in sizes],
        background=[RANDOM.random((n, 1)) for n in sizes],
        cells=[np.array([[0, k, k + 1] for k in range(1, n - 1)]) for n in sizes],
        geometry={"u": ["px", "py"]},
        space=2,
        names={"x": ["x", "y", "elevation"], "u": ["px", "py"], "parameters": ["load", "speed"]},
        units={"parameters": ["N", "m/s"]},
    )


@pytest.mark.parametrize("lazy", [False, True])
def test_everything_survives_the_file_and_rearranging(tmp_path, lazy):
    fields = meshes()
    fields.save(tmp_path / "a.h5")
    again = Fields.load(tmp_path / "a.h5", lazy=lazy)
    assert again.digest == fields.digest
    assert again.subset([2, 0]).digest == fields.subset([2, 0]).digest
    if not lazy:
        one, two = again.split(1, 2)
        assert Fields.concatenate([one, two]).digest == fields.digest
    for k, sample in enumerate(again):
        for ours, theirs in zip(sample, fields[k], strict=True):
            assert ours is theirs is None or np.array_equal(ours, theirs)
    assert again.space == 2 and again.geometry == {"u": ["px", "py"]}
    assert again.units["parameters"] == ["N", "m/s"]


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": np.ones((3, 2))},
        {"space": 1},
        {"geometry": {"u": ["py", "px"]}},
        {"weights": [np.ones(n) for n in (4, 6, 5)]},
        {"background": [np.zeros((n, 1)) for n in (4, 6, 5)]},
        {"cells": [np.array([[0, 1, 2]])] * 3},
    ],
)
def test_the_digest_covers_all_of_it(change):
    fields = meshes()
    assert fields.replace(**change).digest != fields.digest
    assert fields.replace().digest == fields.digest


def test_data_without_any_of_it_have_the_digest_that_stored_results_name():
    x = np.linspace(0, 1, 4, dtype=np.float32)[:, None]
    fields = Fields(x, u=np.ones((2, 4, 1), np.float32), y=np.zeros((2, 4, 1), np.float32))
    assert fields.digest.startswith("7bb6d136ae03b8b7")


def test_parameters_are_input_channels_at_every_point():
    fields = meshes()
    assert fields.spec.in_channels == 4
    batch = fields.batch([0, 1])
    inputs = batch.inputs
    assert torch.equal(inputs[..., :2], batch.u)
    expected = torch.from_numpy(fields.parameters[:2]).to(inputs)
    assert torch.equal(inputs[:, :, 2:], expected[:, None].expand(-1, inputs.shape[1], -1))


def test_normalisers_take_the_background_off_and_put_it_back():
    fields = meshes()
    scale = Normalizers.fit(fields)
    batch = fields.batch([0])
    ready = scale.encode(batch)
    assert torch.allclose(scale.decode(ready.y, batch.background), batch.y.float(), atol=1e-6)
    every = np.concatenate([s.y - s.background for s in fields])
    assert np.allclose(scale.y.mean, every.mean()) and np.allclose(scale.y.std, every.std())
    assert Normalizers.from_dict(scale.to_dict()) == scale


def test_standardised_parameters_have_mean_zero_and_deviation_one():
    fields = meshes().replace(parameters=RANDOM.normal([3.0, -70.0], [0.5, 20.0], (3, 2)))
    ready = Normalizers.fit(fields).encode(fields.batch([0, 1, 2])).parameters
    assert torch.allclose(ready.mean(0), torch.zeros(2), atol=1e-5)
    assert torch.allclose(ready.std(0, correction=0), torch.ones(2), atol=1e-5)


def test_covariates_count_for_models_but_not_for_distances():
    scale = Normalizers.fit(meshes()).x
    x = torch.rand(5, 3, dtype=torch.float64)
    moved = x + torch.tensor([0.0, 0.0, 9.0])
    assert scale.features == 3 and scale.distance_axes == (0, 1)
    assert torch.equal(scale.distance_features(x), scale.distance_features(moved))
    assert not torch.equal(scale.encode(x), scale.encode(moved))


def test_pictures_show_nodes_where_the_geometry_says():
    fields = meshes()
    assert np.array_equal(fields.geometry_of(1), fields[1].u)
    plain = fields.replace(geometry=None)
    assert np.array_equal(plain.geometry_of(1), fields[1].x[:, :2])


def test_samples_that_lack_points_of_a_grid():
    index = [np.array([0, 1, 5]), np.array([2, 3])]
    y = [np.ones((3, 1)), np.ones((2, 1))]
    fields = Fields(
        [RANDOM.random((3, 2)), RANDOM.random((2, 2))], y=y, grid=(2, 3), grid_index=index
    )
    assert fields.spec.grid is None and fields.grid == (2, 3)
    assert fields[1].grid_index.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"parameters": np.ones(3)}, "parameters"),
        ({"parameters": np.ones((2, 2))}, "same number of samples"),
        ({"parameters": np.full((3, 2), np.nan)}, "'load': expected a finite number"),
        ({"weights": [np.ones(4)] * 3}, "weights, sample 1: expected 6 points"),
        ({"weights": [-np.ones(n) for n in (4, 6, 5)]}, "zero or more"),
        ({"background": [np.ones((n, 2)) for n in (4, 6, 5)]}, "1 channels as in y"),
        ({"cells": [np.array([[0, 1, 9]])] * 3}, "indices of its 4 query points"),
        ({"cells": [np.array([[0, 1]])] * 3}, "3 or 4 corners"),
        ({"cells": [np.array([[0.0, 1.0, 2.0]])] * 3}, "whole numbers"),
        ({"geometry": {"x": ["x"]}}, "channels of u or of y"),
        ({"geometry": {"u": ["nothing"]}}, "channels of u"),
        ({"space": 4}, "positions"),
        ({"grid_index": [np.arange(n) for n in (4, 6, 5)]}, "pass grid="),
        (
            {"grid": (3, 2), "grid_index": [np.zeros(n, int) for n in (4, 6, 5)]},
            "different numbers",
        ),
        ({"grid": (2, 2)}, "grid_index"),
    ],
)
def test_mistakes_are_named(change, expected):
    with pytest.raises(ValueError, match=expected):
        meshes().replace(**change)


def test_columns_can_be_taken_away():
    bare = meshes().replace(parameters=None, weights=None, background=None, cells=None)
    assert bare.parameters is None and "parameters" not in bare.names
    assert bare.names["u"] == ["px", "py"]


def test_data_with_other_columns_are_not_concatenated():
    fields = meshes()
    with pytest.raises(ValueError, match="other columns"):
        Fields.concatenate([fields, fields.replace(weights=None)])


# -- symmetries ------------------------------------------------------------------------------------


def test_on_a_cloud_the_points_move_and_signs_differ_by_channel():
    mirror = Symmetry("mirror", ((-1, 0), (0, 1)), (1, 0), channel_signs={"u": (-1, 1), "y": (1,)})
    fields = meshes().replace(background=None)
    scale = Normalizers.fit(fields)
    batch = fields.batch([0, 1])
    image = RandomSymmetry([mirror], fields, scale).draw(scale.encode(batch), torch.Generator())
    x = batch.x.clone()
    x[..., 0] = 1 - x[..., 0]
    u = batch.u * torch.tensor([-1.0, 1.0])
    expected = scale.encode(replace(batch, x=x, x_query=x, u=u))
    real = batch.mask
    for name in ("x", "u", "y"):
        ours, theirs = getattr(image, name)[real], getattr(expected, name)[real]
        assert torch.allclose(ours, theirs, atol=1e-5), name
    assert image.x_query is image.x


def test_a_cloud_on_grid_points_and_the_grid_agree():
    """A function on a grid, as a grid and as a cloud: both images are the same function."""
    side = np.linspace(0, 1, 4)
    x = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    u, y = RANDOM.random((2, 1, 16, 1))
    grid, cloud = Fields(x, u, y=y, grid=(4, 4)), Fields(x[None], u, y=y)
    scale = Normalizers.fit(grid)
    for g in square():
        a, b = (
            RandomSymmetry([g], data, scale).draw(scale.encode(data.batch([0])), torch.Generator())
            for data in (grid, cloud)
        )
        order = [np.lexsort(v[0].numpy().round(4).T) for v in (a.x, b.x)]
        assert torch.allclose(a.x[0, order[0]], b.x[0, order[1]], atol=1e-5), g.name
        assert torch.allclose(a.u[0, order[0]], b.u[0, order[1]], atol=1e-5), g.name
        assert torch.allclose(a.y[0, order[0]], b.y[0, order[1]], atol=1e-5), g.name


def test_weights_move_with_the_points_of_a_grid():
    side = np.linspace(0, 1, 3)
    x = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    u, weights = RANDOM.random((1, 9, 1)), RANDOM.random(9)
    data = Fields(x, u, y=weights[None, :, None], weights=weights, grid=(3, 3))
    scale = Normalizers.fit(data)
    for g in square():
        augment = RandomSymmetry([g], data, scale)
        image = augment.draw(scale.encode(data.batch([0])), torch.Generator())
        sizes = scale.decode(image.y)[..., 0]
        assert torch.allclose(image.weights.to(sizes), sizes, atol=1e-5), g.name
        assert torch.allclose(image.query_weights.to(sizes), sizes, atol=1e-5), g.name


def test_signs_compose():
    flip = Symmetry("flip", ((-1, 0), (0, 1)), (1, 0), channel_signs={"u": (-1, 1)})
    assert (flip @ flip).channel_signs == {"u": (1, 1)}
    with pytest.raises(ValueError, match="2 channels of u"):
        flip.signs("u", 3)


@pytest.mark.parametrize("points", [1, 2, 5])
@pytest.mark.parametrize("samples", [1, 2, 5])
def test_numbers_of_points_survive_a_file_and_a_change(tmp_path, samples, points):
    """Shared by all samples or not, also where samples have one point, or as many as there are."""
    x, u = RANDOM.random((points, 2)), RANDOM.random((samples, points, 1))
    for shape in ((points,), (samples, points)):
        sizes = RANDOM.random(shape) + 0.1
        data = Fields(x, u, y=u, weights=sizes, query_weights=sizes)
        data.save(tmp_path / "data.h5")
        for same in (Fields.load(tmp_path / "data.h5"), data.replace(frame="changed")):
            for k in range(samples):
                expected = np.broadcast_to(sizes, (samples, points))[k]
                np.testing.assert_allclose(same[k].weights.ravel(), expected, rtol=1e-6)
                np.testing.assert_allclose(same[k].query_weights.ravel(), expected, rtol=1e-6)
