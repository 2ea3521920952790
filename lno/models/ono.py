"""ONO (Xiao et al., "Improved Operator Learning by Orthogonal Attention", ICML 2024).

    p = Stem(x, u),  f = Stem(x, u) + placeholder       two kinds of features of the points
    p ← p + Attention(LN p);  p ← p + MLP(LN p)         L blocks: from p orthogonal functions s,
    s = Linear(p) L⁻ᵀ,  L Lᵀ = C                        whose covariance is the identity,
    f ← f + s · softplus(μ) · Σₙ sₙ fₙ                  which are the modes of a kernel on f
    f ← MLP(LN f)                                       without residual; not in the last block
    y = Linear(LN f)

C = mean of Linear(p) Linear(p)ᵀ over points and samples, not centred. In training it is that of the
batch, with gradients; a running mean of it, which starts with the first batch and moves by a tenth
of the way to each further one, is a buffer that evaluation reads, where C = 1 before any training.

Attention between the points is one of

    linear    Galerkin attention (`GalerkinAttention`)
    softmax   (softmax over features(q) / √e) · Σₙ softmax over points(k)ₙ vₙᵀ
    nystrom   A₁ Z A₃ v + convolution(v), an approximation of softmax(q kᵀ) v by 256 landmarks
              (Xiong et al., 2021; `NystromAttention`)

This is the form of the published library (thuml/Neural-Solver-Library), except that it can be
evaluated before training, and that C and L are in double precision (`precise`). As published, Σₙ is
not a mean: predictions depend on the number of points. Padding counts neither there nor in C. With
`time_input` the time is embedded and added to f only. It predicts at the observed points only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lno.data.fields import Spec
from lno.models.galerkin import GalerkinAttention
from lno.models.layers import TransformerBlock, full_precision, initialise_linear, read_out
from lno.models.model import ModelConfig
from lno.models.nystrom import NystromAttention
from lno.models.orthogonal import orthogonalise, precise
from lno.models.same_points import SamePointsModel
from lno.models.stem import Stem

MOMENTUM = 0.1  # of the running covariance


@dataclass(frozen=True)
class ONOConfig(ModelConfig):
    """Sizes of an ONO. The defaults are the library's for Navier–Stokes.

    Args:
        width: the number of features of a point, of either kind.
        layers: the number of blocks.
        heads: the number of heads of a block; divides the width.
        modes: the number of orthogonal functions.
        mlp_ratio: hidden features of the MLPs in a block, in multiples of the width.
        attention: "linear", "softmax" or "nystrom".
        time_input: the last input channel is the time of the sample, which is embedded.

    >>> ONOConfig(attention="quadratic")
    Traceback (most recent call last):
    ...
    ValueError: ONOConfig.attention must be one of linear, softmax, nystrom, got 'quadratic'
    """

    width: int = 128
    layers: int = 8
    heads: int = 8
    modes: int = 16
    mlp_ratio: int = 1
    attention: str = "softmax"
    time_input: bool = False

    limits: ClassVar[Mapping[str, tuple[int, int]]] = {
        "layers": (1, 512),
        "modes": (1, 1024),
        "mlp_ratio": (1, 64),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        known = ", ".join(ATTENTIONS)
        if not isinstance(self.attention, str) or self.attention not in ATTENTIONS:
            raise ValueError(f"ONOConfig.attention must be one of {known}, got {self.attention!r}")


class SoftmaxAttention(nn.Module):
    """Linear attention with a softmax of queries over features and of keys over points.

    >>> SoftmaxAttention(width=16, heads=4)(torch.rand(2, 30, 16)).shape
    torch.Size([2, 30, 16])
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width)

    def forward(
        self, f: Float[Tensor, "b n c"], mask: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n c"]:
        q, k, v = self.query_key_value(f).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        with full_precision(f):  # sums over thousands of points
            dtype = torch.promote_types(v.dtype, torch.float32)
            q = torch.softmax(q, dim=-1, dtype=dtype) * q.shape[-1] ** -0.5
            if mask is not None:
                k = k.masked_fill(~mask[..., None, None], -torch.inf)
            k = torch.softmax(k, dim=1, dtype=dtype)
            context = torch.einsum("bnhe,bnhf->bhef", k, v.to(dtype))
            heads = torch.einsum("bnhe,bhef->bnhf", q, context)
        return self.output(heads.flatten(2).to(v.dtype))


ATTENTIONS: dict[str, type[nn.Module]] = {
    "linear": GalerkinAttention,
    "softmax": SoftmaxAttention,
    "nystrom": NystromAttention,
}


class OrthogonalBlock(nn.Module):
    """Attention on p, orthogonal functions from p, and their kernel applied to f.

    >>> p = f = torch.rand(2, 30, 16)
    >>> p, f = OrthogonalBlock(ONOConfig(width=16, heads=4, modes=3))(p, f)
    >>> p.shape, f.shape
    (torch.Size([2, 30, 16]), torch.Size([2, 30, 16]))
    """

    covariance: Tensor

    def __init__(self, config: ONOConfig) -> None:
        super().__init__()
        c, modes = config.width, config.modes
        attention = ATTENTIONS[config.attention](c, config.heads)
        self.points = TransformerBlock(c, attention, config.mlp_ratio)
        self.project = nn.Linear(c, modes)
        self.scale = nn.Parameter(torch.zeros(modes))
        self.register_buffer("covariance", torch.zeros(modes, modes))  # none yet

    def forward(
        self,
        p: Float[Tensor, "b n c"],
        f: Float[Tensor, "b n c"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> tuple[Float[Tensor, "b n c"], Float[Tensor, "b n c"]]:
        with full_precision(p):  # p too: L⁻ᵀ enlarges the rounding errors of all that s is made of
            p = self.points(p, mask)
            s = self.project(p)
            if mask is not None:
                s = s.masked_fill(~mask[..., None], 0.0)
            s = orthogonalise(s, self._covariance(s, mask))
            coefficients = torch.einsum("bnk,bnc->bkc", s, f.to(s.dtype))
            return p, f + (s * F.softplus(self.scale)) @ coefficients

    def _covariance(
        self, s: Float[Tensor, "b n k"], mask: Bool[Tensor, "b n"] | None
    ) -> Float[Tensor, "k k"]:
        """In training that of the batch, which updates the running mean; else the running mean."""
        known, running = self.covariance.any(), precise(self.covariance)
        if not self.training:
            identity = torch.eye(s.shape[-1], dtype=running.dtype, device=s.device)
            return torch.where(known, running, identity)
        count = s.shape[:2].numel() if mask is None else mask.sum()
        current = torch.einsum("bnk,bnl->kl", precise(s), precise(s)) / count
        with torch.no_grad():
            moved = torch.lerp(running, current, MOMENTUM)
            self.covariance.copy_(torch.where(known, moved, current))
        return current


class ONO(SamePointsModel):
    """The Orthogonal Neural Operator: values at points in, values at the same points out.

    >>> model = ONO(Spec(coordinates=2, in_channels=1, out_channels=3), ONOConfig(width=16))
    >>> x, u = torch.rand(4, 50, 2), torch.rand(4, 50, 1)
    >>> model(x, u, x).shape
    torch.Size([4, 50, 3])
    """

    embeds_time = True
    keeps_statistics = True
    config: ONOConfig

    def __init__(self, spec: Spec, config: ONOConfig | None = None) -> None:
        super().__init__(spec, config)
        c, layers, timed = self.config.width, self.config.layers, self.config.time_input
        self.samples_interact = self.config.attention == "nystrom"
        self.stem_functions = Stem(spec, c, time_input=timed, placeholder=True)
        self.stem_points = Stem(replace(spec, in_channels=self.stem_functions.values), c)
        self.blocks = nn.ModuleList(OrthogonalBlock(self.config) for _ in range(layers))
        hidden = c * self.config.mlp_ratio
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(c), nn.Linear(c, hidden), nn.GELU(), nn.Linear(hidden, c))
            for _ in range(layers - 1)
        )
        self.norm, self.head = nn.LayerNorm(c), nn.Linear(c, spec.out_channels)
        initialise_linear(self)

    @classmethod
    def default_config(cls, spec: Spec) -> ONOConfig:
        return ONOConfig()

    def predict(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n o"]:
        f = self.stem_functions(x, u)
        p = self.stem_points(x, u[..., : self.stem_points.values])
        for k, block in enumerate(self.blocks):
            if k > 0:
                f = self.mlps[k - 1](f)
            p, f = block(p, f, mask)
        return read_out(self.norm, self.head, f)
