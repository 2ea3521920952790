"""Points of the plane to an image and back, through a learnt map (Li et al., Geo-FNO).

    ξ = p (1 + MLP(features of p))                       the learnt map
    x̂ₖₗ = Σₙ fₙ exp(−2πi (k ξ₁ + l ξ₂))                  Fourier coefficients of features at points
    image = F⁻¹(R · x̂)                                   R: matrices of learnt complex numbers
    f(ξ) = Re Σ (R′ · F image)ₖₗ exp(2πi (k ξ₁ + l ξ₂))   from an image to any points

The features of p are its coordinates, its angle and its distance around a point near the origin,
and cosines and sines of these four at frequencies π 2ʲ. As published, x̂ is a sum over the points
and not a mean: twice the points give twice the coefficients.

The last sum is over positive and negative l. As published, coefficients of −l are the conjugates
of those of l with the order of rows reversed. That pairs k with −k−1; a real image would need −k:

    f(ξ) = Re Σₖ Σ_{l ≥ 0} ŷₖₗ exp(2πi (k ξ₁ + l ξ₂)) (1 + [l > 0] exp(2πi ξ₁))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lno.data.fields import Spec
from lno.models.layers import full_precision
from lno.models.model import ModelConfig
from lno.models.spectral import WaveMixing, image_of_waves, low_waves

CENTRE = 1e-4  # of angles and distances, on both axes, as published


@dataclass(frozen=True)
class LatentGrid(ModelConfig):
    """The image that points are mapped to, and the map. The defaults are the published ones.

    Args:
        rows: the number of rows of the image.
        columns: the number of columns of the image.
        row_modes: wave numbers −row_modes … row_modes − 1 along the rows' index are used.
        column_modes: wave numbers up to column_modes − 1 along the columns' index are used.
        map_width: the number of features of the map; a multiple of 4.
        standardized: positions have mean 0 and variance 1, as in training. They are moved to the
            unit square, for which the map is published: ½ + p / √12 gives back coordinates that
            were evenly distributed between 0 and 1. False: take them as they are.

    >>> LatentGrid(map_width=30)
    Traceback (most recent call last):
    ...
    ValueError: LatentGrid.map_width must be a multiple of 4, got 30
    """

    rows: int = 96
    columns: int = 96
    row_modes: int = 12
    column_modes: int = 12
    map_width: int = 32
    standardized: bool = True

    limits: ClassVar[Mapping[str, tuple[int, int]]] = {
        "rows": (1, 4096),
        "columns": (1, 4096),
        "row_modes": (1, 2048),
        "column_modes": (1, 2048),
        "map_width": (4, 128),  # frequencies up to π 2³¹: beyond, float32 has no digits left
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.map_width % 4:
            raise ValueError(f"LatentGrid.map_width must be a multiple of 4, got {self.map_width}")
        for size, modes, most in (
            ("rows", "row_modes", self.rows),
            ("columns", "column_modes", self.columns // 2 + 1),
        ):
            if getattr(self, modes) > most:
                raise ValueError(
                    f"LatentGrid.{modes} must be at most {most} with {getattr(self, size)} {size}, "
                    f"got {getattr(self, modes)}"
                )


class GeometryMap(nn.Module):
    """Moves points of the plane: p ↦ p (1 + MLP(features of p)).

    >>> GeometryMap(width=8)(torch.rand(2, 50, 2)).shape
    torch.Size([2, 50, 2])
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.frequencies = width // 4
        self.features = nn.Linear(4, width)
        self.input = nn.Linear(3 * width, 4 * width)
        self.hidden = nn.ModuleList(nn.Linear(4 * width, 4 * width) for _ in range(3))
        self.output = nn.Linear(4 * width, 2)

    def forward(self, p: Float[Tensor, "b n 2"]) -> Float[Tensor, "b n 2"]:
        away = p - CENTRE
        angle = torch.atan2(away[..., 1], away[..., 0])
        f = torch.cat((p, angle[..., None], away.norm(dim=-1, keepdim=True)), dim=-1)
        frequencies = pi * 2.0 ** torch.arange(self.frequencies, dtype=p.dtype, device=p.device)
        angles = (f[..., None] * frequencies).flatten(-2)
        r = self.input(torch.cat((self.features(f), angles.sin(), angles.cos()), dim=-1))
        for layer in self.hidden:
            r = torch.tanh(layer(r))
        return p * (1 + self.output(r))


class Waves(NamedTuple):
    """Cosines and sines of 2π (k ξ₁ + l ξ₂) at points, with k and l as in `low_waves`; 2π ξ₁."""

    cos: Float[Tensor, "b n k l"]
    sin: Float[Tensor, "b n k l"]
    angle: Float[Tensor, "b n"]


class Geometry(nn.Module):
    """Features at points to an image and back, through one learnt map. In full precision.

    Args:
        spec: the sizes of the data.
        width: the number of features of a point and channels of the image.
        grid: the image and the map.
        inward: R, which makes the image's coefficients of those of the points; None: learnt ones.

    >>> geometry = Geometry(Spec(2, 1, 1), width=5, grid=LatentGrid(16, 16, 4, 4, map_width=8))
    >>> x = torch.rand(1, 50, 2)
    >>> waves = geometry.waves(x)
    >>> image = geometry.to_image(torch.rand(3, 50, 5), waves)
    >>> image.shape, geometry.to_points(image, waves).shape
    (torch.Size([3, 5, 16, 16]), torch.Size([3, 50, 5]))
    """

    def __init__(
        self, spec: Spec, width: int, grid: LatentGrid, inward: nn.Module | None = None
    ) -> None:
        super().__init__()
        if spec.coordinates != 2:
            raise ValueError(
                f"a latent grid needs points of the plane, got {spec.coordinates} coordinates: "
                "pass data of two coordinates, or on a 2-D grid"
            )
        self.grid, modes = grid, (grid.row_modes, grid.column_modes)
        self.map = GeometryMap(grid.map_width)
        self.inward = WaveMixing(width, width, *modes) if inward is None else inward
        self.outward = WaveMixing(width, width, *modes)

    def waves(self, x: Float[Tensor, "b n 2"]) -> Waves:
        """The waves at positions x, which `to_image` and `to_points` share where these are."""
        with full_precision(x):
            x = x.to(self.map.output.weight.dtype)
            mapped = self.map(0.5 + x / 12**0.5 if self.grid.standardized else x)
            first, second = (2 * pi * mapped).unbind(-1)
            # 0, 1, … and then the negative ones
            rows = torch.arange(-self.grid.row_modes, self.grid.row_modes, device=x.device)
            rows = rows.roll(self.grid.row_modes)
            columns = torch.arange(self.grid.column_modes, device=x.device)
            phase = first[..., None, None] * rows[:, None] + second[..., None, None] * columns
            return Waves(phase.cos(), phase.sin(), first)

    def to_image(
        self,
        f: Float[Tensor, "b n c"],
        waves: Waves,
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b c h w"]:
        """The image of features at points; those where the mask is False do not count."""
        with full_precision(f):
            f = f.to(waves.cos.dtype)
            f = f if mask is None else f.masked_fill(~mask[..., None], 0.0)
            real = torch.einsum("bnc,bnkl->bckl", f, waves.cos)
            imaginary = -torch.einsum("bnc,bnkl->bckl", f, waves.sin)
            mixed = self.inward(torch.complex(real, imaginary))
            return image_of_waves(mixed, self.grid.rows, self.grid.columns)

    def to_points(self, image: Float[Tensor, "b c h w"], waves: Waves) -> Float[Tensor, "b n c"]:
        """The features of an image at points."""
        with full_precision(image):
            image = image.to(waves.cos.dtype)
            mixed = self.outward(low_waves(image, self.grid.row_modes, self.grid.column_modes))
            # Waves times 1 + [l > 0] exp(2πi ξ₁), as complex numbers
            both = torch.arange(self.grid.column_modes, device=image.device) > 0
            angle = waves.angle[..., None, None]
            real, imaginary = 1 + both * angle.cos(), both * angle.sin()
            cos = waves.cos * real - waves.sin * imaginary
            sin = waves.sin * real + waves.cos * imaginary
            of_cos = torch.einsum("bckl,bnkl->bnc", mixed.real, cos)
            return of_cos - torch.einsum("bckl,bnkl->bnc", mixed.imag, sin)
