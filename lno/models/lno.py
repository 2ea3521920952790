"""The Latent Neural Operator with Physics-Cross-Attention (Wang & Wang, NeurIPS 2024).

    trunk(x), branch([x, u])                            features of the points          (eq. 2)
    z = softmax over points(scores(x))ᵀ · branch        encode into M latent tokens     (eq. 5)
    z ← z + Attention(LN z);  z ← z + MLP(LN z)         L transformer blocks on tokens
    y = MLP(softmax over tokens(scores(x_query)) · z)   decode at any position      (eqs. 4, 6)

An MLP, the attention-projector, computes the scores from the trunk's features, so they depend on
positions only, not on values. Encoder and decoder share it (W₁ = W₂ in the paper).

The encoder is a weighted mean over points, so it can be accumulated over chunks of points. The
decoder treats every point independently. So both run in bounded memory for any number of points,
and the result equals that of a single pass up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lno.config import require_range
from lno.data.fields import Spec
from lno.models.attention import ATTENTIONS
from lno.models.layers import MLP, TransformerBlock, joined
from lno.models.model import Model, ModelConfig, Part
from lno.models.streamed import SoftmaxSums, adjusted_scores


@dataclass(frozen=True)
class LNOConfig(ModelConfig):
    """Sizes of an LNO. The defaults are the paper's for Darcy, except for the sharpness.

    Args:
        width: D, the number of features of points and tokens.
        latents: M, the number of latent positions.
        blocks: L, the number of transformer blocks.
        heads: H, the number of attention heads of a block; divides the width.
        layers: n, the number of hidden layers of every MLP on points.
        tied: encoder and decoder share one attention-projector, as in the paper. False is an
            ablation.
        sharpness: a factor on the initial scores. With 1, as in the paper, all latent tokens start
            as nearly the same mean over all points. That is a saddle point of the loss, where
            training may stay for thousands of steps; a larger factor starts away from it.
        attention: the attention between tokens, a name in `lno.models.attention.ATTENTIONS`. The
            paper uses "softmax"; the others are ablations.

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
    attention: str = "softmax"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("LNOConfig.sharpness", self.sharpness, 1e-3, 1e3)
        if not isinstance(self.attention, str) or self.attention not in ATTENTIONS:
            raise ValueError(
                f"LNOConfig.attention must be one of {', '.join(ATTENTIONS)}, got "
                f"{self.attention!r}"
            )


class PhysicsCrossAttention(nn.Module):
    """Attention between points and M latent positions, with scores that depend on positions only.

    The learned queries and keys of eqs. 5 and 6 are the rows of the projector's last layer.

    >>> attention = PhysicsCrossAttention(width=16, latents=4, layers=1)
    >>> scores = attention.scores(torch.rand(2, 30, 16))
    >>> z = attention.encode(scores, torch.rand(2, 30, 16))
    >>> z.shape, attention.decode(scores, z).shape
    (torch.Size([2, 4, 16]), torch.Size([2, 30, 16]))
    """

    def __init__(self, width: int, latents: int, layers: int) -> None:
        super().__init__()
        self.projector = MLP(width, width, latents, layers)
        # Merges the softmax sums of all processes, if they split the points of a sample.
        self.reduce: Callable[[SoftmaxSums], SoftmaxSums] | None = None

    def scores(self, features: Float[Tensor, "b n c"]) -> Float[Tensor, "b n m"]:
        """Scores before either softmax, in float32 or better even under autocast."""
        scores = self.projector(features)
        return scores.to(torch.promote_types(scores.dtype, torch.float32))

    def encode(
        self,
        scores: Float[Tensor, "#b n m"],
        values: Float[Tensor, "b n c"],
        mask: Bool[Tensor, "b n"] | None = None,
        weights: Float[Tensor, "#b n"] | None = None,
    ) -> Float[Tensor, "b m c"]:
        """For each latent position the mean of the values, weighted by a softmax over points."""
        if self.reduce is not None:
            return self.reduce(self.sums(scores, values, mask, weights)).mean()
        adjusted = adjusted_scores(scores, mask, weights)
        values = values.to(adjusted.dtype)
        if adjusted.shape[0] == 1:  # all samples share their positions
            return torch.einsum("nm,bnc->bmc", torch.softmax(adjusted[0], dim=0), values)
        return torch.einsum("bnm,bnc->bmc", torch.softmax(adjusted, dim=1), values)

    def sums(
        self,
        scores: Float[Tensor, "#b n m"],
        values: Float[Tensor, "b n c"],
        mask: Bool[Tensor, "b n"] | None = None,
        weights: Float[Tensor, "#b n"] | None = None,
    ) -> SoftmaxSums:
        """The softmax sums from which `encode` computes its mean, over some of the points."""
        adjusted = adjusted_scores(scores, mask, weights)
        top = adjusted.amax(dim=1)
        exponentials = torch.exp(adjusted - top[:, None])
        weighted = torch.einsum("bnm,bnc->bmc", exponentials, values.to(adjusted.dtype))
        b = weighted.shape[0]  # scores of shared positions have a batch axis of one
        return SoftmaxSums(top.expand(b, -1), exponentials.sum(1).expand(b, -1), weighted)

    def decode(
        self, scores: Float[Tensor, "#b n m"], z: Float[Tensor, "b m c"]
    ) -> Float[Tensor, "b n c"]:
        """For each point the mean of the tokens, weighted by a softmax over latent positions."""
        attention = torch.softmax(scores, dim=-1)
        z = z.to(attention.dtype)
        if attention.shape[0] == 1:  # all samples share their positions
            return torch.einsum("nm,bmc->bnc", attention[0], z)
        return torch.einsum("bnm,bmc->bnc", attention, z)


class LNO(Model):
    """The Latent Neural Operator: values at any points in, values at any points out.

    >>> model = LNO(Spec(coordinates=2, in_channels=1, out_channels=3), LNOConfig(width=16))
    >>> x, u, x_query = torch.rand(4, 50, 2), torch.rand(4, 50, 1), torch.rand(4, 7, 2)
    >>> model(x, u, x_query).shape
    torch.Size([4, 7, 3])
    """

    reads_weights = True
    streams = True
    has_latents = True
    config: LNOConfig

    def __init__(self, spec: Spec, config: LNOConfig | None = None) -> None:
        super().__init__(spec, config)
        c, layers = self.config.width, self.config.layers
        self.trunk = MLP(spec.coordinates, c, c, layers)
        self.branch = MLP(spec.coordinates + spec.in_channels, c, c, layers)
        self.encoder = PhysicsCrossAttention(c, self.config.latents, layers)
        if not self.config.tied:
            self.untied_decoder = PhysicsCrossAttention(c, self.config.latents, layers)
        attention = ATTENTIONS[self.config.attention]
        self.blocks = nn.ModuleList(
            TransformerBlock(c, attention(c, self.config.heads)) for _ in range(self.config.blocks)
        )
        self.head = MLP(c, c, spec.out_channels, layers)
        with torch.no_grad():
            for cross in {self.encoder, self.decoder}:
                cross.projector.output.weight.mul_(self.config.sharpness)

    @classmethod
    def default_config(cls, spec: Spec) -> LNOConfig:
        return LNOConfig()

    @property
    def decoder(self) -> PhysicsCrossAttention:
        """The decoder's attention; the encoder's own unless untied."""
        return self.encoder if self.config.tied else self.untied_decoder

    def forward(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        x_query: Float[Tensor, "#b q d"],
        mask: Bool[Tensor, "b n"] | None = None,
        weights: Float[Tensor, "#b n"] | None = None,
    ) -> Float[Tensor, "b q o"]:
        """Predict at x_query from the values u observed at x; see `Model.forward`.

        Args:
            x: positions of the observations.
            u: values there.
            x_query: positions of the predictions.
            mask: True where an observation is real, False where it is padding. None: all real.
            weights: the size that each point represents, such as the area of its cell: a mesh of
                uneven density then represents the domain evenly. Points of size 0 are ignored.
        """
        features = self.trunk(x)
        scores = self.encoder.scores(features)
        z = self.encoder.encode(scores, self._values(x, u), mask, weights)
        z = self.process(z)
        if x_query is not x or not self.config.tied:  # otherwise the scores are the encoder's
            queries = features if x_query is x else self.trunk(x_query)
            scores = self.decoder.scores(queries)
        return self.head(self.decoder.decode(scores, z))

    def latent_weights(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        x_query: Float[Tensor, "#b q d"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> tuple[Float[Tensor, "b n m"], Float[Tensor, "b q m"]]:
        """The weights of encoder and decoder, which depend on positions only; see `Model`."""
        b = len(u)
        read = adjusted_scores(self.encoder.scores(self.trunk(x)), mask, None)
        write = self.decoder.scores(self.trunk(x_query))
        weights = torch.softmax(read, dim=1), torch.softmax(write, dim=-1)
        return weights[0].expand(b, -1, -1), weights[1].expand(b, -1, -1)

    def encode_parts(self, parts: Callable[[], Iterable[Part]]) -> Float[Tensor, "b m c"]:
        """Processed tokens of observations that come in parts; see `Model.encode_parts`."""
        total: SoftmaxSums | None = None
        for x, u, mask, weights in parts():
            scores = self.encoder.scores(self.trunk(x))
            sums = self.encoder.sums(scores, self._values(x, u), mask, weights)
            total = sums if total is None else total.merge(sums)
        if total is None:
            raise ValueError("nothing to encode: expected at least one observed point")
        return self.process(total.mean())

    def process(self, z: Float[Tensor, "b m c"]) -> Float[Tensor, "b m c"]:
        """All transformer blocks: the operator in latent space."""
        for block in self.blocks:
            z = block(z)
        return z

    def decode(
        self, z: Float[Tensor, "b m c"], x_query: Float[Tensor, "#b q d"]
    ) -> Float[Tensor, "b q o"]:
        """Predictions at x_query from processed tokens, each independent of the others."""
        scores = self.decoder.scores(self.trunk(x_query))
        return self.head(self.decoder.decode(scores, z))

    def reduce_with(self, reduce: Callable[[SoftmaxSums], SoftmaxSums] | None) -> None:
        """Apply `reduce` to the encoder's sums, e.g. to add them over processes. None: undo."""
        self.encoder.reduce = reduce

    @classmethod
    def from_reference(cls, weights: Mapping[str, Any], heads: int) -> LNO:
        """An LNO with weights of the paper's code, which determine all sizes but `heads`.

        Args:
            weights: arrays by their names in that code. If `attention_encoder` and
                `attention_decoder` replace `attention_projector`, the model is untied.
            heads: the number of attention heads.
        """
        from lno.models.reference import from_reference

        return cast("LNO", from_reference("lno", weights, {"heads": heads}))

    def _values(
        self, x: Float[Tensor, "#b n d"], u: Float[Tensor, "b n i"]
    ) -> Float[Tensor, "b n c"]:
        """branch([x, u])."""
        return self.branch(joined(x, u))
