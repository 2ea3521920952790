"""The learned covariance of an operator in its file: arrays as tensors, all else as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lno.config import from_dict, require_type
from lno.data.covariance import Covariance, FieldsAtPoints

KEYS = ("scales", "nugget", "variance")
ARRAYS = {"points": torch.float64, "values": torch.float32}
PREFIX = "covariance."


def described_covariance(covariance: Covariance | None) -> dict[str, Any]:
    """What the metadata of a file say of a covariance; nothing if there is none."""
    if covariance is None:
        return {}
    numbers = {key: getattr(covariance, key) for key in KEYS}
    return {"covariance": {**numbers, "sample": covariance.fields is not None}}


def covariance_tensors(covariance: Covariance | None) -> dict[str, Tensor]:
    """The fields whose sample covariance it has, by name."""
    if covariance is None or covariance.fields is None:
        return {}
    return {
        f"{PREFIX}{key}": torch.from_numpy(getattr(covariance.fields, key).copy()).to(kind)
        for key, kind in ARRAYS.items()
    }


def read_covariance(
    found: Mapping[str, Any] | None, tensors: dict[str, Tensor]
) -> Covariance | None:
    """The covariance that a file describes; its arrays are taken out of `tensors`."""
    if found is None:
        return None
    numbers = dict(found)
    sample = numbers.pop("sample", None)
    require_type("covariance.sample", sample, bool)
    covariance = from_dict(Covariance, {**numbers, "fields": None})
    if not sample:
        return covariance
    arrays = {}
    for key, kind in ARRAYS.items():
        tensor = tensors.pop(f"{PREFIX}{key}", None)
        if tensor is None or tensor.dtype != kind:
            raise ValueError(f"{PREFIX}{key}: expected numbers of type {kind}")
        arrays[key] = tensor.numpy()
    return replace(covariance, fields=FieldsAtPoints(**arrays))
