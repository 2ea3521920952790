"""What a run is given: samples to train on, others to watch, and that they fit together."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from lno.data import Fields, columns


def hold_back(data: Fields, validation: float | Fields) -> tuple[Fields, Fields | None]:
    """Training and validation samples, chosen at random but alike for every seed of training."""
    if isinstance(validation, Fields):
        return data, validation
    if not 0 <= validation < 1:
        raise ValueError(
            f"validation: expected a share from 0 to below 1, or Fields, got {validation}"
        )
    count = min(round(validation * len(data)), len(data) - 1)
    if count == 0:
        return data, None
    order = np.random.default_rng([0, 1]).permutation(len(data))
    return data.subset(np.sort(order[count:])), data.subset(np.sort(order[:count]))


def require_alike(data: Fields, other: Fields) -> Fields:
    """Validation samples, unless a model for the training samples cannot read them."""
    expected, got = (replace(fields.spec, grid=None) for fields in (data, other))
    if expected != got:
        raise ValueError(f"validation: expected samples with {expected}, got {got}")
    return other


def require_inputs(data: Fields) -> None:
    """Raise where nothing tells the samples apart: all would have the same answer."""
    if data.spec.in_channels == 0 and columns.is_shared(data.x) and len(data) > 1:
        raise ValueError(
            "the samples have no observed values u and share their positions: nothing tells them "
            "apart. To learn to see these fields from some of their points, pass "
            "task=Completion(RandomRatio(0.01, 0.2))"
        )


def require_json(what: str, value: Any) -> None:
    """Raise unless a value can be written into files: before the work."""
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what}: expected plain JSON, {error}") from None
