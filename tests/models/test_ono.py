from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from small_models import (
    ONO_LINEAR,
    ONO_NYSTROM,
    ONO_SOFTMAX,
    all_close,
    build,
    close,
    initial,
    inputs,
    mask_of_lengths,
    shallow,
    value_and_gradient,
)
from test_published_models import inputs_of, load, open_fixture
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode

from lno import Spec
from lno.models import ONO, Demand, ONOConfig, from_reference, require_capable
from lno.models.attention import pseudo_inverse
from lno.models.ono import OrthogonalBlock
from lno.models.orthogonal import orthogonalise

FIXTURES = pytest.mark.parametrize("name", ["ono_grid", "ono_gridsa", "ono_cloudlin"])
MASKED = pytest.mark.parametrize("config", [ONO_LINEAR, ONO_SOFTMAX], ids=["linear", "softmax"])


def covariances(model: ONO) -> list[torch.Tensor]:
    return [block.covariance.clone() for block in model.blocks]


@FIXTURES
def test_training_keeps_the_published_running_covariance(name: str) -> None:
    """Two calls in training: outputs, and what evaluation reads after each of them."""
    file, model = load(name)
    trained = covariances(model)
    for block in model.blocks:
        block.covariance.zero_()
    model.train()
    with torch.no_grad():
        out = model(*inputs_of(file))
        first = covariances(model)
        out2 = model(*inputs_of(file, "input2"))
    assert close(out, torch.from_numpy(file["out_train"]), 1e-9)
    assert close(out2, torch.from_numpy(file["out_train2"]), 1e-9)
    for k, covariance in enumerate(first):
        expected = torch.from_numpy(file[f"cov_after_1/blocks.{k}.feature_cov"])
        assert close(covariance, expected, 1e-9)
    for covariance, expected in zip(covariances(model), trained, strict=True):
        assert close(covariance, expected, 1e-9)


def test_weights_that_were_never_trained_have_no_covariance() -> None:
    _, weights, config = open_fixture("ono_cloudlin")
    fresh = {k: v for k, v in weights.items() if "feature_cov" not in k}
    for given, known in ((weights, True), (fresh, False)):
        model = from_reference("ono", given, config)
        assert [bool(c.any()) for c in covariances(model)] == [known, known]


@pytest.mark.parametrize("setting", [{"unified_pos": 1}, {"attn_type": "quadratic"}])
def test_what_the_published_code_cannot_run_is_refused(setting: dict) -> None:
    _, weights, config = open_fixture("ono_cloudlin")
    with pytest.raises(ValueError, match="expected unified_pos 0 and attn_type linear, self"):
        from_reference("ono", weights, {"args": config["args"] | setting})


def test_functions_are_orthonormal_in_training() -> None:
    """Their products, averaged over the points of the batch, are the identity."""
    s = torch.randn(3, 50, 6, dtype=torch.float64) @ torch.randn(6, 6, dtype=torch.float64)
    flat = s.flatten(0, 1)
    orthonormal = orthogonalise(s, flat.T @ flat / len(flat)).flatten(0, 1)
    one = torch.eye(6, dtype=torch.float64)
    assert torch.allclose(orthonormal.T @ orthonormal / len(flat), one, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions_that_depend_on_each_other_give_no_nan(dtype: torch.dtype) -> None:
    """A covariance without Cholesky factor gets the least addition that gives it one."""
    s = torch.randn(2, 50, 1, dtype=dtype).repeat(1, 1, 4).requires_grad_()
    flat = s.flatten(0, 1)
    covariance = flat.T @ flat / len(flat)
    assert int(torch.linalg.cholesky_ex(covariance - 1e-7 * torch.eye(4)).info) > 0
    result = orthogonalise(s, covariance - 1e-7 * torch.eye(4, dtype=dtype))
    result.sum().backward()
    assert torch.isfinite(result).all() and torch.isfinite(s.grad).all()
    least = 1e-8 if dtype == torch.float64 else 1e-6
    one = torch.eye(2, dtype=dtype)
    shifted = orthogonalise(torch.ones(1, 1, 2, dtype=dtype), torch.zeros(2, 2, dtype=dtype))
    assert torch.allclose(shifted, torch.ones(1, 1, 2, dtype=dtype) @ one * least**-0.5)


class TenBits(TorchDispatchMode):
    """Products of float32 matrices read their factors with ten bits, as GPUs do in TF32."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        products = (torch.ops.aten.mm, torch.ops.aten.bmm, torch.ops.aten.addmm)
        if func.overloadpacket in products:
            args = tuple(map(ten_bits, args))
        return func(*args, **(kwargs or {}))


def ten_bits(v: torch.Tensor) -> torch.Tensor:
    if v.dtype != torch.float32:
        return v
    return ((v.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def test_products_of_ten_bits_leave_the_gradient_where_it_is() -> None:
    """Also if functions are nearly the same, so that orthogonal ones are small differences."""
    torch.manual_seed(0)
    block = OrthogonalBlock(ONOConfig(width=16, heads=4, modes=6))
    p, f = torch.randn(2, 2, 200, 16)
    with torch.no_grad():
        block.project.weight.copy_(torch.randn(16) + 0.01 * torch.randn(6, 16))
    gradients = []
    for dtype in (torch.float64, torch.float32):
        own = deepcopy(block).to(dtype)
        at = p.to(dtype).requires_grad_()
        with TenBits():
            own(at, f.to(dtype))[1].square().mean().backward()
        gradients.append(at.grad.double())
    exact, rounded = gradients
    assert (rounded - exact).norm() < 0.1 * exact.norm()


def test_evaluation_before_training_uses_the_functions_as_they_are() -> None:
    model, (x, u, _) = initial(ONO_LINEAR).eval(), inputs()
    before = model(x, u, x)
    for block in model.blocks:
        block.covariance.copy_(torch.eye(6))
    assert torch.equal(model(x, u, x), before)


@MASKED
def test_padding_counts_neither_in_training_nor_in_its_statistics(config: ONOConfig) -> None:
    """A padded batch gives the output, gradient and covariance of its real points."""
    model, (x, u, _) = build(config, torch.float64).train(), inputs(dtype=torch.float64)
    mask = mask_of_lengths(60, 23)
    before, results = covariances(model), []
    for scale in (0.0, 1e3):
        for block, value in zip(model.blocks, before, strict=True):
            block.covariance.copy_(value)
        padded_x, padded_u = (torch.where(mask[..., None], v, scale * v) for v in (x, u))
        y = model(padded_x, padded_u, padded_x, mask)[mask]
        model.zero_grad()
        y.square().mean().backward()
        gradients = [p.grad.clone() for p in model.parameters()]
        results.append([y.detach(), *gradients, *covariances(model)])
    assert all_close(*results, tolerance=1e-12)
    s = [[], []]
    hooks = [
        block.project.register_forward_hook(lambda *given, k=k: s[k].append(given[-1]))
        for k, block in enumerate(model.blocks)
    ]
    model(x, u, x, mask)
    for hook in hooks:
        hook.remove()
    for k, block in enumerate(model.blocks):
        real = s[k][0][mask]
        expected = 0.9 * results[0][-2 + k] + 0.1 * real.T @ real / mask.sum()
        assert close(block.covariance, expected, 1e-12)


def test_the_number_of_points_scales_the_kernel() -> None:
    model, (x, u, _) = build(ONO_LINEAR), inputs()
    once, twice = model(x, u, x), model(x2 := x.repeat(1, 2, 1), u.repeat(1, 2, 1), x2)
    assert not close(twice[:, :60], once, 1e-3)


def test_nystrom_attention_depends_on_order_and_batch_and_takes_no_mask() -> None:
    file, model = load("ono_grid")
    x, u, _ = inputs_of(file)
    model.requires_grad_(False).eval()
    together, alone = model(x, u, x), model(first := x[:1], u[:1], first)
    assert not close(together[:1], alone, 1e-6)
    order = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(2))
    assert not close(model(mixed := x[:, order], u[:, order], mixed), together[:, order], 1e-3)
    model, (x, u, _) = build(ONO_NYSTROM), inputs()
    with pytest.raises(ValueError, match="Nyström attention takes no mask"):
        model(x, u, x, mask_of_lengths(60, 23))
    with pytest.raises(ValueError, match=r"expected the same number of points in each, got .*use"):
        require_capable(model, "ono", Demand(Spec(2, 1, 3), ragged=True))


def test_pseudo_inverses_of_well_conditioned_matrices_from_joint_norms() -> None:
    noise = torch.rand(2, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    a = torch.softmax(4 * torch.eye(8, dtype=torch.float64) + noise, dim=-1)
    start = a.mT / (a.sum(dim=-1).max() * a.sum(dim=-2).max())
    assert close(pseudo_inverse(a, start), torch.linalg.inv(a), 1e-6)


@MASKED
def test_time_is_added_to_the_functions_only(config: ONOConfig) -> None:
    timed = replace(config, time_input=True)
    model, (x, u, _) = build(timed, torch.float64, in_channels=2), inputs(i=2, dtype=torch.float64)
    u[..., -1] = torch.tensor([[0.3], [-1.7]], dtype=torch.float64)
    plain = build(config, torch.float64)
    state = {k: v for k, v in model.state_dict().items() if ".time." not in k}
    plain.load_state_dict(state)
    expected = plain.stem_functions(x, u[..., :1])
    embedded = model.stem_functions(x, u) - expected
    assert close(embedded, embedded[:, :1].expand_as(embedded), 1e-12)
    assert not close(embedded[0], embedded[1], 1e-3)
    plain.stem_functions.forward = lambda x, values: expected + embedded
    assert close(model(x, u, x), plain(x, u[..., :1], x), 1e-12)


def test_one_graph_holds_a_training_step_and_its_statistics() -> None:
    """As training compiles it: a function of weights and buffers, which it changes in place."""
    eager, compiled = (build(shallow(ONO_SOFTMAX)).train() for _ in range(2))
    x, u, _ = inputs()
    step = torch.compile(
        lambda state, *batch: functional_call(compiled, state, batch),
        fullgraph=True,
        backend="aot_eager",
    )
    for _ in range(2):
        results = []
        state = dict([*compiled.named_parameters(), *compiled.named_buffers()])
        for y in (eager(x, u, x), step(state, x, u, x)):
            model = eager if not results else compiled
            results.append([*value_and_gradient(model, y), *covariances(model)])
        assert all_close(*results, tolerance=1e-4)
