"""The optimiser against torch's own, and what it does with several kinds of weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lno import Spec
from lno.models import LNOPlus, LNOPlusConfig
from lno.training import optim
from lno.training.muon import orthogonal, orthogonal_together, stacks
from lno.training.optim import OPTIMIZERS, Optimizer, Rule
from lno.training.schedules import Pace, onecycle


def network(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(2, 40), nn.LayerNorm(40), nn.Linear(40, 24), nn.Linear(24, 40), nn.Linear(40, 1)
    ).to(dtype)


def differentiate(model: nn.Module, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    like = next(model.parameters())
    x = torch.randn(16, 2, generator=generator).to(like.dtype)
    model.zero_grad()
    (model(x) - x[:, :1].sin()).square().mean().backward()


def gather(optimizer: Optimizer) -> None:
    optimizer.gather(0, [p.grad for p in optimizer.parameters[0]])


@pytest.mark.parametrize("name", ["adamw", "adam"])
@pytest.mark.parametrize("decay_all", [True, False])
def test_adam_and_adamw_are_torchs_step_for_step(name: str, decay_all: bool) -> None:
    """With a beta that moves, as in the paper's recipe."""
    ours, theirs = network(dtype=torch.float64), network(dtype=torch.float64)
    rule = OPTIMIZERS[name]
    optimizer = Optimizer([ours], rule, 0.1, decay_all, beta2=0.97)
    groups = [
        {"params": [p for p in theirs.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {
            "params": [p for p in theirs.parameters() if p.ndim == 1],
            "weight_decay": 0.1 if decay_all else 0.0,
        },
    ]
    cls = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
    torchs = cls(groups, lr=1.0)
    for step in range(30):
        pace = onecycle(step, 30)
        for group in torchs.param_groups:
            group.update(lr=1e-2 * pace.factor, betas=(pace.beta1, 0.97))
        differentiate(ours, step)
        gather(optimizer)
        optimizer.update(optimizer.numbers(step, 1e-2, pace))
        differentiate(theirs, step)
        torchs.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12)


def test_muon_is_torchs_for_matrices_and_adamw_for_the_rest() -> None:
    ours, theirs = network(), network()
    optimizer = Optimizer([ours], OPTIMIZERS["muon"], 0.1)
    matrices = [p for p in theirs.parameters() if p.ndim == 2 and min(p.shape) > 16]
    assert len(matrices) == 2
    rest = [p for p in theirs.parameters() if all(p is not q for q in matrices)]
    torchs = [
        torch.optim.Muon(matrices, lr=1e-2, weight_decay=0.1),
        torch.optim.AdamW(rest, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1),
    ]
    start = torch.cat([p.detach().flatten() for p in ours.parameters()])
    for step in range(8):
        for model in (ours, theirs):
            differentiate(model, step)
        gather(optimizer)
        optimizer.update(optimizer.numbers(step, 1e-3, Pace(1.0)))
        for each in torchs:
            each.step()
    a, b = (torch.cat([p.detach().flatten() for p in m.parameters()]) for m in (ours, theirs))
    assert (a - b).norm() < 0.02 * (a - start).norm()  # rounded to bfloat16 on the way


def test_orthogonal_brings_singular_values_near_one() -> None:
    torch.manual_seed(0)
    for shape in ((4, 30, 50), (2, 3, 50, 30)):
        values = torch.linalg.svdvals(orthogonal(torch.randn(shape, dtype=torch.float64)))
        assert 0.6 < values.min() < values.max() < 1.3


def test_padding_changes_nothing() -> None:
    """Matrices that are orthogonalised together come out as each on its own."""
    torch.manual_seed(0)
    shapes = ((3, 30, 50), (2, 50, 30), (1, 20, 20), (4, 50, 50))
    matrices = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    for found, m in zip(orthogonal_together(matrices), matrices, strict=True):
        torch.testing.assert_close(found, orthogonal(m), rtol=1e-9, atol=1e-9)
    for found, m in zip(orthogonal_together([m.float() for m in matrices]), matrices, strict=True):
        assert found.dtype == torch.float32  # iterated in bfloat16
        assert (found - orthogonal(m)).norm() < 0.05 * orthogonal(m).norm()


def test_stacks_hold_every_shape_once_and_none_is_padded_too_far() -> None:
    shapes = [torch.Size(s) for s in ((1, 18, 128), (2, 128, 19), (3, 128, 128), (1, 2048, 128))]
    assert stacks(shapes, 4.0) == [[0, 1], [2], [3]]
    assert stacks(shapes, 8.0) == [[0, 1, 2], [3]]
    assert sorted(stacks(shapes, 1.0)) == [[0], [1], [2], [3]]
    assert stacks([torch.Size((1, 40, 60)), torch.Size((1, 60, 40))], 1.0) == [[0], [1]]
    assert stacks([torch.Size((1, 30, 300)), torch.Size((1, 40, 40))], 4.0) == [[0], [1]]
    assert stacks([], 4.0) == []


def test_muon_takes_the_same_steps_with_stacks() -> None:
    """Which are those of a GPU."""
    alone, together = network(dtype=torch.float64), network(dtype=torch.float64)
    first = Optimizer([alone], OPTIMIZERS["muon"], 0.1)
    second = Optimizer([together], OPTIMIZERS["muon"], 0.1)
    assert (len(first.stacks), len(first.matrices)) == (2, 2)
    second.stacks = stacks([m.shape for m in second.matrices], optim.MOST_PADDING)
    assert len(second.stacks) == 1
    for step in range(8):
        for model, optimizer in ((alone, first), (together, second)):
            differentiate(model, step)
            gather(optimizer)
            optimizer.update(optimizer.numbers(step, 1e-3, Pace(1.0)))
    for p, q in zip(alone.parameters(), together.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12)


def test_clipping_is_torchs() -> None:
    ours, theirs = network(), network()
    optimizer = Optimizer([ours], OPTIMIZERS["adamw"])
    for limit in (1e-3, 1e3):
        for model in (ours, theirs):
            differentiate(model, 0)
        gather(optimizer)
        optimizer.clip(limit)
        nn.utils.clip_grad_norm_(theirs.parameters(), limit)
        for p, g in zip(optimizer.parameters[0], optimizer.gradients[0], strict=True):
            name = next(n for n, q in ours.named_parameters() if q is p)
            torch.testing.assert_close(g, theirs.get_parameter(name).grad)


def test_a_parameter_without_a_gradient_stays() -> None:
    model = network()
    optimizer = Optimizer([model], Rule())
    before = model[0].weight.detach().clone()
    differentiate(model, 0)
    gather(optimizer)
    model[0].weight.grad = None
    gather(optimizer)
    optimizer.update(optimizer.numbers(0, 1e-2, Pace(1.0)))
    assert torch.equal(model[0].weight, before)
    assert not torch.equal(model[4].weight, network()[4].weight)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_places_of_latent_positions_do_not_decay(name: str) -> None:
    model = LNOPlus(Spec(24, 1, 1), LNOPlusConfig(width=32, latents=20, rounds=1))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    optimizer = Optimizer([model], OPTIMIZERS[name], weight_decay=0.1)
    optimizer.gather(0, [None for _ in model.parameters()])
    optimizer.update(optimizer.numbers(0, 1e-2, Pace(1.0)))
    after = model.state_dict()
    for key in ("places.centres", "places.log_widths"):
        assert torch.equal(after[key], before[key])
    if not OPTIMIZERS[name].coupled:  # there, decay is a gradient, which Adam scales
        assert after["trunk.input.weight"].norm() < before["trunk.input.weight"].norm()
