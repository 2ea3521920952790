"""LNO+: a latent neural operator whose points and latent tokens exchange messages in rounds.

    φ = [x, sin ωx, cos ωx],   ω = π/4, π/2, π, …          Fourier features of positions
    f = trunk(φ),   h = branch([φ, u])                     features of points; residual stream
    in each of R rounds:
        s = MLP(f) − |x − ξ|² / 2σ²                        scores of points and latent positions
        z ← z + V · softmax over points(s)ᵀ · LN h         encode into M latent tokens
        z ← z + Attention(LN z);  z ← z + MLP(LN z)        L transformer blocks on tokens
        h ← h + softmax over tokens(s) · O · LN z          decode at the points
        h ← h + MLP(LN h)
    y = MLP(LN h)

It differs from LNO (`lno.models.lno`) in four ways:

- **Rounds.** LNO encodes once and decodes once. Here points read the tokens and tokens read the
  points again, each time with other weights.
- **Located latents.** Every latent position has a place ξ and a width σ, both learned, and reads
  and writes near that place first. Tokens start as overlapping patches of the domain, on any mesh;
  LNO's start as nearly the same mean over all points. `initialise` spreads the places over the
  training points.
- **Fourier features.** An MLP of positions learns smooth functions first. Sines and cosines of the
  positions, each octave twice as fast as the one before, let it learn finer ones as well.
- **Values at the queries.** A query point runs through the same stream as an observed point. It
  starts from the value observed there, or interpolated from the nearest ones. With `values=False`
  it starts from its position alone, for predictions far from all observations.

As the weights of a softmax sum to one, V and O act on M tokens instead of all points.

What a point computes depends on its own value and on the tokens of earlier rounds. So observations
stream exactly, in one pass over them for each round; each pass repeats the earlier rounds of its
points. Queries are independent of each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lno.data.fields import Spec
from lno.models.attention import SelfAttention
from lno.models.interpolation import interpolate
from lno.models.layers import MLP, TransformerBlock, full_precision, joined
from lno.models.lno import PhysicsCrossAttention
from lno.models.model import Model, ModelConfig, Part
from lno.models.places import Places, cluster_centres
from lno.models.streamed import SoftmaxSums, adjusted_scores

HEADS = 8  # of the attention between tokens, at most
HEAD = 16  # features of a head, at least
LONGEST_WAVE = 8.0  # of Fourier features; standardised coordinates of a box are 2√3 = 3.5 apart
SHARPNESS = 10.0  # of initial scores without places, see `LNOConfig`
POINT_LAYERS = 1  # hidden layers of trunk, branch and head
# Of positions: the trunk's features (#b, n, c), and scores by distance (#b, n, m) or None.
AtPositions = tuple[Tensor, Tensor | None]


@dataclass(frozen=True)
class LNOPlusConfig(ModelConfig):
    """Sizes of an LNO+.

    Args:
        width: D, the number of features of points and tokens.
        latents: M, the number of latent positions.
        rounds: R, how often tokens read the points and points read the tokens.
        blocks: L, the number of transformer blocks in a round.
        octaves: K, the number of wave numbers of the Fourier features of every coordinate; 0: none.
        located: latent positions have places. False: an ablation.
        values: query points start from the values there. False: from their positions alone.
        local: k, the size of a k × k depthwise convolution of the stream in every round, which
            needs data on a 2-D grid and predicts at its points only. It goes round periodic axes.
            None: no convolution.

    >>> LNOPlusConfig(width=64).rounds
    4
    """

    width: int = 128
    latents: int = 256
    rounds: int = 4
    blocks: int = 1
    octaves: int = 4
    located: bool = True
    values: bool = True
    local: int | None = None

    limits: ClassVar[Mapping[str, tuple[int, int]]] = {
        "rounds": (1, 128),
        "octaves": (0, 16),
        "local": (3, 63),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local is not None and self.local % 2 == 0:
            raise ValueError(f"LNOPlusConfig.local must be odd, got {self.local}")

    @property
    def heads(self) -> int:
        """Of the attention between tokens.

        >>> LNOPlusConfig(width=64).heads, LNOPlusConfig(width=256).heads
        (4, 8)
        """
        most = min(HEADS, max(1, self.width // HEAD))
        return max(h for h in range(1, most + 1) if self.width % h == 0)


class Round(nn.Module):
    """One exchange between the points of a stream and the tokens.

    >>> round_ = Round(Spec(2, 1, 1), LNOPlusConfig(width=16, latents=4))
    >>> h, scores = torch.rand(2, 30, 16), torch.rand(2, 30, 4)
    >>> z = round_.process(None, round_.attention.encode(scores, h))
    >>> z.shape, round_.update(h, scores, z).shape
    (torch.Size([2, 4, 16]), torch.Size([2, 30, 16]))
    """

    def __init__(self, spec: Spec, config: LNOPlusConfig) -> None:
        super().__init__()
        c = config.width
        self.attention = PhysicsCrossAttention(c, config.latents, layers=0)
        self.norm_points, self.value = _norm(c), nn.Linear(c, c)
        self.blocks = nn.ModuleList(
            TransformerBlock(c, SelfAttention(c, config.heads)) for _ in range(config.blocks)
        )
        self.norm_tokens, self.output = nn.LayerNorm(c), nn.Linear(c, c)
        self.norm_mlp = _norm(c)
        self.up, self.down = nn.Linear(c, 2 * c), nn.Linear(2 * c, c)
        self.grid, self.periodic = spec.grid, spec.periodic or (False, False)
        self.local: nn.Conv2d | None = None
        if config.local is not None:
            rows, columns = (0 if wraps else config.local // 2 for wraps in self.periodic)
            self.local = nn.Conv2d(c, c, config.local, padding=(rows, columns), groups=c)

    def scores(self, at: AtPositions) -> Float[Tensor, "#b n m"]:
        """Scores of points and latent positions, before either softmax."""
        features, near = at
        scores = self.attention.scores(features)
        return scores if near is None else scores + near

    def process(
        self, z: Float[Tensor, "b m c"] | None, read: Float[Tensor, "b m c"]
    ) -> Float[Tensor, "b m c"]:
        """The tokens of this round, from those of the round before and what they read."""
        read = self.value(read)
        z = read if z is None else z + read
        for block in self.blocks:
            z = block(z)
        return z

    def update(
        self,
        h: Float[Tensor, "#b n c"],
        scores: Float[Tensor, "#b n m"],
        z: Float[Tensor, "b m c"],
    ) -> Float[Tensor, "b n c"]:
        """The stream of points after they have read the tokens."""
        h = h + self.attention.decode(scores, self.output(self.norm_tokens(z)))
        r = self.norm_mlp(h)
        if self.local is not None and self.grid is not None:
            image = r.unflatten(1, self.grid).permute(0, 3, 1, 2)
            if any(self.periodic):
                image = wrapped(image, self.local.kernel_size[0] // 2, self.periodic)
            r = r + self.local(image).permute(0, 2, 3, 1).flatten(1, 2)
        return h + self.down(F.gelu(self.up(r)))


class LNOPlus(Model):
    """A latent neural operator in rounds: values at any points in, values at any points out.

    >>> model = LNOPlus(Spec(coordinates=2, in_channels=1, out_channels=3), LNOPlusConfig(width=16))
    >>> x, u, x_query = torch.rand(4, 50, 2), torch.rand(4, 50, 1), torch.rand(4, 7, 2)
    >>> model(x, u, x_query).shape
    torch.Size([4, 7, 3])
    """

    reads_weights = True
    streams = True
    has_latents = True
    config: LNOPlusConfig

    def __init__(self, spec: Spec, config: LNOPlusConfig | None = None) -> None:
        super().__init__(spec, config)
        c, local = self.config.width, self.config.local
        if local is not None:
            self.needs_grid, self.predicts_anywhere, self.streams = True, False, False
            sides = self.require_plane()
            if any(spec.periodic) and min(sides) < local // 2:
                raise ValueError(
                    f"LNOPlusConfig.local: {local} points are more than twice around the periodic "
                    f"grid {sides}"
                )
            if not self.config.values:
                raise ValueError("LNOPlusConfig.local needs values=True, got values=False")
        self.reads_query_values = self.config.values and local is None
        features = spec.coordinates * (1 + 2 * self.config.octaves)
        self.trunk = MLP(features, c, c, POINT_LAYERS)
        self.branch = MLP(features + spec.in_channels, c, c, POINT_LAYERS)
        if not self.config.values:
            self.query = MLP(features, c, c, POINT_LAYERS)
        if self.config.located:
            self.places = Places(self.config.latents, spec.coordinates)
        made = nn.ModuleList(Round(spec, self.config) for _ in range(self.config.rounds))
        self.rounds = cast("Sequence[Round]", made)
        if not self.config.located:
            with torch.no_grad():
                for round_ in self.rounds:
                    round_.attention.projector.output.weight.mul_(SHARPNESS)
        self.norm, self.head = _norm(c), MLP(c, c, spec.out_channels, POINT_LAYERS)

    @classmethod
    def default_config(cls, spec: Spec) -> LNOPlusConfig:
        return LNOPlusConfig()

    @classmethod
    def for_other_points(cls, config: ModelConfig) -> LNOPlusConfig:
        """The same sizes, with `values=False`."""
        assert isinstance(config, LNOPlusConfig)
        return replace(config, values=False, local=None)

    def initialise(self, positions: Float[np.ndarray, "n d"], seed: int) -> None:
        """Spread the places of the latent positions over the training points."""
        if self.config.located:
            self.places.move(cluster_centres(positions, self.config.latents, seed))

    def forward(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        x_query: Float[Tensor, "#b q d"],
        mask: Bool[Tensor, "b n"] | None = None,
        weights: Float[Tensor, "#b n"] | None = None,
    ) -> Float[Tensor, "b q o"]:
        """Predict at x_query from the values u observed at x; see `LNO.forward`."""
        if self.config.local is not None:
            self.check_points(x, u, x_query, mask)
            x_query = x
        at_x, at_query = self._positions(x), None
        if x_query is not x:
            at_query = self._positions(x_query)
        one_stream = at_query is None and self.config.values
        h = self._observed(x, u)
        g = h if one_stream else self._queried(x, u, x_query, mask, weights)
        z = None
        for k, round_ in enumerate(self.rounds):
            scores = round_.scores(at_x)
            read = round_.attention.encode(scores, round_.norm_points(h), mask, weights)
            z = round_.process(z, read)
            g = round_.update(g, scores if at_query is None else round_.scores(at_query), z)
            if one_stream:
                h = g
            elif k + 1 < len(self.rounds):  # no token reads the stream after the last round
                h = round_.update(h, scores, z)
        return self.head(self.norm(g))

    def latent_weights(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        x_query: Float[Tensor, "#b q d"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> tuple[Float[Tensor, "b n m"], Float[Tensor, "b q m"]]:
        """The weights of the first round, which depend on positions only; see `Model`.

        Later rounds have weights of their own, around the same places.
        """
        if self.config.local is not None:
            self.check_points(x, u, x_query, mask)
        b, first = len(u), self.rounds[0]
        read = adjusted_scores(first.scores(self._positions(x)), mask, None)
        write = first.scores(self._positions(x_query))
        weights = torch.softmax(read, dim=1), torch.softmax(write, dim=-1)
        return weights[0].expand(b, -1, -1), weights[1].expand(b, -1, -1)

    def encode_parts(self, parts: Callable[[], Iterable[Part]]) -> Float[Tensor, "b r m c"]:
        """The tokens of every round; see `Model.encode_parts`."""
        tokens: list[Tensor] = []
        for round_ in self.rounds:
            total: SoftmaxSums | None = None
            for x, u, mask, weights in parts():
                at_x = self._positions(x)
                h = self._run(self._observed(x, u), at_x, tokens)
                scores = round_.scores(at_x)
                sums = round_.attention.sums(scores, round_.norm_points(h), mask, weights)
                total = sums if total is None else total.merge(sums)
            if total is None:
                raise ValueError("nothing to encode: expected at least one observed point")
            tokens.append(round_.process(tokens[-1] if tokens else None, total.mean()))
        return torch.stack(tokens, dim=1)

    def decode(
        self,
        z: Float[Tensor, "b r m c"],
        x_query: Float[Tensor, "#b q d"],
        u_query: Float[Tensor, "b q i"] | None = None,
    ) -> Float[Tensor, "b q o"]:
        """Predictions at x_query from the tokens of every round, each independent of the others.

        Args:
            z: what `encode_parts` gave.
            x_query: positions of the predictions.
            u_query: the values there, unless the model does without (`values=False`).
        """
        if self.config.values:
            if u_query is None:
                raise ValueError(
                    "u_query: expected the values at x_query, as values=True, got None"
                )
            g = self._observed(x_query, u_query)
        else:
            g = self.query(self._features(x_query))
        g = self._run(g, self._positions(x_query), z.unbind(dim=1))
        return self.head(self.norm(g))

    def reduce_with(self, reduce: Callable[[SoftmaxSums], SoftmaxSums] | None) -> None:
        """Apply `reduce` to the encoder's sums, e.g. to add them over processes. None: undo."""
        for round_ in self.rounds:
            round_.attention.reduce = reduce

    def _positions(self, x: Float[Tensor, "#b n d"]) -> AtPositions:
        """What all rounds know of some positions."""
        return self.trunk(self._features(x)), self.places(x) if self.config.located else None

    def _features(self, x: Float[Tensor, "#b n d"]) -> Float[Tensor, "#b n k"]:
        return fourier_features(x, self.config.octaves)

    def _run(
        self,
        h: Float[Tensor, "#b n c"],
        at: AtPositions,
        tokens: Iterable[Float[Tensor, "b m c"]],
    ) -> Float[Tensor, "#b n c"]:
        """The stream of some points through as many rounds as there are tokens."""
        for round_, z in zip(self.rounds, tokens, strict=False):
            h = round_.update(h, round_.scores(at), z)
        return h

    def _observed(
        self, x: Float[Tensor, "#b n d"], u: Float[Tensor, "b n i"]
    ) -> Float[Tensor, "b n c"]:
        """The stream of points whose values are known, before the first round."""
        return self.branch(joined(self._features(x), u))

    def _queried(
        self, x: Tensor, u: Tensor, x_query: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Float[Tensor, "b q c"]:
        """The stream of the query points before the first round."""
        if not self.config.values:
            return self.query(self._features(x_query))
        if self.rounds[0].attention.reduce is not None:
            raise ValueError(
                "processes that split the points of a sample cannot interpolate its values at "
                "other query points: set LNOPlusConfig.values to False, or Recipe.queries to None"
            )
        with full_precision(u):
            values = interpolate(x, u, x_query, mask, weights)
        return self._observed(x_query, values)


def _norm(width: int) -> nn.LayerNorm:
    """Of the features of points, without parameters.

    The linear map behind it has them already, and their gradients are sums over all points.
    """
    return nn.LayerNorm(width, elementwise_affine=False)


def wrapped(
    image: Float[Tensor, "b c h w"], width: int, periodic: Sequence[bool]
) -> Float[Tensor, "b c h2 w2"]:
    """An image with `width` more pixels at both ends of its periodic axes.

    >>> wrapped(torch.arange(3.0).view(1, 1, 1, 3), 1, (False, True))
    tensor([[[[2., 0., 1., 2., 0.]]]])
    """
    rows, columns = (width if wraps else 0 for wraps in periodic)
    return F.pad(image, (columns, columns, rows, rows), mode="circular")


def fourier_features(x: Float[Tensor, "*b n d"], octaves: int) -> Float[Tensor, "*b n k"]:
    """[x, sin ωx, cos ωx] for ω = π/4, π/2, π, …: positions, and waves of them.

    In float32 or better even under autocast.

    >>> fourier_features(torch.tensor([[2.0]]), octaves=2).round(decimals=2)
    tensor([[ 2.,  1., -0., -0., -1.]])
    """
    if octaves == 0:
        return x
    with full_precision(x):
        doubling = 2.0 ** torch.arange(octaves, device=x.device, dtype=x.dtype)
        waves = 2 * math.pi / LONGEST_WAVE * doubling
        angles = (x[..., None] * waves).flatten(-2)
        return torch.cat((x, angles.sin(), angles.cos()), dim=-1)
