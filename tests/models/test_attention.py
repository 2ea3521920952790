"""Attention between tokens: each form against its formula, its mask, and what it promises."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from by_hand import Layers
from scipy.special import softmax
from small_models import close

from lno.models import ATTENTIONS, LNOConfig, SelfAttention, TransformerBlock
from lno.models import attention as forms
from lno.models.attention import NystromSelfAttention, pseudo_inverse, segments

EVERY_FORM = pytest.mark.parametrize("name", ATTENTIONS)
Heads = Callable[[np.ndarray, np.ndarray, np.ndarray, Layers], np.ndarray]


def build(name: str, dtype: torch.dtype = torch.float64) -> SelfAttention:
    """Attention with weights away from their initial values."""
    torch.manual_seed(0)
    attention = ATTENTIONS[name](width=32, heads=4)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return attention.to(dtype).eval()


def tokens(m: int = 23, dtype: torch.dtype = torch.float64, b: int = 2) -> torch.Tensor:
    return torch.randn(b, m, 32, generator=torch.Generator().manual_seed(1), dtype=dtype)


def of_softmax(q: np.ndarray, k: np.ndarray, v: np.ndarray, _: Layers) -> np.ndarray:
    return softmax(q @ k.T / np.sqrt(8), axis=1) @ v


def of_efficient(q: np.ndarray, k: np.ndarray, v: np.ndarray, _: Layers) -> np.ndarray:
    """Not by way of the context: the weights of every pair of tokens."""
    return np.einsum("ie,je,jf->if", softmax(q, axis=1), softmax(k, axis=0), v)


def of_galerkin(q: np.ndarray, k: np.ndarray, v: np.ndarray, layers: Layers) -> np.ndarray:
    return q @ layers.norm("norm_key", k).T @ layers.norm("norm_value", v) / len(k)


def of_nystrom(q: np.ndarray, k: np.ndarray, v: np.ndarray, _: Layers) -> np.ndarray:
    parts = [np.arange(len(k)) * 5 // len(k) == part for part in range(5)]
    q_mean, k_mean = (np.stack([w[part].mean(0) for part in parts]) for w in (q, k))
    first, a, last = (
        softmax(left @ right.T / np.sqrt(8), axis=1)
        for left, right in ((q, k_mean), (q_mean, k_mean), (q_mean, k))
    )
    z, one = a.T / (a.sum(0).max() * a.sum(1).max()), np.eye(5)
    for _ in range(6):
        y = a @ z
        z = z @ (13 * one - 15 * y + 7 * y @ y - y @ y @ y) / 4
    return first @ z @ last @ v


BY_HAND: dict[str, Heads] = {
    "softmax": of_softmax,
    "efficient": of_efficient,
    "galerkin": of_galerkin,
    "nystrom": of_nystrom,
}


@EVERY_FORM
def test_each_form_is_its_formula(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "LANDMARKS", 5)
    attention, z = build(name), tokens()
    layers, expected = Layers(attention), []
    for sample in z.numpy():
        q, k, v = np.split(layers.linear("query_key_value", sample), 3, axis=1)
        heads = (np.split(w, 4, axis=1) for w in (q, k, v))
        read = [BY_HAND[name](*head, layers) for head in zip(*heads, strict=True)]
        expected.append(layers.linear("output", np.concatenate(read, axis=1)))
    # Rounding errors grow with the condition of what is inverted.
    tolerance = 1e-9 if name == "nystrom" else 1e-12
    assert close(attention(z), torch.from_numpy(np.stack(expected)), tolerance)


def test_the_forms_differ() -> None:
    outputs = [build(name)(tokens(100)) for name in ATTENTIONS]
    assert len(outputs) == 4
    for k, one in enumerate(outputs):
        assert all(not close(one, other, 1e-3) for other in outputs[:k])


@EVERY_FORM
@pytest.mark.parametrize("lengths", [(23, 1), (9, 23), (2, 5)])
def test_masked_tokens_are_not_read(
    name: str, lengths: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real tokens in any place, among junk, read what they read without it."""
    monkeypatch.setattr(forms, "LANDMARKS", 7)
    attention, z = build(name), tokens()
    order = torch.stack([torch.randperm(23) for _ in range(2)]).argsort(1)
    mask = order < torch.tensor(lengths)[:, None]
    junk = torch.where(mask[..., None], z, 1e3 * z).requires_grad_()
    together = attention(junk, mask)
    for k, n in enumerate(lengths):
        alone = attention(z[k, mask[k]][None])[0]
        assert alone.shape == (n, 32)
        assert close(together[k, mask[k]], alone, 1e-9)
    together[mask].square().sum().backward()
    assert not junk.grad[~mask].any() and torch.isfinite(junk.grad).all()


@EVERY_FORM
def test_a_mask_without_padding_changes_nothing(name: str) -> None:
    attention, z = build(name), tokens(100)
    assert close(attention(z, torch.ones(2, 100, dtype=torch.bool)), attention(z), 1e-12)


@EVERY_FORM
def test_all_but_nystrom_are_equivariant_to_the_order_of_tokens(name: str) -> None:
    attention, z = build(name), tokens(100)
    order = torch.randperm(100, generator=torch.Generator().manual_seed(3))
    same = close(attention(z[:, order]), attention(z)[:, order], 1e-9)
    assert same == (name != "nystrom")


@EVERY_FORM
def test_samples_do_not_influence_each_other(name: str) -> None:
    """The published pseudo-inverse starts from a maximum over the batch; ours from the sample's."""
    attention, z = build(name), tokens(100)
    z[1] *= 30
    assert close(attention(z)[:1], attention(z[:1]), 1e-12)


@pytest.mark.parametrize("name", ["softmax", "efficient", "nystrom"])
def test_what_all_keys_have_in_common_is_not_read(name: str) -> None:
    attention, z = build(name), tokens(100)
    plain = attention(z)
    with torch.no_grad():
        attention.query_key_value.bias[32:64] += 1e6
    assert torch.equal(attention(z), plain)


@EVERY_FORM
@pytest.mark.parametrize("masked", [False, True])
def test_half_precision_is_near_and_trains(name: str, masked: bool) -> None:
    block, z = TransformerBlock(32, build(name, torch.float32)), tokens(100, torch.float32)
    mask = torch.arange(100) < torch.tensor([[100], [40]]) if masked else None
    full = block(z, mask)
    with torch.autocast("cpu", torch.bfloat16):
        half = block(z, mask)
    assert close(half[:, :40], full[:, :40], 0.05)
    half.float().square().mean().backward()
    for key, parameter in block.named_parameters():
        assert torch.isfinite(parameter.grad).all(), key


@EVERY_FORM
def test_sums_over_many_tokens_are_taken_in_float32(name: str) -> None:
    """In bfloat16 a sum of ones stops growing at 256: a mean over 4,000 tokens would be far off."""
    attention = build(name, torch.float32)
    z = tokens(1, torch.float32).expand(-1, 4000, -1) + 0.01 * tokens(4000, torch.float32)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        half = attention(z)
    assert close(half, attention(z), 0.03)


def test_each_token_its_own_landmark_is_softmax_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    attention, plain = build("nystrom"), build("softmax")
    plain.load_state_dict(attention.state_dict())
    monkeypatch.setattr(forms, "pseudo_inverse", lambda a: pseudo_inverse(a, iterations=40))
    assert close(attention(tokens(12)), plain(tokens(12)), 1e-6)
    assert not close(attention(tokens(200)), plain(tokens(200)), 1e-3)


def test_the_pseudo_inverse_converges_to_that_of_numpy() -> None:
    random = np.random.default_rng(0)
    a = softmax(random.normal(size=(3, 6, 6)), axis=-1)
    a[2, 4:] = a[2, :, 4:] = 0.0  # singular: landmarks without tokens
    found = pseudo_inverse(torch.from_numpy(a), iterations=40)
    np.testing.assert_allclose(found, np.linalg.pinv(a, rcond=1e-10), rtol=1e-6, atol=1e-8)


def test_segments_are_consecutive_and_of_nearly_equal_length() -> None:
    mask = torch.rand(3, 50, generator=torch.Generator().manual_seed(2)) < 0.7
    mask[2, 4:] = False
    for real, found in zip(mask, segments(mask, 8), strict=True):
        assert torch.equal(found.sum(0), real.long())  # every real token once
        firsts = [int(row.nonzero()[0]) for row in found if row.any()]
        assert firsts == sorted(firsts)
        sizes = found.sum(1)[: min(8, int(real.sum()))]
        assert int(sizes.max() - sizes.min()) <= 1 and int(sizes.min()) > 0
    assert isinstance(build("nystrom"), NystromSelfAttention)


@pytest.mark.parametrize("wrong", ["linear", "", None, 3, ["softmax"]])
def test_other_names_are_errors(wrong: object) -> None:
    expected = "attention must be one of softmax, efficient, galerkin, nystrom, got"
    with pytest.raises(ValueError, match=expected):
        LNOConfig(attention=wrong)  # type: ignore[arg-type]


@pytest.mark.gpu
@EVERY_FORM
@pytest.mark.parametrize("masked", [False, True])
def test_gpu_equals_cpu(name: str, masked: bool) -> None:
    attention, z = build(name, torch.float32), tokens(256, torch.float32)
    mask = torch.arange(256) < torch.tensor([[256], [40]]) if masked else None
    expected = attention(z, mask)
    on_gpu = attention.cuda()(z.cuda(), None if mask is None else mask.cuda())
    assert close(on_gpu.cpu()[:, :40], expected[:, :40], 1e-4)
