"""Attention between tokens: the usual one, and three whose cost is linear in the number of tokens.

    softmax     softmax(q kᵀ / √e) v                                      Vaswani et al., 2017
    efficient   softmax over features(q) · softmax over tokens(k)ᵀ v      Shen et al., 2021
    galerkin    q · LN(k)ᵀ LN(v) / m                                      Cao, 2021
    nystrom     softmax(q k̄ᵀ / √e) · softmax(q̄ k̄ᵀ / √e)⁺ · softmax(q̄ kᵀ / √e) v
                                                                          Xiong et al., 2021

in each head of e features, for m tokens. q̄ and k̄ are means over segments of consecutive tokens, the
landmarks; A⁺ is a pseudo-inverse. The LNO paper compares these in its Table 6. `ATTENTIONS` names
them: a new one is a subclass of `SelfAttention` with a `read` of its own.

All take a mask. All but Nyström's are equivariant to permutations of the tokens: its landmarks
depend on their order.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from lno.models.layers import full_precision, mean_token

# Up to this many attention weights in a block, unfused attention is faster on a GPU in float32: a
# fused kernel would leave most of the GPU idle.
SMALL_ATTENTION = 2**22
LANDMARKS = 64  # of Nyström attention, at most, and
ITERATIONS = 6  # of its pseudo-inverse: both as published


class SelfAttention(nn.Module):
    """Multi-head attention between tokens, whose keys are computed from centred tokens.

    A vector added to all keys adds the same number to all scores of a query, so the softmax does
    not depend on it. Its gradient is zero up to rounding errors, but Adam turns these into steps of
    full size. In long runs it would grow until bfloat16 scores hold nothing else. So keys have no
    bias and are computed from the tokens minus their mean, which leaves the result the same.

    >>> SelfAttention(width=16, heads=4)(torch.rand(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(
        self, z: Float[Tensor, "b m c"], mask: Bool[Tensor, "b m"] | None = None
    ) -> Float[Tensor, "b m c"]:
        """What each token reads from all tokens, or from those where the mask is True."""
        q, k, v = (
            projected.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for projected in self.project(z, mask)
        )
        return self.output(self.read(q, k, v, mask).transpose(1, 2).flatten(2))

    def project(
        self, z: Float[Tensor, "b m c"], mask: Bool[Tensor, "b m"] | None = None
    ) -> tuple[Float[Tensor, "b m c"], Float[Tensor, "b m c"], Float[Tensor, "b m c"]]:
        """Queries, keys and values: W (z − mean), plus W mean + bias for queries and values."""
        mean = mean_token(z, mask)[:, None]
        query, key, value = F.linear(z - mean, self.query_key_value.weight).chunk(3, dim=-1)
        of_query, _, of_value = self.query_key_value(mean).chunk(3, dim=-1)
        return query + of_query, key, value + of_value

    def read(
        self,
        q: Float[Tensor, "b h m e"],
        k: Float[Tensor, "b h m e"],
        v: Float[Tensor, "b h m e"],
        mask: Bool[Tensor, "b m"] | None = None,
    ) -> Float[Tensor, "b h m e"]:
        """What the heads read: softmax(q kᵀ / √e) v."""
        # Sizes are only asked for on a GPU: otherwise exported graphs would fix the batch.
        unfused = q.is_cuda and q.dtype == torch.float32 and mask is None
        unfused = unfused and q.shape[:-1].numel() * q.shape[2] <= SMALL_ATTENTION
        attended = None if mask is None else mask[:, None, None]
        with sdpa_kernel(SDPBackend.MATH) if unfused else nullcontext():
            return F.scaled_dot_product_attention(q, k, v, attn_mask=attended)


class EfficientSelfAttention(SelfAttention):
    """Softmax over features of the queries, softmax over tokens of the keys: Shen et al., 2021.

    Here, too, a vector added to all keys changes nothing. The code of the LNO paper has GNOT's form
    in its place (`lno.models.gnot`), which normalises keys over their features.

    >>> EfficientSelfAttention(width=16, heads=4)(torch.rand(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def read(
        self,
        q: Float[Tensor, "b h m e"],
        k: Float[Tensor, "b h m e"],
        v: Float[Tensor, "b h m e"],
        mask: Bool[Tensor, "b m"] | None = None,
    ) -> Float[Tensor, "b h m e"]:
        """What the queries read of one context, softmax over tokens(k)ᵀ v."""
        with full_precision(q):
            q, k, v = _float32(q, k, v)
            if mask is not None:
                k = k.masked_fill(~mask[:, None, :, None], torch.finfo(k.dtype).min)
            context = torch.einsum("bhme,bhmf->bhef", torch.softmax(k, dim=-2), v)
            return torch.einsum("bhme,bhef->bhmf", torch.softmax(q, dim=-1), context)


class GalerkinSelfAttention(SelfAttention):
    """Normalised keys and values, and no softmax: a Petrov–Galerkin projection (Cao, 2021).

    Layer norms over the features of a head, which all heads share. What all keys have in common
    counts here, so keys are those of the tokens as they are.

    >>> GalerkinSelfAttention(width=16, heads=4)(torch.rand(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads)
        self.norm_key, self.norm_value = (nn.LayerNorm(width // heads) for _ in range(2))

    def project(
        self, z: Float[Tensor, "b m c"], mask: Bool[Tensor, "b m"] | None = None
    ) -> tuple[Float[Tensor, "b m c"], Float[Tensor, "b m c"], Float[Tensor, "b m c"]]:
        """Queries, keys and values: W z + bias."""
        query, key, value = self.query_key_value(z).chunk(3, dim=-1)
        return query, key, value

    def read(
        self,
        q: Float[Tensor, "b h m e"],
        k: Float[Tensor, "b h m e"],
        v: Float[Tensor, "b h m e"],
        mask: Bool[Tensor, "b m"] | None = None,
    ) -> Float[Tensor, "b h m e"]:
        """What the queries read of one context, LN(k)ᵀ LN(v) / m, of the tokens in the mask."""
        with full_precision(q):
            q, k, v = _float32(q, k, v)
            k, v = self.norm_key(k), self.norm_value(v)
            if mask is None:
                k = k / k.shape[2]
            else:
                k = k.masked_fill(~mask[:, None, :, None], 0.0)
                k = k / mask.sum(dim=1)[:, None, None, None]
            return torch.einsum("bhme,bhef->bhmf", q, torch.einsum("bhme,bhmf->bhef", k, v))


class NystromSelfAttention(SelfAttention):
    """Softmax attention by way of landmarks, with an iterative pseudo-inverse (Xiong et al., 2021).

    The tokens are divided into at most `LANDMARKS` segments of nearly equal length. With no more
    tokens than that, each is its own landmark, and the result is softmax attention as far as the
    iteration has converged. There is no convolution over neighbouring values, which published
    variants add: latent positions have no neighbours.

    The result depends on the order of the tokens.

    >>> NystromSelfAttention(width=16, heads=4)(torch.rand(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def read(
        self,
        q: Float[Tensor, "b h m e"],
        k: Float[Tensor, "b h m e"],
        v: Float[Tensor, "b h m e"],
        mask: Bool[Tensor, "b m"] | None = None,
    ) -> Float[Tensor, "b h m e"]:
        """What the queries read by way of the landmarks; empty ones take no part."""
        with full_precision(q):
            q, k, v = _float32(q, k, v)
            tokens = torch.ones_like(q[:1, 0, :, 0], dtype=torch.bool) if mask is None else mask
            parts = segments(tokens, min(LANDMARKS, q.shape[2]))
            landmarks, means = parts.any(dim=-1), parts.to(q.dtype)
            means = means / means.sum(dim=-1, keepdim=True).clamp(min=1)
            q = q * q.shape[-1] ** -0.5
            q_mean, k_mean = (torch.einsum("blm,bhme->bhle", means, w) for w in (q, k))
            between = _weights(q_mean, k_mean, landmarks)
            between = between.masked_fill(~landmarks[:, None, :, None], 0.0)
            context = torch.einsum("bhlm,bhme->bhle", _weights(q_mean, k, tokens), v)
            context = pseudo_inverse(between) @ context
            return _weights(q, k_mean, landmarks) @ context


def segments(mask: Bool[Tensor, "b m"], count: int) -> Bool[Tensor, "b l m"]:
    """Which tokens belong to which of `count` segments of nearly equal length.

    Only tokens where the mask is True are counted; with fewer of them, the last segments are empty.

    >>> segments(torch.tensor([[True, True, False, True, True]]), 2).int()
    tensor([[[1, 1, 0, 0, 0],
             [0, 0, 0, 1, 1]]], dtype=torch.int32)
    """
    total = mask.sum(dim=1, keepdim=True).clamp(min=1)
    number = (mask.cumsum(dim=1) - 1) * total.clamp(max=count) // total
    return (number[:, None] == torch.arange(count, device=mask.device)[:, None]) & mask[:, None]


def pseudo_inverse(
    a: Float[Tensor, "*b l l"], start: Tensor | None = None, iterations: int = ITERATIONS
) -> Float[Tensor, "*b l l"]:
    """An approximation of the Moore–Penrose inverse by an iteration of third order.

    z ← z (13 I − a z (15 I − a z (7 I − a z))) / 4, from z = `start`. Without it, from
    z = aᵀ / (‖a‖₁ ‖a‖∞) with the norms of each matrix on its own, so that a result does not depend
    on the other samples of a batch.

    >>> pseudo_inverse(torch.tensor([[2.0, 0.0], [0.0, 0.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.0000]])
    """
    if start is None:
        one, most = a.abs().sum(dim=-2).amax(dim=-1), a.abs().sum(dim=-1).amax(dim=-1)
        start = a.mT / (one * most)[..., None, None]
    z = start
    identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    for _ in range(iterations):
        y = a @ z
        z = z @ (13 * identity - y @ (15 * identity - y @ (7 * identity - y))) / 4
    return z


def _weights(
    q: Float[Tensor, "b h q e"], k: Float[Tensor, "b h k e"], mask: Bool[Tensor, "#b k"]
) -> Float[Tensor, "b h q k"]:
    """softmax(q kᵀ) over the keys where the mask is True."""
    scores = torch.einsum("bhqe,bhke->bhqk", q, k)
    return torch.softmax(
        scores.masked_fill(~mask[:, None, None], torch.finfo(scores.dtype).min), dim=-1
    )


def _float32(*tensors: Tensor) -> tuple[Tensor, ...]:
    """In float32 or, if they are, in float64: softmaxes and sums over tokens need it."""
    return tuple(v.to(torch.promote_types(v.dtype, torch.float32)) for v in tensors)


ATTENTIONS: dict[str, type[SelfAttention]] = {
    "softmax": SelfAttention,
    "efficient": EfficientSelfAttention,
    "galerkin": GalerkinSelfAttention,
    "nystrom": NystromSelfAttention,
}
