"""Properties of LNO+ beside those of every model: located latents, values at queries, streaming."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import PLUS, PLUS_BY_POSITION, build, close, inputs

import lno
from lno import Spec
from lno.data import Fields
from lno.models import LNOPlus, LNOPlusConfig
from lno.models.interpolation import interpolate
from lno.models.layers import without_decay
from lno.models.lno_plus import Round, fourier_features
from lno.models.places import Places, cluster_centres, evenly_spread, spacing
from lno.models.streamed import slices

GENERATOR = torch.Generator().manual_seed(4)
TINY = {"width": 16, "latents": 9, "rounds": 2}


@pytest.mark.parametrize("config", [PLUS, PLUS_BY_POSITION], ids=["values", "positions"])
@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_chunks_equal_one_pass(config: LNOPlusConfig, chunk: int) -> None:
    model = build(config, torch.float64)
    x, u, q = inputs(n=60, q=45, dtype=torch.float64)
    mask = torch.rand(2, 60, generator=GENERATOR) < 0.5
    mask[1, :30] = False  # whole chunks of padding
    weights = torch.rand(2, 60, generator=GENERATOR, dtype=torch.float64)
    weights[0, 30:45] = 0.0  # and of points of size zero
    parts = [(x[:, s], u[:, s], mask[:, s], weights[:, s]) for s in slices(60, chunk)]
    z = model.encode_parts(lambda: parts)
    known = interpolate(x, u, q, mask, weights) if config.values else None
    y = torch.cat(
        [
            model.decode(z, q[:, s], None if known is None else known[:, s])
            for s in slices(45, chunk)
        ],
        dim=1,
    )
    assert close(y, model(x, u, q, mask, weights), 1e-12)


def test_decoding_without_the_values_it_needs_is_an_error() -> None:
    model, (x, u, q) = build(PLUS), inputs()
    z = model.encode_parts(lambda: [(x, u, None, None)])
    with pytest.raises(ValueError, match="expected the values at x_query"):
        model.decode(z, q)
    with pytest.raises(ValueError, match="at least one observed point"):
        model.encode_parts(list)


def test_predictions_near_an_observed_point_are_near_those_at_it() -> None:
    """Values at queries are interpolated continuously, also from one observation to the next."""
    model, (x, u, _) = build(PLUS, torch.float64), inputs(n=20, dtype=torch.float64)
    a, b = x[:, 0], x[:, 1]
    steps = torch.linspace(0, 1, 401, dtype=torch.float64)[:, None]
    line = a[:, None] + steps * (b - a)[:, None]
    y = model(x, u, line)
    assert close(y[:, :1], model(x, u, x)[:, :1], 1e-12)
    jumps = (y[:, 1:] - y[:, :-1]).abs().amax()
    assert jumps < 0.1 * (y.amax() - y.amin())


def test_positions_alone_do_not_see_values_at_the_queries() -> None:
    """With one latent position all queries read the same token: only values tell them apart."""
    spec, x = Spec(1, 1, 1), torch.tensor([[[-1.0], [0.0], [1.0]]])
    u = torch.tensor([[[0.0], [5.0], [0.0]]])
    swapped = u[:, [1, 0, 2]]
    for values, differ in ((True, True), (False, False)):
        torch.manual_seed(0)
        config = LNOPlusConfig(16, 1, 1, octaves=0, located=False, values=values)
        model = LNOPlus(spec, config)
        with torch.no_grad():  # no scores: the token is the mean over all points,
            model.rounds[0].attention.projector.output.weight.zero_()
            model.branch.input.weight[:, 0] = 0.0  # whose features do not depend on positions
        first, second = model(x, u, x), model(x, swapped, x)
        assert close(first, second, 1e-5) != differ


def test_processes_that_split_points_do_not_interpolate() -> None:
    model, (x, u, q) = build(PLUS), inputs()
    model.reduce_with(lambda sums: sums)
    assert close(model(x, u, x), build(PLUS)(x, u, x), 1e-5)
    with pytest.raises(ValueError, match=r"set LNOPlusConfig\.values to False"):
        model(x, u, q)


# -- Fourier features --------------------------------------------------------------------------


def test_octaves_double_their_frequency() -> None:
    """Shifting x by one wavelength of an octave leaves it and all finer ones as they are."""
    x = torch.linspace(-1.7, 1.7, 50, dtype=torch.float64)[:, None]
    there = fourier_features(x, 4)
    for k, wavelength in enumerate((8.0, 4.0, 2.0, 1.0)):
        moved = fourier_features(x + wavelength, 4)
        same = (moved - there).abs().amax(dim=0) < 1e-12
        assert same.tolist() == [False] + 2 * ([False] * k + [True] * (4 - k))


def test_fourier_features_learn_fine_functions_sooner() -> None:
    x = torch.linspace(-1.7, 1.7, 100)[None, :, None]
    u, y = torch.zeros(1, 100, 0), torch.sin(9 * x)
    losses = {}
    for octaves in (0, 4):
        torch.manual_seed(0)
        config = LNOPlusConfig(width=16, latents=4, rounds=1, octaves=octaves, located=False)
        model = LNOPlus(Spec(1, 0, 1), config)
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for _ in range(60):
            loss = (model(x, u, x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses[octaves] = loss.item()
    assert losses[4] < 0.1 * losses[0]


# -- located latents ---------------------------------------------------------------------------


def test_scores_by_distance_are_those_of_gaussians() -> None:
    places = Places(4, 2).double()
    with torch.no_grad():
        places.log_widths.copy_(torch.tensor([0.1, -0.2, 0.3, 0.0]))
    x = torch.randn(1, 7, 2, generator=GENERATOR, dtype=torch.float64)
    for m in range(4):
        square = (x[0] - places.centres[m]).square().sum(-1)
        expected = -square / (2 * torch.exp(places.log_widths[m]) ** 2)
        assert torch.allclose(places(x)[0, :, m], expected, atol=1e-12)


def test_tokens_start_as_patches_of_the_domain() -> None:
    """Each latent position reads near its place at first; without places, all read alike."""
    spreads = {}
    x = torch.rand(1, 2000, 2, generator=GENERATOR) * 12**0.5 - 3**0.5
    for located in (True, False):
        torch.manual_seed(0)
        model = LNOPlus(Spec(2, 0, 1), LNOPlusConfig(32, 25, 2, 1, 4, located=located))
        scores = model.rounds[0].scores(model._positions(x))
        means = torch.softmax(scores, dim=1)[0].T @ x[0]
        spreads[located] = float(means.std(dim=0).mean().detach())
        if located:
            assert close(means, model.places.centres, 0.25)
    assert spreads[True] > 0.8 > 3 * spreads[False]


@pytest.mark.parametrize("coordinates", [1, 2, 3, 4])
def test_places_without_data_fill_the_box(coordinates: int) -> None:
    points = evenly_spread(4**coordinates, coordinates)
    assert np.abs(points).max() < 3**0.5
    halves = (points > 0).astype(int) @ 2 ** np.arange(coordinates)
    counts = np.bincount(halves, minlength=2**coordinates)
    assert counts.min() >= 0.5 * counts.mean()


def test_cluster_centres_follow_the_points_and_the_seed() -> None:
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 3000)
    ring = np.stack((np.cos(angle), np.sin(angle)), -1)
    centres = cluster_centres(ring, 40, seed=1)
    assert np.abs(np.linalg.norm(centres, axis=1) - 1).max() < 0.05  # no place in the hole
    around = np.sort(np.arctan2(centres[:, 1], centres[:, 0]))
    assert np.diff(around).max() < 4 * 2 * np.pi / 40
    assert np.array_equal(centres, cluster_centres(ring, 40, seed=1))
    assert not np.array_equal(centres, cluster_centres(ring, 40, seed=2))


@pytest.mark.parametrize("count", [1, 2, 30])
def test_fewer_points_than_latent_positions(count: int) -> None:
    points = np.arange(2.0 * count).reshape(count, 2)
    centres = cluster_centres(points, 30, seed=0)
    assert centres.shape == (30, 2) and np.isfinite(centres).all()
    assert np.isfinite(np.log(spacing(centres)))


def test_fit_places_the_latents_over_the_training_points() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(8, 50, 2)) * [1.0, 0.1] + [5.0, 0.0]  # a strip, different in each sample
    data = Fields(x, u=x[..., :1], y=x[..., 1:])
    recipe = {"learning_rate": 1e-12}
    op = lno.Operator.fit(
        data, model="lno_plus", config=TINY, epochs=1, recipe=recipe, members=2, progress=False
    )
    encoded = op.normalizers.encode(data.batch(np.arange(8))).x.reshape(-1, 2)
    nearest = [
        torch.cdist(model.places.centres.cpu(), encoded).amin(dim=1).max() for model in op.members
    ]
    assert max(nearest) < 0.3
    assert not torch.equal(op.members[0].places.centres, op.members[1].places.centres)


def test_weight_decay_leaves_places_and_widths_alone() -> None:
    model, without = build(PLUS), build(replace(PLUS, located=False))
    assert without_decay(model) == {model.places.centres, model.places.log_widths}
    assert without_decay(without) == set()


# -- values at other points --------------------------------------------------------------------


def smooth(values: bool) -> tuple[lno.Operator, np.ndarray, np.ndarray, np.ndarray]:
    """A trained operator, positions of a sample and its values, and query positions between."""
    rng = np.random.default_rng(0)
    axis = np.linspace(0, 1, 14)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    u = np.sin(4 * grid[None, :, :1] + rng.uniform(0, 3, (12, 1, 1)))
    data = Fields(grid, u, y=2 * u)
    keys = {"config": {**TINY, "values": values}, "epochs": 4, "device": "cpu"}
    op = lno.Operator.fit(data, model="lno_plus", progress=False, **keys)
    return op, grid, u[0], rng.uniform(0.05, 0.95, (80, 2))


@pytest.mark.parametrize("values", [True, False])
def test_predictions_of_many_points_equal_those_of_few(
    values: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streamed in chunks, with values interpolated from nearest neighbours, and all at once."""
    op, x, u, q = smooth(values)
    whole, at_x = op.predict(x, u, q), op.predict(x, u)
    monkeypatch.setattr("lno.prediction.CHUNK", 33)
    scale = np.abs(whole).max()
    assert np.abs(op.predict(x, u, q) - whole).max() < 1e-5 * scale
    assert np.abs(op.predict(x, u) - at_x).max() < 1e-5 * scale


def test_many_pairs_of_points_are_interpolated_from_neighbours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    op, x, u, q = smooth(values=True)
    whole, at_x = op.predict(x, u, q), op.predict(x, u)
    monkeypatch.setattr("lno.prediction.PAIRS", len(x) * len(q) - 1)
    monkeypatch.setattr("lno.models.lno_plus.interpolate", None)
    assert np.abs(op.predict(x, u, q) - whole).max() < 1e-5 * np.abs(whole).max()
    assert np.array_equal(op.predict(x, u), at_x)  # with nothing to interpolate


def test_defaults_depend_on_where_predictions_are_wanted() -> None:
    x, q = np.random.default_rng(0).uniform(size=(2, 6, 20, 1))
    same = Fields(x, u=x, y=x)
    other = Fields(x, u=x, x_query=q, y=q)
    fit = {"model": "lno_plus", "config": {}, "epochs": 1, "progress": False}  # default sizes
    assert lno.Operator.fit(same, **fit).model.config == LNOPlusConfig()
    assert lno.Operator.fit(other, **fit).model.config == LNOPlusConfig(values=False)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"local": 4}, "local must be odd, got 4"),
        ({"local": 65}, "local must be a whole number from 3 to 63"),
        ({"rounds": 0}, "rounds must be a whole number from 1 to 128"),
        ({"located": 1}, "located must be True or False"),
    ],
)
def test_impossible_settings_are_errors(keys: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LNOPlusConfig(**keys)


def test_convolutions_need_a_grid_and_values() -> None:
    local = replace(PLUS, local=3)
    with pytest.raises(ValueError, match=r"needs data on a 2-D grid.* got grid None"):
        LNOPlus(Spec(2, 1, 1), local)
    with pytest.raises(ValueError, match="needs values=True"):
        LNOPlus(Spec(2, 1, 1, (4, 5)), replace(local, values=False))


@pytest.mark.parametrize("periodic", [(True, True), (True, False), ()])
def test_convolutions_go_round_periodic_axes(periodic: tuple[bool, ...]) -> None:
    """Shifting the stream along a periodic axis shifts what a round makes of it."""
    spec = Spec(2, 1, 1, (6, 8), periodic)
    torch.manual_seed(0)
    round_ = Round(spec, replace(PLUS, local=5))
    h, z = torch.randn(1, 48, PLUS.width), torch.randn(1, PLUS.latents, PLUS.width)
    alike = torch.zeros(1, 48, PLUS.latents)  # all points read the same

    def shifted(values: torch.Tensor, axis: int) -> torch.Tensor:
        return values.unflatten(1, (6, 8)).roll(2, 1 + axis).flatten(1, 2)

    with torch.no_grad():
        after = round_.update(h, alike, z)
        for axis, wraps in enumerate(periodic or (False, False)):
            found = round_.update(shifted(h, axis), alike, z)
            assert close(found, shifted(after, axis), 1e-5) == wraps


def test_operators_know_which_axes_are_periodic(tmp_path: Path) -> None:
    side = np.arange(8) / 8
    x = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    u = np.random.default_rng(0).normal(size=(6, 64, 1))
    data = Fields(x, u, y=u, grid=(8, 8), period=(1.0, None))
    config = {**TINY, "local": 3}
    operator = lno.Operator.fit(data, model="lno_plus", config=config, epochs=1, progress=False)
    assert operator.model.spec.periodic == (True, False)
    operator.save(tmp_path / "m.safetensors")
    again = lno.Operator.load(tmp_path / "m.safetensors")
    assert again.model.spec == operator.model.spec
    assert np.array_equal(again.predict(x, u), operator.predict(x, u))
    with pytest.raises(ValueError, match="more than twice around the periodic grid"):
        LNOPlus(Spec(3, 1, 1, (8, 8), (True, False)), replace(PLUS, local=19))
    with pytest.raises(ValueError, match="one value for each axis of the grid"):
        Spec(3, 1, 1, (8, 8), (True,))
