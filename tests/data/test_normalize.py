"""Normalisers: standard scale going in, the same numbers coming out."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lno.data import Fields
from lno.data.columns import Ragged
from lno.data.normalize import Coordinates, Normalizers, Standardizer

prove = settings(derandomize=True, deadline=None, max_examples=40)


def draw(sizes, c=2, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((n, c)) * [3, 1e-4] + [50, -2]).astype(dtype) for n in sizes]


@prove
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 99))
def test_encoded_training_data_have_mean_zero_and_std_one(sizes, seed):
    arrays = draw([*sizes, 2], seed=seed)
    fitted = Standardizer.fit([Ragged.pack(arrays)], len(arrays))
    encoded = fitted.encode(torch.tensor(np.concatenate(arrays)))
    np.testing.assert_allclose(encoded.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(encoded.std(0, correction=0), 1, rtol=1e-5)


@prove
@given(
    st.floats(-1e6, 1e6, allow_nan=False),
    st.floats(1e-3, 1e3),
    st.integers(0, 99),
)
def test_decoding_undoes_encoding(mean, std, seed):
    values = torch.tensor(np.random.default_rng(seed).normal(mean, std, (1, 20, 1)))
    fitted = Standardizer.fit([values.numpy()], 1)
    back = fitted.decode(fitted.encode(values).double())
    # Half a unit in the last place of the encoded float32, in physical units.
    tolerance = 2e-7 * float(fitted.encode(values).abs().max()) * fitted.std[0] + 1e-9 * abs(mean)
    np.testing.assert_allclose(back, values, rtol=0, atol=tolerance)


def test_padding_has_no_part_in_the_statistics():
    arrays = draw([3, 7, 1])
    ragged = Standardizer.fit([Ragged.pack(arrays)], 3)
    flat = Standardizer.fit([np.concatenate(arrays)[None]], 1)
    np.testing.assert_allclose(ragged.mean, flat.mean, rtol=1e-12)
    np.testing.assert_allclose(ragged.std, flat.std, rtol=1e-9)
    part = Standardizer.fit([Ragged.pack(arrays).take([1])], 1)
    alone = Standardizer.fit([arrays[1][None]], 1)
    assert part == alone, "samples outside a subset do not count"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("constant", [0.0, 1.0, 0.1, -7.3e-12, 1e8 / 3, -1.2345678e30])
def test_constants_come_back_exactly(constant, dtype):
    values = np.full((3, 1001, 1), constant, dtype=dtype)
    fitted = Standardizer.fit([values], 3)
    encoded = fitted.encode(torch.tensor(values))
    assert encoded.abs().max() <= 1e-6 * abs(constant)
    back = fitted.decode(torch.zeros(4, 1))
    assert torch.equal(back, torch.full((4, 1), float(constant), dtype=torch.float32))
    again = fitted.decode(fitted.encode(torch.tensor(values)))
    assert torch.equal(again, torch.tensor(values).float())


def test_large_means_keep_their_digits():
    """Map coordinates: metres apart, a thousand kilometres from the origin."""
    offsets = np.random.default_rng(0).uniform(0, 50, (200, 1))
    fitted = Standardizer.fit([1e6 + offsets], 1)
    expected = (offsets - offsets.mean()) / offsets.std()
    encoded = fitted.encode(torch.tensor(1e6 + offsets))
    np.testing.assert_allclose(encoded, expected, atol=1e-6)


@pytest.mark.parametrize("spread", [0.5, 1e-2, 1e-4])
def test_small_offsets_in_double_precision_are_no_constants(spread):
    offsets = np.random.default_rng(0).uniform(0, spread, (200, 1))
    fitted = Standardizer.fit([1e6 + offsets], 1)
    encoded = fitted.encode(torch.tensor(1e6 + offsets))
    assert float(encoded.std()) == pytest.approx(1, rel=1e-2)


def test_single_precision_statistics_of_many_values():
    values = np.full((1, 2_000_000, 1), 0.1, dtype=np.float32)
    values[0, ::2] = 0.3
    fitted = Standardizer.fit([values], 1)
    assert fitted.mean[0] == pytest.approx(0.2, rel=1e-7)
    assert fitted.std[0] == pytest.approx(0.1, rel=1e-6)


def test_fitted_on_what_is_given_alone():
    fields = Fields(np.arange(4.0)[:, None], np.random.default_rng(0).random((6, 4, 1)))
    train, test = fields.split(4, 2)
    test.u[:] = 1e9  # a view: whatever the test part holds must not matter
    again = Fields(np.arange(4.0)[:, None], np.random.default_rng(0).random((6, 4, 1))[:4])
    assert Standardizer.fit([train.u], 4) == Standardizer.fit([again.u], 4)


def test_observed_and_query_positions_share_one_scale():
    x, x_query = [np.zeros((2, 1)), np.zeros((1, 1))], [np.full((3, 1), 4.0)] * 2
    fitted = Coordinates.fit(Fields(x, x_query=x_query))
    both = np.array([0.0] * 3 + [4.0] * 6)
    assert fitted.scale.mean == pytest.approx([both.mean()])
    assert fitted.scale.std == pytest.approx([both.std()])


def test_points_that_all_samples_share_count_like_those_of_each():
    x = np.random.default_rng(0).random((5, 2))
    shared = Coordinates.fit(Fields(x, np.zeros((3, 5, 1))))
    each = Coordinates.fit(Fields(np.stack([x] * 3), np.zeros((3, 5, 1))))
    np.testing.assert_allclose(shared.scale.mean, each.scale.mean, rtol=1e-12)
    np.testing.assert_allclose(shared.scale.std, each.scale.std, rtol=1e-12)


@prove
@given(st.integers(-5, 5), st.floats(0.1, 100), st.integers(0, 99))
def test_periodic_coordinates_forget_whole_periods(turns, period, seed):
    x = np.random.default_rng(seed).uniform(0, period, (30, 2))
    fitted = Coordinates.fit(Fields(x, period=[None, period]))
    assert fitted.features == 3
    here = fitted.encode(torch.tensor(x))
    there = fitted.encode(torch.tensor(x + np.array([0, turns * period])))
    assert here.shape == (30, 3)
    np.testing.assert_allclose(there, here, atol=1e-6)
    np.testing.assert_allclose(here[:, 1] ** 2 + here[:, 2] ** 2, 1, atol=1e-6)
    angle = torch.atan2(here[:, 2], here[:, 1]).numpy() % (2 * np.pi)
    turn = np.abs(angle / (2 * np.pi) - x[:, 1] / period)
    assert np.all(np.minimum(turn, 1 - turn) < 1e-6), "the angle tells the position"


def test_coordinates_without_period_are_standardised():
    x = np.random.default_rng(0).random((30, 2)) * [1, 100]
    encoded = Coordinates.fit(Fields(x)).encode(torch.tensor(x))
    np.testing.assert_allclose(encoded, (x - x.mean(0)) / x.std(0), atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_models_read_single_precision(dtype):
    rng = np.random.default_rng(0)
    u = rng.random((3, 5, 2)).astype(dtype)
    fields = Fields(rng.random((5, 2)).astype(dtype), u, y=u, period=[1.0, None])
    batch = Normalizers.fit(fields).encode(fields.batch([0, 2]))
    assert {batch.x.dtype, batch.u.dtype, batch.y.dtype} == {torch.float32}
    assert batch.x_query is batch.x
    np.testing.assert_allclose(batch.y, (u[[0, 2]] - u.mean((0, 1))) / u.std((0, 1)), atol=1e-5)


def test_outputs_are_needed():
    with pytest.raises(ValueError, match="no outputs y"):
        Normalizers.fit(Fields(np.eye(2)))


@pytest.mark.parametrize(
    ("mean", "std"),
    [((0.0,), (0.0,)), ((0.0,), (-1.0,)), ((np.nan,), (1.0,)), ((0.0,), (np.inf,)), ((0.0,), ())],
)
def test_impossible_statistics(mean, std):
    with pytest.raises(ValueError, match="expected"):
        Standardizer(mean, std)


def test_no_channels():
    fitted = Standardizer.fit([np.zeros((2, 3, 0))], 2)
    assert fitted.encode(torch.zeros(2, 3, 0)).shape == (2, 3, 0)
    assert Standardizer.identity(2).encode(torch.tensor([3.0, -4.0])).tolist() == [3.0, -4.0]


@pytest.mark.parametrize("scale", [1e60, 1e-60])
def test_values_beyond_single_precision_ask_for_another_unit(scale: float) -> None:
    values = scale * np.random.default_rng(0).normal(size=(4, 5, 1))
    data = Fields(np.linspace(0, 1, 5)[:, None], y=values, names={"y": ["p"]})
    with pytest.raises(ValueError, match=r"y, channel 'p': .* single precision: choose a unit"):
        Normalizers.fit(data)
