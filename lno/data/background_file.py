"""The background of an operator in its file: arrays as tensors, all else as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lno.config import require_count, require_type
from lno.data.climatology import Background, Climatology

ARRAYS = ("values", "means", "points")
PREFIX = "background."


def described_background(background: Background) -> dict[str, Any]:
    """What the metadata of a file say of a background; nothing if there is none."""
    if background is None:
        return {}
    if isinstance(background, str):
        return {"background": {"input": background}}
    return {"background": {"name": background.name, "column": background.column}}


def background_tensors(background: Background) -> dict[str, Tensor]:
    """The arrays of a climatology by name."""
    if not isinstance(background, Climatology):
        return {}
    return {
        f"{PREFIX}{key}": torch.from_numpy(getattr(background, key).copy()).double().contiguous()
        for key in ARRAYS
    }


def read_background(found: Mapping[str, Any] | None, tensors: dict[str, Tensor]) -> Background:
    """The background that a file describes; its arrays are taken out of `tensors`."""
    if found is None:
        return None
    if set(found) == {"input"}:
        require_type("background.input", found["input"], str)
        return str(found["input"])
    if set(found) != {"name", "column"}:
        raise ValueError(f"background: expected name and column, got {', '.join(found)}")
    require_count("background.column", found["column"], 10**6, least=0)
    arrays = {}
    for key in ARRAYS:
        tensor = tensors.pop(f"{PREFIX}{key}", None)
        if tensor is None or tensor.dtype != torch.float64:
            raise ValueError(f"{PREFIX}{key}: expected numbers in double precision")
        arrays[key] = tensor.numpy()
    return Climatology(found["name"], column=found["column"], **arrays)
