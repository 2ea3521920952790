"""Points of a sphere: what models and distances see, weights, files, mistakes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lno import Completion, Fields, Operator, RandomRatio
from lno.data.normalize import Coordinates
from lno.kernel_methods.krige import krige

LAT, LON = np.meshgrid(np.linspace(-75, 75, 6), np.arange(0, 360, 30), indexing="ij")
POINTS = np.stack((LAT, LON), -1).reshape(-1, 2)
NAMES = {"x": ["lat", "lon"], "y": ["T"]}


def globe(samples: int = 14) -> Fields:
    """Waves around the globe, smooth across the date line."""
    phase = np.random.default_rng(0).uniform(0, 6, (samples, 1))
    up, around = np.deg2rad(POINTS).T
    values = np.sin(up) + np.cos(up) * np.cos(around + phase)
    return Fields(POINTS, y=values[..., None], grid=(6, 12), sphere=("lat", "lon"), names=NAMES)


def test_distances_are_chords_of_the_sphere() -> None:
    coordinates = Coordinates.fit(globe())
    places = torch.tensor([[0.0, 359.0], [0.0, 1.0], [90.0, 0.0], [90.0, 123.0]])
    features = coordinates.distance_features(places)
    apart = torch.cdist(features, features)
    assert apart[0, 1] == pytest.approx(2 * np.sin(np.deg2rad(1)), rel=1e-3)
    assert apart[2, 3] == pytest.approx(0, abs=1e-6)
    assert coordinates.features == 3 and coordinates.distance_axes == (0, 0, 0)


def test_kriging_does_not_see_the_date_line() -> None:
    scale = Coordinates.fit(globe())
    x = torch.tensor([[10.0, 350.0], [10.0, 10.0], [-30.0, 5.0], [50.0, 355.0]])
    u = torch.tensor([1.0, 3.0, 0.0, 2.0])[None, :, None]
    moved = (x - torch.tensor([0.0, 360.0]), x)
    at = torch.tensor([[11.0, 0.0]])
    predictions = [
        krige(scale.distance_features(v)[None], u, scale.distance_features(at)[None]) for v in moved
    ]
    assert torch.allclose(*predictions, atol=1e-5)


def test_weights_are_areas_and_stay_in_the_file(tmp_path: Path) -> None:
    data = globe()
    assert np.allclose(np.ravel(data.weights), np.cos(np.deg2rad(POINTS[:, 0])))
    data.save(tmp_path / "globe.h5")
    again = Fields.load(tmp_path / "globe.h5")
    assert again.sphere == ("lat", "lon") and again.digest == data.digest
    own = data.replace(weights=np.ones(72))
    assert np.all(np.asarray(own.weights) == 1)
    with_space = data.replace(
        x=np.hstack((POINTS, POINTS[:, :1])),
        space=2,
        names={"x": ["lat", "lon", "depth"], "y": ["T"]},
        units=None,
        weights=None,
    )
    assert Coordinates.fit(with_space).distance_axes == (0, 0, 0)


@pytest.mark.parametrize(
    ("pair", "error", "message"),
    [
        (("lat", "long"), ValueError, "'long' is none of the positions lat, lon"),
        (("lon", "lat"), ValueError, "'lon' reaches 330, expected a latitude"),
        (("lat",), TypeError, "names of latitude and longitude"),
    ],
)
def test_mistakes_are_named(pair: tuple[str, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        globe().replace(sphere=pair)


def test_an_operator_of_the_sphere_wraps_around_and_weights_by_area(tmp_path: Path) -> None:
    data = globe()
    small = {"width": 8, "latents": 4, "blocks": 1, "heads": 2}
    task = Completion(RandomRatio(0.2, 0.4))
    op = Operator.fit(data, task=task, epochs=1, config=small, progress=False, device="cpu")
    assert op.weighted
    op.save(tmp_path / "op.safetensors")
    loaded = Operator.load(tmp_path / "op.safetensors", "cpu")
    x, u = POINTS[::7], np.asarray(data.y)[0, ::7]
    west, east = (loaded.predict(x, u, x_query=[[20.0, lon]]) for lon in (-10.0, 350.0))
    assert np.allclose(west, east, atol=1e-5)
    plain = Fields(POINTS, y=data.y, grid=(6, 12), names=NAMES)  # a file that does not say so
    assert loaded.evaluate(plain) == op.evaluate(data)
