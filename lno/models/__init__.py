"""Models: each maps (x, u, x_query, mask) to predictions and is built from a `Spec`."""

from collections.abc import Mapping
from typing import Any

import torch

from lno.config import from_dict
from lno.data import Spec
from lno.models.attention import ATTENTIONS, SelfAttention
from lno.models.deeponet import DeepONet, DeepONetConfig
from lno.models.factformer import FactFormer, FactFormerConfig
from lno.models.ffno import FFNO, FFNOConfig
from lno.models.fno import FNO, FNOConfig
from lno.models.galerkin import Galerkin, GalerkinConfig
from lno.models.geofno import GeoFNO, GeoFNOConfig
from lno.models.geometry_map import LatentGrid
from lno.models.gnot import GNOT, GNOTConfig
from lno.models.layers import TransformerBlock
from lno.models.lno import LNO, LNOConfig, PhysicsCrossAttention
from lno.models.lno_plus import LNOPlus, LNOPlusConfig
from lno.models.lsm import LSM, LSMConfig
from lno.models.model import (
    Demand,
    Model,
    ModelConfig,
    apply_model,
    capable_models,
    require_capable,
)
from lno.models.oformer import OFormer, OFormerConfig
from lno.models.ono import ONO, ONOConfig
from lno.models.reference import from_reference
from lno.models.same_points import SamePointsModel
from lno.models.sliced import SlicedLNO, SlicedLNOConfig
from lno.models.transolver import Transolver, TransolverConfig
from lno.models.ufno import UFNO, UFNOConfig

MODELS: dict[str, tuple[type[Model], type[ModelConfig]]] = {
    "lno": (LNO, LNOConfig),
    "lno_plus": (LNOPlus, LNOPlusConfig),
    "deeponet": (DeepONet, DeepONetConfig),
    "gnot": (GNOT, GNOTConfig),
    "transolver": (Transolver, TransolverConfig),
    "fno": (FNO, FNOConfig),
    "geofno": (GeoFNO, GeoFNOConfig),
    "ffno": (FFNO, FFNOConfig),
    "ufno": (UFNO, UFNOConfig),
    "lsm": (LSM, LSMConfig),
    "galerkin": (Galerkin, GalerkinConfig),
    "oformer": (OFormer, OFormerConfig),
    "factformer": (FactFormer, FactFormerConfig),
    "ono": (ONO, ONOConfig),
    "sliced_lno": (SlicedLNO, SlicedLNOConfig),
}


def build_model(
    kind: str, config: ModelConfig | Mapping[str, Any] | None, spec: Spec, seed: int = 0
) -> Model:
    """A new model, with initial weights that `seed` determines.

    Args:
        kind: its name in `MODELS`.
        config: its sizes, or a dictionary of them. None: the defaults for data of this spec.
        spec: the sizes of the data.
        seed: the seed of the initial weights.

    >>> build_model("deeponet", {"width": 16, "heads": 4}, Spec(2, 1, 1)).config.width
    16
    """
    if not isinstance(kind, str) or kind not in MODELS:
        raise ValueError(f"no model {kind!r}: expected one of {', '.join(MODELS)}")
    model_class, config_class = MODELS[kind]
    if config is None:
        config = model_class.default_config(spec)
    elif not isinstance(config, config_class):
        config = from_dict(config_class, config)  # type: ignore[arg-type]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return model_class(spec, config)
        except ValueError as error:
            able = capable_models(Demand(spec))
            if kind in able or not able:
                raise  # another config would do, or nothing
            raise ValueError(f"{error}, or use {' or '.join(able)}") from error


__all__ = [
    "ATTENTIONS",
    "FFNO",
    "FNO",
    "GNOT",
    "LNO",
    "LSM",
    "MODELS",
    "ONO",
    "UFNO",
    "DeepONet",
    "DeepONetConfig",
    "Demand",
    "FFNOConfig",
    "FNOConfig",
    "FactFormer",
    "FactFormerConfig",
    "GNOTConfig",
    "Galerkin",
    "GalerkinConfig",
    "GeoFNO",
    "GeoFNOConfig",
    "LNOConfig",
    "LNOPlus",
    "LNOPlusConfig",
    "LSMConfig",
    "LatentGrid",
    "Model",
    "ModelConfig",
    "OFormer",
    "OFormerConfig",
    "ONOConfig",
    "PhysicsCrossAttention",
    "SamePointsModel",
    "SelfAttention",
    "SlicedLNO",
    "SlicedLNOConfig",
    "TransformerBlock",
    "Transolver",
    "TransolverConfig",
    "UFNOConfig",
    "apply_model",
    "build_model",
    "capable_models",
    "from_reference",
    "require_capable",
]
