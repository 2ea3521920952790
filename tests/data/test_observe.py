"""Sensors: who observes what, and how often."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lno.data import Fields
from lno.data.observe import Intervals, RandomRatio, Window

prove = settings(derandomize=True, deadline=None, max_examples=60)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def everywhere(b, n):
    return torch.ones(b, n, dtype=torch.bool)


# -- random sensors --------------------------------------------------------------------------------


@prove
@given(st.data())
def test_counts_and_subsets(data):
    n = data.draw(st.integers(1, 200))
    low = data.draw(st.floats(0.001, 1.0))
    high = data.draw(st.none() | st.floats(low, 1.0))
    points = data.draw(st.lists(st.integers(1, n), min_size=1, max_size=5))
    real = torch.zeros(len(points), n, dtype=torch.bool)
    for row, count in zip(real, points, strict=True):
        row[torch.randperm(n, generator=seeded(count))[:count]] = True
    index, mask = RandomRatio(low, high).draw(real, None, seeded(data.draw(st.integers(0, 99))))
    assert index.shape == mask.shape
    for k, count in enumerate(points):
        seen = index[k, mask[k]]
        assert len(set(seen.tolist())) == len(seen), "no point twice"
        assert real[k, seen].all(), "padding is never observed"
        # Rounding of a product in single precision may go either way.
        least = max(1, math.floor(low * count * (1 - 1e-6) - 0.5))
        most = max(1, math.ceil((high or low) * count * (1 + 1e-6) + 0.5))
        assert least <= len(seen) <= min(most, count)


@pytest.mark.parametrize(
    ("ratio", "n", "expected"),
    [
        (0.1, 1000, 100),
        (0.005, 16384, 82),
        (1.0, 77, 77),
        (0.2, 4, 1),
        (0.001, 3, 1),
        (0.5, 64, 32),
    ],
)
def test_a_fixed_ratio_is_that_many_sensors(ratio, n, expected):
    index, mask = RandomRatio(ratio).draw(everywhere(3, n), None, seeded(0))
    assert index.shape == (3, expected)
    assert mask.all()


def test_the_seed_decides():
    real = everywhere(4, 300)
    pattern = RandomRatio(0.02, 0.5)
    draws = [pattern.draw(real, None, seeded(s)) for s in (0, 0, 1)]
    assert torch.equal(draws[0][0], draws[1][0])
    assert torch.equal(draws[0][1], draws[1][1])
    assert not torch.equal(draws[0][0], draws[2][0])
    assert not torch.equal(draws[0][1], draws[2][1])


def test_every_draw_and_every_sample_is_another():
    generator = seeded(0)
    first, _ = RandomRatio(0.1).draw(everywhere(2, 500), None, generator)
    second, _ = RandomRatio(0.1).draw(everywhere(2, 500), None, generator)
    sets = [frozenset(row.tolist()) for row in (*first, *second)]
    assert len(set(sets)) == 4


def test_shapes_do_not_depend_on_the_draw():
    shapes = {
        RandomRatio(0.01, 0.3).draw(everywhere(2, 100), None, seeded(s))[0].shape
        for s in range(20)
    }  # fmt: skip
    assert shapes == {(2, 30)}


def test_every_point_is_equally_likely():
    index, mask = RandomRatio(0.1).draw(everywhere(4000, 50), None, seeded(0))
    hits = torch.bincount(index[mask], minlength=50).double() / 4000
    # Each is a mean of 4000 draws of probability 0.1: five standard deviations.
    assert torch.all((hits - 0.1).abs() < 5 * math.sqrt(0.1 * 0.9 / 4000))


def test_the_share_is_log_uniform():
    low, high, n = 0.01, 0.64, 2000
    _, mask = RandomRatio(low, high).draw(everywhere(1000, n), None, seeded(0))
    place = torch.log(mask.sum(1) / n / low) / math.log(high / low)  # uniform on 0..1
    for edge in (0.25, 0.5, 0.75):
        assert float((place < edge).double().mean()) == pytest.approx(edge, abs=0.07)


@pytest.mark.parametrize("bounds", [(0.0,), (-0.1,), (1.1,), (0.5, 0.4), (0.5, 1.1), (math.nan,),
                                    (True,), ("0.1",), (0.1, math.nan)])  # fmt: skip
def test_impossible_ratios(bounds):
    with pytest.raises(ValueError, match=r"RandomRatio\.(low|high) must be a number from"):
        RandomRatio(*bounds)


# -- regular sensors -------------------------------------------------------------------------------


@prove
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 7)), min_size=1, max_size=3))
def test_intervals_are_every_kth_point_of_the_grid(axes):
    grid, steps = tuple(a for a, _ in axes), tuple(s for _, s in axes)
    n = math.prod(grid)
    index, mask = Intervals(steps).draw(everywhere(2, n), grid, seeded(0))
    where = np.stack(np.unravel_index(np.arange(n), grid), axis=1)
    expected = np.flatnonzero(np.all(where % steps == 0, axis=1))
    assert index.tolist() == [expected.tolist()] * 2
    assert mask.all()


@pytest.mark.parametrize("grid", [None, (4,), (2, 2, 1)])
def test_intervals_need_their_grid(grid):
    with pytest.raises(ValueError, match="grid of 2 axes"):
        Intervals((2, 2)).draw(everywhere(1, 4), grid, seeded(0))


@pytest.mark.parametrize("step", [0, -1, 1.5, True])
def test_impossible_intervals(step):
    with pytest.raises(ValueError, match=r"Intervals\.steps\[1\]"):
        Intervals((2, step))


# -- windows ---------------------------------------------------------------------------------------


def on_grid(s=3):
    t, x = np.meshgrid(np.linspace(0, 1, 5), np.linspace(0, 2, 4), indexing="ij")
    place = np.stack((t.ravel(), x.ravel()), axis=1)
    y = np.arange(s)[:, None, None] * 100 + place[None] * [10, 1]
    return Fields(place, y=y, grid=(5, 4), period=[None, 2.5], frame="lab",
                  names={"x": ["t", "x"], "y": ["a", "b"]}, units={"x": ["s", "m"]})  # fmt: skip


def test_a_window_of_a_shared_grid_is_a_grid():
    fields = on_grid()
    for window, shape in (
        (Window("t", 0.25, 0.5), (2, 4)),
        (Window("x", 0.6, 2.0), (5, 3)),
        (Window("t", -math.inf, math.inf), (5, 4)),
        (Window("t", 1.0, 1.0), (1, 4)),
    ):
        part = window.restrict(fields)
        assert part.grid == shape
        assert part.x.ndim == 2
        assert len(part) == 3
        column = fields.names["x"].index(window.coordinate)
        inside = (fields.x[:, column] >= window.low) & (fields.x[:, column] <= window.high)
        np.testing.assert_array_equal(part.x, fields.x[inside])
        np.testing.assert_array_equal(part.y, fields.y[:, inside])
        assert (part.period, part.names["x"], part.names["y"], part.units["x"], part.frame) == (
            (None, 2.5), ["t", "x"], ["a", "b"], ["s", "m"], "lab",
        )  # fmt: skip


def test_a_window_that_cuts_a_grid_askew_has_no_grid():
    angle = np.linspace(0, 3, 12)
    fields = Fields(np.stack((np.cos(angle), np.sin(angle)), 1), y=np.zeros((1, 12, 1)),
                    grid=(3, 4))  # fmt: skip
    part = Window("x0", -0.5, 0.99).restrict(fields)
    assert part.grid is None
    assert 1 < len(part[0].x) < 12


def test_a_window_restricts_each_sample_by_its_own_points():
    rng = np.random.default_rng(0)
    x = [rng.random((n, 2)) for n in (30, 50, 40)]
    y = [p.sum(1, keepdims=True) for p in x]
    part = Window("x1", 0.25, 0.75).restrict(Fields(x, y=y))
    for got, p, v in zip(part, x, y, strict=True):
        inside = (p[:, 1] >= 0.25) & (p[:, 1] <= 0.75)
        np.testing.assert_array_equal(got.x, p[inside])
        np.testing.assert_array_equal(got.y, v[inside])


def test_a_window_looks_at_the_query_points():
    fields = Fields(np.zeros((1, 1)), np.ones((2, 1, 1)), np.arange(6.0)[:, None],
                    np.arange(12.0).reshape(2, 6, 1))  # fmt: skip
    part = Window("x0", 2, 3).restrict(fields)
    np.testing.assert_array_equal(part.x, [[2.0], [3.0]])
    np.testing.assert_array_equal(part.y[:, :, 0], [[2, 3], [8, 9]])
    assert part.spec.in_channels == 0


def test_windows_read_files_lazily(tmp_path):
    fields = on_grid()
    fields.save(tmp_path / "a.h5")
    lazy = Fields.load(tmp_path / "a.h5", lazy=True)
    window = Window("x", 0.0, 1.0)
    assert window.restrict(lazy).digest == window.restrict(fields).digest


def test_a_window_without_points_names_the_sample():
    with pytest.raises(ValueError, match=r"Window\(.*no point of sample 0"):
        Window("t", 5, 6).restrict(on_grid())
    ragged = Fields([np.zeros((2, 1)), np.ones((1, 1))], y=[np.zeros((2, 1)), np.ones((1, 1))])
    with pytest.raises(ValueError, match="no point of sample 1"):
        Window("x0", -1, 0).restrict(ragged)


def test_wrong_windows():
    with pytest.raises(ValueError, match="'z': the coordinates are t, x"):
        Window("z", 0, 1).restrict(on_grid())
    with pytest.raises(ValueError, match="low <= high"):
        Window("t", 1, 0)
    with pytest.raises(ValueError, match="low <= high"):
        Window("t", math.nan, 0)
    with pytest.raises(ValueError, match="no outputs"):
        Window("x0", 0, 1).restrict(Fields(np.eye(2)))
