"""Layers that several models share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn


def full_precision(like: Tensor) -> torch.autocast:
    """A context that turns autocast off on the tensor's device."""
    return torch.autocast(like.device.type, enabled=False)


def unit_square(rows: int, columns: int, like: Tensor) -> Float[Tensor, "h w 2"]:
    """The positions of a regular grid on the unit square, boundary included.

    >>> unit_square(2, 3, like=torch.zeros(()))[1].tolist()
    [[1.0, 0.0], [1.0, 0.5], [1.0, 1.0]]
    """
    axes = (torch.linspace(0, 1, n, dtype=like.dtype, device=like.device) for n in (rows, columns))
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)


def without_decay(model: nn.Module) -> set[nn.Parameter]:
    """Parameters without weight decay: those that a module names in its attribute `undecayed`.

    Zero is a small weight, but no better place or scale than any other.
    """
    named = ((module, getattr(module, "undecayed", ())) for module in model.modules())
    return {module.get_parameter(name) for module, names in named for name in names}


class MLP(nn.Module):
    """Linear, GELU, then `layers` times r ← r + GELU(Linear(r)), then Linear.

    The first and last layers ignore autocast: coordinates, scores and outputs in bfloat16 cost
    accuracy.

    >>> MLP(inputs=2, width=16, outputs=3, layers=1)(torch.rand(4, 50, 2)).shape
    torch.Size([4, 50, 3])
    """

    def __init__(self, inputs: int, width: int, outputs: int, layers: int) -> None:
        super().__init__()
        self.input = nn.Linear(inputs, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.output = nn.Linear(width, outputs)

    def forward(self, v: Float[Tensor, "*batch i"]) -> Float[Tensor, "*batch o"]:
        with full_precision(v):
            r = F.gelu(self.input(v.to(self.input.weight.dtype)))
        for layer in self.hidden:
            r = r + F.gelu(layer(r))
        with full_precision(v):
            return self.output(r.to(self.output.weight.dtype))


def joined(x: Float[Tensor, "#b n d"], u: Float[Tensor, "b n i"]) -> Float[Tensor, "b n k"]:
    """[x, u]: the position and the values of each point, concatenated."""
    return torch.cat((x.expand(u.shape[0], -1, -1), u), dim=-1)


def mean_token(
    z: Float[Tensor, "b m c"], mask: Bool[Tensor, "b m"] | None = None
) -> Float[Tensor, "b c"]:
    """The mean of the tokens, or of those where the mask is True."""
    if mask is None:
        return z.mean(dim=1)
    return z.masked_fill(~mask[..., None], 0.0).sum(dim=1) / mask.sum(dim=1, keepdim=True)


class TransformerBlock(nn.Module):
    """A pre-norm transformer block on points or tokens: attention, then an MLP.

    Args:
        width: the number of features of a point.
        attention: a module that maps (f, mask) to what each point reads, as `SelfAttention` does.
        mlp_ratio: hidden features of the MLP, in multiples of the width.

    >>> class Mean(nn.Module):
    ...     def forward(self, f, mask=None):
    ...         return mean_token(f, mask)[:, None].expand_as(f)
    >>> TransformerBlock(16, Mean())(torch.rand(2, 30, 16)).shape
    torch.Size([2, 30, 16])
    """

    def __init__(self, width: int, attention: nn.Module, mlp_ratio: int = 2) -> None:
        super().__init__()
        self.norm_attention, self.attention = nn.LayerNorm(width), attention
        self.norm_mlp = nn.LayerNorm(width)
        self.up = nn.Linear(width, mlp_ratio * width)
        self.down = nn.Linear(mlp_ratio * width, width)

    def forward(
        self, f: Float[Tensor, "b n c"], mask: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n c"]:
        f = f + self.attention(self.norm_attention(f), mask)
        return f + self.down(F.gelu(self.up(self.norm_mlp(f))))


def read_out(norm: nn.LayerNorm, head: nn.Linear, f: Float[Tensor, "b n c"]) -> Tensor:
    """head(norm(f)), the last layers of a transformer, in full precision even under autocast."""
    with full_precision(f):
        return head(norm(f.to(head.weight.dtype)))


def initialise_linear(model: nn.Module) -> None:
    """Small random weights and zero biases in all linear layers, as in published transformers."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
