"""Small models of every kind, inputs for them, and comparisons of their predictions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch

from lno import Spec
from lno.models import (
    MODELS,
    DeepONetConfig,
    FactFormerConfig,
    FFNOConfig,
    FNOConfig,
    GalerkinConfig,
    GeoFNOConfig,
    GNOTConfig,
    LatentGrid,
    LNOConfig,
    LNOPlusConfig,
    LSMConfig,
    OFormerConfig,
    ONOConfig,
    SlicedLNOConfig,
    TransolverConfig,
    UFNOConfig,
)

GRID = (10, 6)  # of the 60 points that `inputs` draws
LNO_TIED = LNOConfig(width=32, latents=16, blocks=2, heads=4, layers=2)
LNO_UNTIED = LNOConfig(width=32, latents=16, blocks=2, heads=4, layers=2, tied=False)
PLUS = LNOPlusConfig(width=32, latents=16, rounds=3)
PLUS_BY_POSITION = LNOPlusConfig(width=32, latents=16, rounds=3, values=False)
PLUS_WITHOUT_PLACES = LNOPlusConfig(width=32, latents=16, rounds=2, located=False)
PLUS_LOCAL = LNOPlusConfig(width=32, latents=16, rounds=2, local=3)
LNO_EFFICIENT, LNO_GALERKIN, LNO_NYSTROM = (
    replace(LNO_TIED, attention=name) for name in ("efficient", "galerkin", "nystrom")
)
SLICED = SlicedLNOConfig(width=32, latents=16, blocks=2, heads=4, layers=2)
DEEPONET = DeepONetConfig(width=32, blocks=2, heads=4, layers=4, basis=10)
GNOT_ONE = GNOTConfig(width=32, blocks=2, heads=4, layers=2, experts=1)
GNOT_THREE = GNOTConfig(width=32, blocks=2, heads=4, layers=2, experts=3)
CLOUD = TransolverConfig(32, 2, 4, 8, mlp_ratio=2, convolution=False, reference=None)
REGULAR = TransolverConfig(32, 2, 4, 8, mlp_ratio=1, convolution=True, reference=3)
RAW = TransolverConfig(32, 2, 4, 8, mlp_ratio=1, convolution=True, reference=None)
GALERKIN = GalerkinConfig(32, 2, 4, reference=None)
GALERKIN_GRID = GalerkinConfig(32, 2, 4, mlp_ratio=1, reference=3)
OFORMER = OFormerConfig(width=16, latent=24, layers=3, heads=2, resolution=8)
OFORMER_PLAIN = OFormerConfig(width=16, latent=24, layers=2, heads=1, resolution=8, norm=False)
ONO_LINEAR = ONOConfig(32, 2, 4, modes=6, mlp_ratio=2, attention="linear")
ONO_SOFTMAX = ONOConfig(32, 2, 4, modes=6, attention="softmax")
ONO_NYSTROM = ONOConfig(16, 1, 2, modes=6, attention="nystrom")
FACTFORMER = FactFormerConfig(32, 2, 4, reference=None)
FACTFORMER_GRID = FactFormerConfig(32, 2, 4, mlp_ratio=1, reference=3)
LATENT = LatentGrid(16, 12, 3, 4, map_width=8)
PYRAMID = LatentGrid(32, 16, 3, 4, map_width=8)  # sizes that a U-Net takes
FNO_GRID = FNOConfig(8, reference=3, modes=3)
FNO_RAW = FNOConfig(8, reference=None, modes=3)
FNO_CLOUD = FNOConfig(8, reference=None, cloud=LATENT, modes=3)
GEOFNO_GRID = GeoFNOConfig(8, 3, 4, padding=2)
GEOFNO_CLOUD = GeoFNOConfig(8, 3, 4, cloud=LATENT)
FFNO = FFNOConfig(8, 2, 3, 4, mlp_ratio=2, image=2)
FFNO_CLOUD = FFNOConfig(8, 2, 3, 4, mlp_ratio=2, image=LATENT)
FFNO_SHARED = FFNOConfig(8, 2, 3, 4, mlp_ratio=2, shared=True, layer_norm=True, image=0)
UFNO_GRID = UFNOConfig(4, reference=None, modes=3)
# With fewer pixels on the last level of its U-Nets, batch normalisation amplifies rounding.
UFNO_CLOUD = UFNOConfig(4, reference=None, cloud=replace(PYRAMID, columns=48), modes=3)
LSM_GRID = LSMConfig(4, heads=2, tokens=3, basis=5)
LSM_CLOUD = LSMConfig(4, cloud=PYRAMID, heads=2, tokens=3, basis=5)


def build(config: Any, dtype: torch.dtype = torch.float32, in_channels: int = 1) -> Any:
    """A model with weights away from their initial values, so that all parts matter."""
    model = disturb(initial(config, in_channels))
    if model.keeps_statistics:  # those of some data, not the initial ones
        x, u, _ = inputs(i=in_channels)
        with torch.no_grad():
            model.train()(x, u, x)
    return model.to(dtype).eval()


def disturb(model: Any) -> Any:
    """Move the weights of a model away from their initial values."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # A latent image of few points is faint.
            size = 10.0 if name.startswith("geometry.inward") else 0.1
            parameter.add_(size * torch.randn_like(parameter))
    return model


def initial(config: Any, in_channels: int = 1) -> Any:
    """A model with initial weights."""
    torch.manual_seed(0)
    return make(Spec(2, in_channels, 3, GRID), config)


def make(spec: Spec, config: Any) -> Any:
    return next(model for model, kind in MODELS.values() if type(config) is kind)(spec, config)


def make_without_memory(spec: Spec, config: Any) -> Any:
    with torch.device("meta"):
        return make(spec, config)


def count_parameters(spec: Spec, config: Any) -> int:
    return sum(p.numel() for p in make_without_memory(spec, config).parameters())


def shallow(config: Any) -> Any:
    """The same kind of model with one block: what takes time for each block takes less."""
    depth = [key for key in ("rounds", "blocks", "layers") if hasattr(config, key)][:1]
    return replace(config, **dict.fromkeys(depth, 1))


def inputs(
    n: int = 60, q: int = 40, i: int = 1, b: int = 2, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Positions and values of n observations, and positions of q queries."""
    generator = torch.Generator().manual_seed(1)
    shapes = ((b, n, 2), (b, n, i), (b, q, 2))
    x, u, x_query = (torch.randn(s, generator=generator, dtype=dtype) for s in shapes)
    return x, u, x_query


def mask_of_lengths(*lengths: int, n: int = 60) -> torch.Tensor:
    """A mask of samples with these numbers of real observations, followed by padding."""
    return torch.arange(n) < torch.tensor(lengths)[:, None]


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> bool:
    return float((a - b).detach().abs().max() / b.detach().abs().max()) <= tolerance


def value_and_gradient(model: torch.nn.Module, y: torch.Tensor) -> list[torch.Tensor]:
    """The prediction y and the gradients of its mean square."""
    model.zero_grad()
    y.square().mean().backward()
    return [y.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def all_close(a: Iterable[torch.Tensor], b: Iterable[torch.Tensor], tolerance: float) -> bool:
    """Each relative to its largest number, or to 1e-3: gradients may be zero."""
    pairs = zip(a, b, strict=True)
    return all((p - r).abs().max() <= tolerance * r.abs().max().clamp(min=1e-3) for p, r in pairs)
