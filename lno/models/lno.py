"""The Latent Neural Operator with Physics-Cross-Attention (Wang & Wang, NeurIPS 2024).

    trunk(x), branch([x, u])                    points to features                  (eq. 2)
    z⁰ = softmax over points(scores(x))ᵀ · branch     encode to M latent tokens      (eq. 5)
    z ← z + Attention(LN z);  z ← z + MLP(LN z)       L blocks on the tokens
    y = MLP(softmax over tokens(scores(x_query)) · z) decode at any position         (eqs. 4, 6)

with scores = attention-projector(trunk(x)), one MLP shared by encoder and decoder (W₁ = W₂).
Only the scores see the number of points, so encoding sums over chunks of points and decoding goes
point by point: both run in bounded memory, equal to one pass up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from lno.config import require_count, require_heads, require_range
from lno.data.fields import Spec
from lno.models import streamed
from lno.models.streamed import Factored, Pooled, slices

# Scores in a matrix of at most so many numbers in training: beyond, it is never written out.
WRITTEN_OUT = 2**27
# Numbers in the attention matrices of a block up to which a GPU is faster without a fused kernel,
# which would leave most of it idle.
SMALL_ATTENTION = 2**22


@dataclass(frozen=True)
class LNOConfig:
    """Sizes of an LNO; the defaults are the paper's for Darcy, but for a sharper start.

    Args:
        width: D, the number of features of points and tokens.
        latents: M, the number of latent positions.
        blocks: L, the number of transformer blocks.
        heads: H, the heads of their attention; divides the width.
        layers: n, the hidden layers of every MLP on points.
        tied: one attention-projector for encoder and decoder (the paper); False is its ablation.
        sharpness: a factor of the initial scores; 1 is the paper's. There all latent positions
            begin by reading the same mean of all points, which is a saddle of the loss: training
            may sit on it for thousands of steps. A larger factor begins beside it.

    >>> LNOConfig(width=64, blocks=2).sharpness
    10.0
    """

    width: int = 128
    latents: int = 256
    blocks: int = 4
    heads: int = 8
    layers: int = 2
    tied: bool = True
    sharpness: float = 10.0

    def __post_init__(self) -> None:
        for name, most in (("width", 8192), ("latents", 65536), ("blocks", 512), ("layers", 64)):
            require_count(f"LNOConfig.{name}", getattr(self, name), most)
        require_heads("LNOConfig", self.heads, self.width)
        if not isinstance(self.tied, bool):
            raise ValueError(f"LNOConfig.tied must be True or False, got {self.tied!r}")
        require_range("LNOConfig.sharpness", self.sharpness, 1e-3, 1e3)


def full_precision(like: Tensor) -> torch.autocast:
    """Inside this context autocast is off."""
    return torch.autocast(like.device.type, enabled=False)


class MLP(nn.Module):
    """Linear, GELU, then `layers` times r ← r + GELU(Linear(r)), Linear.

    First and last layers stay in full precision inside autocast: coordinates, scores and outputs in
    bfloat16 cost accuracy.
    """

    def __init__(self, inputs: int, width: int, outputs: int, layers: int) -> None:
        super().__init__()
        self.input = nn.Linear(inputs, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.output = nn.Linear(width, outputs)

    def forward(self, v: Float[Tensor, "... i"]) -> Float[Tensor, "... o"]:
        r = self.inside(v)
        with full_precision(v):
            return self.output(r.to(self.output.weight.dtype))

    def inside(self, v: Float[Tensor, "... i"]) -> Float[Tensor, "... c"]:
        """The features before the last layer."""
        with full_precision(v):
            r = F.gelu(self.input(v.to(self.input.weight.dtype)))
        for layer in self.hidden:
            r = r + F.gelu(layer(r))
        return r


Scores = Float[Tensor, "#b n m"] | Factored


class PhysicsCrossAttention(nn.Module):
    """Attention between points and M learned latent positions, whose scores see positions only.

    The learned queries and keys of eqs. 5 and 6 are the rows of the last layer of the projector.

    >>> attention = PhysicsCrossAttention(width=16, latents=4, layers=1)
    >>> scores = attention.scores(torch.rand(2, 30, 16))
    >>> z = attention.encode(scores, torch.rand(2, 30, 16))
    >>> z.shape, attention.decode(scores, z).shape
    (torch.Size([2, 4, 16]), torch.Size([2, 30, 16]))
    """

    def __init__(self, width: int, latents: int, layers: int) -> None:
        super().__init__()
        self.projector = MLP(width, width, latents, layers)
        # Set where points are shared out over processes: adds their sums up.
        self.reduce: Callable[[Pooled], Pooled] | None = None

    def scores(self, features: Float[Tensor, "b n c"]) -> Scores:
        """Scores before either softmax, in float32 or better whatever the surrounding precision.

        In training, those of very many points stay `Factored`: the matrix is never written out.
        """
        keys, last = self.projector.inside(features), self.projector.output
        with full_precision(features):
            keys = keys.to(torch.promote_types(last.weight.dtype, torch.float32))
            count = keys.shape[0] * keys.shape[1] * last.out_features
            if torch.is_grad_enabled() and count > WRITTEN_OUT:
                return Factored(keys, last.weight, last.bias)
            return last(keys.to(last.weight.dtype)).to(keys.dtype)

    def encode(
        self,
        scores: Scores,
        values: Float[Tensor, "b n c"],
        mask: Bool[Tensor, "b n"] | None = None,
        weights: Float[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b m c"]:
        """Each latent position's mean of the values, weighted by a softmax over the points."""
        if self.reduce is not None:
            return self.reduce(self.pool(scores, values, mask, weights)).mean()
        if isinstance(scores, Factored):
            return self.pool(scores, values, mask, weights).mean()
        adjusted = _adjust(scores, mask, weights)
        values = values.to(adjusted.dtype)
        if len(adjusted) == 1:  # all samples share their positions, and with them the weights
            return torch.einsum("nm,bnc->bmc", torch.softmax(adjusted[0], dim=0), values)
        return torch.einsum("bnm,bnc->bmc", torch.softmax(adjusted, dim=1), values)

    def pool(
        self,
        scores: Scores,
        values: Float[Tensor, "b n c"],
        mask: Bool[Tensor, "b n"] | None = None,
        weights: Float[Tensor, "b n"] | None = None,
    ) -> Pooled:
        """What `encode` averages, for a part of the points; merge the parts, then take the mean."""
        if isinstance(scores, Factored):
            offset = None
            if mask is not None or weights is not None:
                zero = values.new_zeros((*values.shape[:2], 1), dtype=scores.keys.dtype)
                offset = _adjust(zero, mask, weights)[..., 0]
            return streamed.pool(scores, values.to(scores.keys.dtype), offset)
        adjusted = _adjust(scores, mask, weights)
        top = adjusted.amax(dim=1)
        exponentials = torch.exp(adjusted - top[:, None])
        weighted = torch.einsum("bnm,bnc->bmc", exponentials, values.to(adjusted.dtype))
        samples = weighted.shape[0]  # scores of shared positions have a batch axis of one
        return Pooled(top.expand(samples, -1), exponentials.sum(1).expand(samples, -1), weighted)

    def decode(self, scores: Scores, z: Float[Tensor, "b m c"]) -> Float[Tensor, "b q c"]:
        """Each point's mean of the tokens, weighted by a softmax over the latent positions."""
        if isinstance(scores, Factored):
            return streamed.read(scores, z.to(scores.keys.dtype))
        attention = torch.softmax(scores, dim=-1)
        z = z.to(attention.dtype)
        if len(attention) == 1:
            return torch.einsum("qm,bmc->bqc", attention[0], z)
        return torch.einsum("bqm,bmc->bqc", attention, z)


def mean_token(
    z: Float[Tensor, "b m c"], mask: Bool[Tensor, "b m"] | None = None
) -> Float[Tensor, "b c"]:
    """The mean of the tokens, or of those in the mask."""
    if mask is None:
        return z.mean(dim=1)
    return z.masked_fill(~mask[..., None], 0.0).sum(dim=1) / mask.sum(dim=1, keepdim=True)


class LatentBlock(nn.Module):
    """A pre-norm transformer block on tokens: attention, then an MLP twice as wide.

    Keys are those of the tokens less their mean, without a bias: what all keys share adds the same
    to all scores of a query, which a softmax does not see. So its gradient is nothing but rounding
    errors; Adam would make steps of them all the same, and what is shared would grow until bfloat16
    holds nothing else of the scores.

    >>> LatentBlock(width=16, heads=4)(torch.rand(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(
        self, z: Float[Tensor, "b m c"], mask: Bool[Tensor, "b m"] | None = None
    ) -> Float[Tensor, "b m c"]:
        """The tokens, changed; no token attends to those that are not in the mask."""
        q, k, v = self._queries_keys_values(self.norm_attention(z), mask)
        whole = q.is_cuda and q.dtype == torch.float32  # other kernels are as fast as it is
        small = whole and mask is None and q.shape[:-1].numel() * z.shape[1] <= SMALL_ATTENTION
        attended = None if mask is None else mask[:, None, None]
        with sdpa_kernel(SDPBackend.MATH) if small else nullcontext():
            heads = F.scaled_dot_product_attention(q, k, v, attn_mask=attended)
        z = z + self.output(heads.transpose(1, 2).flatten(2))
        return z + self.down(F.gelu(self.up(self.norm_mlp(z))))

    def _queries_keys_values(
        self, z: Float[Tensor, "b m c"], mask: Bool[Tensor, "b m"] | None
    ) -> list[Float[Tensor, "b h m e"]]:
        query, key, value = self.query_key_value.weight.chunk(3)
        query_bias, _, value_bias = self.query_key_value.bias.chunk(3)
        projected = (
            F.linear(z, query, query_bias),
            F.linear(z - mean_token(z, mask)[:, None], key),
            F.linear(z, value, value_bias),
        )
        return [v.unflatten(-1, (self.heads, -1)).transpose(1, 2) for v in projected]


class LNO(nn.Module):
    """The Latent Neural Operator: values at any points in, values at any points out.

    Positions may have a batch axis of one when all samples share them.

    >>> model = LNO(Spec(coordinates=2, in_channels=1, out_channels=3), LNOConfig(width=16))
    >>> x, u, x_query = torch.rand(4, 50, 2), torch.rand(4, 50, 1), torch.rand(4, 7, 2)
    >>> model(x, u, x_query).shape
    torch.Size([4, 7, 3])
    """

    def __init__(self, spec: Spec, config: LNOConfig | None = None) -> None:
        super().__init__()
        self.spec, self.config = spec, config or LNOConfig()
        c, layers = self.config.width, self.config.layers
        self.trunk = MLP(spec.coordinates, c, c, layers)
        self.branch = MLP(spec.coordinates + spec.in_channels, c, c, layers)
        self.encoder = PhysicsCrossAttention(c, self.config.latents, layers)
        if not self.config.tied:
            self.untied_decoder = PhysicsCrossAttention(c, self.config.latents, layers)
        self.blocks = nn.ModuleList(
            LatentBlock(c, self.config.heads) for _ in range(self.config.blocks)
        )
        self.head = MLP(c, c, spec.out_channels, layers)
        with torch.no_grad():
            for attention in {self.encoder, self.decoder}:
                attention.projector.output.weight.mul_(self.config.sharpness)

    @property
    def decoder(self) -> PhysicsCrossAttention:
        """The decoder's attention: the encoder's own, unless untied."""
        return self.encoder if self.config.tied else self.untied_decoder

    def forward(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        x_query: Float[Tensor, "#b q d"],
        mask: Bool[Tensor, "b n"] | None = None,
        weights: Float[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b q o"]:
        """Predict at x_query what u at x implies.

        Args:
            x: positions of the observations.
            u: values there; i may be 0.
            x_query: positions where the answer is wanted; pass `x` itself to compute what depends
                on positions only once.
            mask: which observations are real; None: all.
            weights: logarithms of the points' weights, added to the encoder's scores: log of the
                cell size makes a mesh of uneven density stand for the domain evenly.
        """
        features = self.trunk(x)
        scores = self.encoder.scores(features)
        z = self.encoder.encode(scores, self._values(x, u), mask, weights)
        z = self.process(z)
        if x_query is not x or not self.config.tied:
            queries = features if x_query is x else self.trunk(x_query)
            scores = self.decoder.scores(queries)
        return self.head(self.decoder.decode(scores, z))

    def encode(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        mask: Bool[Tensor, "b n"] | None = None,
        weights: Float[Tensor, "b n"] | None = None,
        chunk: int | None = None,
    ) -> Float[Tensor, "b m c"]:
        """Observations to latent tokens, in one pass or `chunk` points at a time."""
        if chunk is None:
            return self.encoder.encode(self._scores(x), self._values(x, u), mask, weights)
        return self.encode_parts(
            tuple(None if v is None else v[:, part] for v in (x, u, mask, weights))
            for part in slices(x.shape[1], chunk)
        )

    def encode_parts(self, parts: Iterable[tuple[Any, ...]]) -> Float[Tensor, "b m c"]:
        """Latent tokens of observations that come in parts (x, u, mask, weights)."""
        whole: Pooled | None = None
        for x, u, mask, weights in parts:
            pooled = self.encoder.pool(self._scores(x), self._values(x, u), mask, weights)
            whole = pooled if whole is None else whole.merge(pooled)
        if whole is None:
            raise ValueError("nothing to encode: expected at least one observed point")
        return whole.mean()

    def process(self, z: Float[Tensor, "b m c"]) -> Float[Tensor, "b m c"]:
        """The operator in the latent space: all blocks."""
        for block in self.blocks:
            z = block(z)
        return z

    def decode(
        self, z: Float[Tensor, "b m c"], x_query: Float[Tensor, "#b q d"], chunk: int | None = None
    ) -> Float[Tensor, "b q o"]:
        """Processed tokens to values at x_query, in one pass or `chunk` points at a time."""
        if chunk is not None:
            parts = [self.decode(z, x_query[:, part]) for part in slices(x_query.shape[1], chunk)]
            return torch.cat(parts, dim=1)
        scores = self.decoder.scores(self.trunk(x_query))
        return self.head(self.decoder.decode(scores, z))

    @classmethod
    def from_reference(cls, weights: Mapping[str, Any], heads: int) -> LNO:
        """An LNO with the weights of the paper's own code; all sizes but `heads` are read off them.

        Args:
            weights: arrays by their name there. `attention_encoder` and `attention_decoder` in
                place of `attention_projector` give the untied model.
            heads: the number of attention heads.
        """
        from lno.models import reference

        config, spec, state = reference.translate(weights, heads)
        model = cls(spec, config)
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            raise ValueError(f"the weights do not fit one LNO: {error}") from error
        return model

    def _scores(self, x: Float[Tensor, "b n d"]) -> Scores:
        return self.encoder.scores(self.trunk(x))

    def _values(
        self, x: Float[Tensor, "#b n d"], u: Float[Tensor, "b n i"]
    ) -> Float[Tensor, "b n c"]:
        """branch([x, u]); with no values it depends on positions alone."""
        if u.shape[-1] == 0 and u.shape[0] == x.shape[0]:
            return self.branch(x)
        return self.branch(torch.cat((x.expand(u.shape[0], -1, -1), u), dim=-1))


def _adjust(scores: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor:
    """Scores with log-weights added and padding pushed down to the least finite number.

    Not to −∞: a part of the points may be padding alone, and −∞ − (−∞) is NaN. Against any real
    point the least number still gives a weight of exactly zero.
    """
    if weights is not None:
        scores = scores + weights[..., None].to(scores.dtype)
    if mask is not None:
        scores = scores.masked_fill(~mask[..., None], torch.finfo(scores.dtype).min)
    return scores
