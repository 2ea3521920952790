"""Nyström attention (Xiong et al., "Nyströmformer", AAAI 2021), as the published ONO uses it.

    q̂, k̂ = means of l consecutive queries and keys,  l = N / 256        landmarks
    A₁ = softmax(q k̂ᵀ),  A₂ = softmax(q̂ k̂ᵀ),  A₃ = softmax(q̂ kᵀ)
    Attention = Output(A₁ Z A₃ v + convolution(v)),   Z ≈ A₂⁺

Z comes from six steps of an iteration for the pseudo-inverse, from A₂ᵀ / (‖A₂‖₁ ‖A₂‖∞)
(`lno.models.attention.pseudo_inverse`).

As published: queries are scaled by 1/√e. Points of zeros are put in front, until 256 divides their
number, and are read like the others. The convolution is along the sequence of the points, with one
kernel of 33 weights for each head. The two norms are maxima over the whole batch and all heads, and
six steps do not converge: what one sample gets depends on the others in its batch. Landmarks and
convolution depend on the order of the points.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lno.models.attention import pseudo_inverse
from lno.models.layers import full_precision

LANDMARKS = 256
KERNEL = 33  # points that the convolution reads


class NystromAttention(nn.Module):
    """Multi-head attention between points in time linear in their number, by landmarks.

    >>> NystromAttention(width=16, heads=4)(torch.rand(2, 30, 16)).shape
    torch.Size([2, 30, 16])
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.convolution = nn.Conv2d(
            heads, heads, (KERNEL, 1), padding=(KERNEL // 2, 0), groups=heads, bias=False
        )
        self.output = nn.Linear(width, width)

    def forward(
        self, f: Float[Tensor, "b n c"], mask: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n c"]:
        if mask is not None:
            raise ValueError(
                "Nyström attention takes no mask, expected samples with the same number of "
                'points: use attention="linear" or attention="softmax" for others'
            )
        n = f.shape[1]
        f = F.pad(f, (0, 0, -n % LANDMARKS, 0))
        projected = self.query_key_value(f).unflatten(-1, (3, self.heads, -1))
        q, k, v = projected.permute(2, 0, 3, 1, 4)  # each (b, h, n, e)
        local = self.convolution(v)
        with full_precision(f):  # the iteration needs it, and A₃ v sums over the points
            dtype = torch.promote_types(v.dtype, torch.float32)
            q, k, v = q.to(dtype) * q.shape[-1] ** -0.5, k.to(dtype), v.to(dtype)
            q_mean, k_mean = (w.unflatten(2, (LANDMARKS, -1)).mean(dim=3) for w in (q, k))
            a1, a2, a3 = (
                torch.softmax(a @ b.mT, dim=-1)
                for a, b in ((q, k_mean), (q_mean, k_mean), (q_mean, k))
            )
            # Norms over the whole batch; the entries are positive
            start = a2.mT / (a2.sum(dim=-1).max() * a2.sum(dim=-2).max())
            read = a1 @ (pseudo_inverse(a2, start) @ (a3 @ v))
        heads = (read.to(local.dtype) + local)[:, :, -n:]
        return self.output(heads.transpose(1, 2).flatten(2))
