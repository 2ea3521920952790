"""Learning-rate schedules against torch's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lno.training.schedules import SCHEDULES


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("onecycle", {"pct_start": 0.2, "div_factor": 1e4, "final_div_factor": 1e4}),
        ("onecycle_torch", {}),
    ],
)
def test_onecycle_is_torchs_step_for_step(name: str, numbers: dict) -> None:
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([parameter], betas=(0.9, 0.99))
    theirs = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=97, **numbers)
    for step in range(97):
        pace = SCHEDULES[name](step, 97)
        assert 1e-3 * pace.factor == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
        assert pace.beta1 == pytest.approx(optimizer.param_groups[0]["betas"][0], rel=1e-9)
        optimizer.step()
        theirs.step()


@pytest.mark.parametrize("total", [1, 2, 19, 40, 1000])
def test_linear_is_torchs_warmup_and_decay(total: int) -> None:
    warmup = max(1, total // 20)
    optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(1))], lr=1.0)
    rise = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / warmup, 1.0, max(1, warmup - 1))
    fall = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, max(1, total - warmup))
    theirs = torch.optim.lr_scheduler.SequentialLR(optimizer, [rise, fall], [warmup])
    for step in range(total):
        rate = optimizer.param_groups[0]["lr"]
        assert SCHEDULES["linear"](step, total).factor == pytest.approx(rate, rel=1e-9)
        optimizer.step()
        theirs.step()


def test_cosine_torch_is_torchs_at_the_beginning_of_every_epoch() -> None:
    optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    last = 2.0
    for epoch in range(20):
        factors = [SCHEDULES["cosine_torch"](7 * epoch + step, 140).factor for step in range(7)]
        assert factors[0] == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
        assert sorted([last, *factors], reverse=True) == [last, *factors]  # and falls between them
        last = factors[-1]
        optimizer.step()
        theirs.step()


@pytest.mark.parametrize(
    ("name", "epochs", "gamma"),
    [("step", 50, 0.7), ("halve_fifths", 100, 0.5), ("halve_tenths", 50, 0.5)],
)
def test_steps_are_torchs_in_the_published_500_epochs(name: str, epochs: int, gamma: float) -> None:
    """And the same shape in a run of any other length."""
    optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.StepLR(optimizer, step_size=epochs, gamma=gamma)
    for epoch in range(500):
        for step in range(3):
            factor = SCHEDULES[name](3 * epoch + step, 1500).factor
            assert factor == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
        assert SCHEDULES[name](epoch // 5, 100).factor == factor
        optimizer.step()
        theirs.step()


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("steps", [1, 2, 5, 6, 100])
def test_factors_are_between_zero_and_one_however_short_the_run(name: str, steps: int) -> None:
    factors = [SCHEDULES[name](k, steps).factor for k in range(steps)]
    assert all(0 <= factor <= 1 + 1e-12 for factor in factors)
    assert max(factors) > 0
