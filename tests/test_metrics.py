"""Errors against numbers worked out by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lno.metrics import METRICS, mse, relative_l2, relative_mae

METRIC = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)


def test_by_hand():
    target = torch.tensor([[[3.0, 0.0], [0.0, 4.0]], [[1.0, -1.0], [1.0, -1.0]]])
    error = torch.tensor([[[1.0, 2.0], [-2.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]])
    # Sample 0: sqrt(1 + 4 + 4) / 5, 5/4 / (7/4), 9/4. Sample 1: 1/2, 1/4 / 1, 1/4.
    for metric, expected in (
        (relative_l2, [3 / 5, 1 / 2]),
        (relative_mae, [5 / 7, 1 / 4]),
        (mse, [9 / 4, 1 / 4]),
    ):
        assert metric(target + error, target).tolist() == pytest.approx(expected)


@METRIC
def test_padding_does_not_count_whatever_it_holds(metric):
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(3, 6, 2, generator=generator)
    prediction = torch.randn(3, 6, 2, generator=generator)
    sizes = [6, 2, 1]
    mask = torch.arange(6) < torch.tensor(sizes)[:, None]
    expected = [
        float(metric(prediction[k : k + 1, :n], target[k : k + 1, :n])) for k, n in enumerate(sizes)
    ]
    for junk in (0.0, 1e30, math.nan, math.inf):
        p, t = (torch.where(mask[..., None], v, junk) for v in (prediction, target))
        assert metric(p, t, mask).tolist() == pytest.approx(expected)
        p.requires_grad_()
        metric(p, t, mask).sum().backward()
        assert torch.isfinite(p.grad).all()
        assert torch.all(p.grad[~mask] == 0)
        assert torch.all(p.grad[mask] != 0)


@METRIC
def test_a_full_mask_changes_nothing(metric):
    p, t = torch.randn(2, 2, 5, 3, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, 5, dtype=torch.bool)
    assert torch.allclose(metric(p, t, mask), metric(p, t))


@METRIC
def test_order_of_points_does_not_matter(metric):
    p, t = torch.randn(2, 2, 50, 3, generator=torch.Generator().manual_seed(0))
    order = torch.randperm(50, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(metric(p[:, order], t[:, order]), metric(p, t))


@METRIC
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_are_finite_where_error_or_target_vanish(metric, masked):
    target = torch.zeros(4, 3, 1)
    target[2:] = 1.0
    offset = torch.tensor([0.0, 0.5, 0.0, 0.5])[:, None, None]
    prediction = (target + offset).requires_grad_()
    mask = torch.tensor([[True, True, False]] * 4) if masked else None
    value = metric(prediction, target, mask)
    assert torch.isfinite(value).all()
    assert value[0] == value[2] == 0
    value.sum().backward()
    assert torch.isfinite(prediction.grad).all()
    assert torch.all(prediction.grad[[0, 2]] == 0)
    assert torch.all(prediction.grad[[1, 3], 0] > 0)


def test_the_absolute_error_where_the_target_is_zero():
    target, prediction = torch.zeros(1, 2, 1), torch.tensor([[[3.0], [-4.0]]])
    assert float(relative_l2(prediction, target)) == 5.0
    assert float(relative_mae(prediction, target)) == 3.5


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.floats(-12, 12), st.integers(0, 99))
def test_relative_errors_have_no_unit(power, seed):
    p, t = torch.randn(2, 1, 20, 2, generator=torch.Generator().manual_seed(seed))
    scale = 10.0**power
    for metric in (relative_l2, relative_mae):
        assert float(metric(p * scale, t * scale)) == pytest.approx(float(metric(p, t)), rel=1e-4)
    assert float(mse(p * 2, t * 2)) == pytest.approx(4 * float(mse(p, t)), rel=1e-4)


@pytest.mark.parametrize("scale", [1e25, 1e-25])
@pytest.mark.parametrize("metric", [relative_l2, relative_mae])
def test_relative_errors_in_extreme_units(metric, scale):
    """Particles per cubic metre reach 1e25; squares of that leave single precision."""
    p, t = torch.randn(2, 1, 20, 2, generator=torch.Generator().manual_seed(0))
    assert float(metric(p * scale, t * scale)) == pytest.approx(float(metric(p, t)), rel=1e-4)


@METRIC
def test_each_sample_is_measured_alone(metric):
    p, t = torch.randn(2, 4, 5, 3, generator=torch.Generator().manual_seed(0))
    together = metric(p, t)
    assert together.shape == (4,)
    alone = [float(metric(p[k : k + 1], t[k : k + 1])) for k in range(4)]
    assert together.tolist() == pytest.approx(alone)


@METRIC
def test_a_point_of_twice_the_weight_counts_like_two(metric):
    p, t = torch.randn(2, 3, 5, 2, generator=torch.Generator().manual_seed(0))
    counts = torch.tensor([1, 3, 1, 2, 1])
    expected = metric(*(v.repeat_interleave(counts, 1) for v in (p, t)))
    for weights in (counts[None].float(), 1e-3 * counts[None].float(), counts.float().repeat(3, 1)):
        assert torch.allclose(metric(p, t, None, weights), expected)
    assert not torch.allclose(metric(p, t), expected, rtol=1e-2)


@METRIC
def test_equal_weights_change_nothing(metric):
    p, t = torch.randn(2, 3, 5, 2, generator=torch.Generator().manual_seed(0))
    t[0] = 0.0  # where the error is absolute
    weights = torch.full((1, 5), 7.0)
    assert torch.allclose(metric(p, t, None, weights), metric(p, t))


@METRIC
def test_weights_of_padding_do_not_count(metric):
    p, t = torch.randn(2, 2, 6, 2, generator=torch.Generator().manual_seed(0))
    weights = torch.rand(2, 6, generator=torch.Generator().manual_seed(1)) + 0.1
    mask = torch.arange(6) < torch.tensor([4, 6])[:, None]
    expected = [
        float(metric(p[k : k + 1, :n], t[k : k + 1, :n], None, weights[k : k + 1, :n]))
        for k, n in enumerate((4, 6))
    ]
    for junk in (0.0, 1e30, math.nan):
        found = metric(p, t, mask, torch.where(mask, weights, junk))
        assert found.tolist() == pytest.approx(expected)
