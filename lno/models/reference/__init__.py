"""Weights of published code as models of this package, which compute the same.

A translator takes the weights of one model from their published names to ours. Weights that the
published code has and does not use are skipped by name; unknown names are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lno.data.fields import Spec
from lno.models.model import Model, ModelConfig
from lno.models.reference import ffno, geofno, image, lno, oformer, transformers, transolver

# From published weights and the settings that they do not determine.
Translator = Callable[
    [Mapping[str, Any], Mapping[str, Any]], tuple[ModelConfig, Spec, dict[str, Tensor]]
]
TRANSLATORS: dict[str, Translator] = {
    "lno": lno.translate,
    "transolver": transolver.translate,
    "fno": image.translate_fno,
    "geofno": geofno.translate,
    "ffno": ffno.translate,
    "ufno": image.translate_ufno,
    "lsm": image.translate_lsm,
    "galerkin": transformers.translate_galerkin,
    "oformer": oformer.translate,
    "factformer": transformers.translate_factformer,
    "ono": transformers.translate_ono,
}


def from_reference(kind: str, weights: Mapping[str, Any], config: Mapping[str, Any]) -> Model:
    """A model with weights of published code; in float64 if they are, else in float32.

    Args:
        kind: its name in `MODELS`.
        weights: arrays by their published names.
        config: the settings that the weights do not determine: `heads` of an LNO; `heads`, `grid`
            and `in_channels` of a Transolver; of other models, the arguments of the published
            code as they are stored with the weights, and `shape`, the grid, where that code takes
            an image.

    >>> from_reference("lno", {}, {"heads": 4})
    Traceback (most recent call last):
    ...
    ValueError: the weights lack 'trunk.input.weight': expected all weights of one LNO
    """
    from lno.models import MODELS  # the table lists the models, which are made of this module

    if kind not in TRANSLATORS:
        raise ValueError(
            f"no published weights of {kind!r}: expected one of {', '.join(TRANSLATORS)}"
        )
    model_class = MODELS[kind][0]
    try:
        sizes, spec, state = TRANSLATORS[kind](weights, config)
    except KeyError as error:
        raise ValueError(
            f"the settings of the published {model_class.__name__} lack {error}: got "
            f"{', '.join(config) or 'none'}"
        ) from error
    model: Model = model_class(spec, sizes)
    floating = [v for v in state.values() if v.is_floating_point() or v.is_complex()]
    if floating and all(v.dtype in (torch.float64, torch.complex128) for v in floating):
        model = model.double()
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(f"the weights do not fit one {model_class.__name__}: {error}") from error
    return model
