"""What training data must offer: inputs that tell samples apart, and a model that can take them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from lno.data import Fields, Spec, columns
from lno.data.normalize import Normalizers
from lno.models import Demand, Model
from lno.tasks import Task


def model_spec(prepared: Fields, normalizers: Normalizers) -> Spec:
    """What the model sees: encoded positions and normalised channels."""
    channels = (normalizers.in_channels, len(normalizers.y.mean))
    return Spec(normalizers.x.features, *channels, prepared.spec.grid)


def demand(model: Model, prepared: Fields, task: Task, queries: int | None) -> Demand:
    """What the data and the task ask of a model."""
    elsewhere = task.asks_elsewhere or not prepared.same_points
    return Demand(model.spec, elsewhere, prepared.is_ragged, queries is not None)


def require_inputs(data: Fields, task: Task, weighted: bool) -> None:
    """Raise where a model could only answer with a constant, or where weights are missing."""
    if weighted and data.weights is None and data.query_weights is None:
        raise ValueError(
            "Recipe.weighted: the data have no weights of points. Pass Fields(..., weights=...), "
            "the size that each point stands for"
        )
    if task.observes_answers:
        return
    if data.spec.in_channels == 0 and columns.is_shared(data.x) and len(data) > 1:
        raise ValueError(
            "the samples have no observed values u and share their positions: nothing tells them "
            "apart. To learn to reconstruct these fields from some of their points, pass "
            "task=Completion(RandomRatio(0.01, 0.2))"
        )
    if columns.sizes(data.x, len(data)).max() == 1:
        raise ValueError(
            "every sample observes one point only: the answer could not depend on the position. "
            "Pass the numbers of a whole sample as Fields(..., parameters=array (samples, "
            "numbers)), with the points of the answers as x"
        )


def require_alike(data: Fields, other: Fields) -> Fields:
    """Validation samples, unless a model for the training samples cannot read them."""
    expected, got = (replace(fields.spec, grid=None) for fields in (data, other))
    if expected != got:
        raise ValueError(f"validation: expected samples with {expected}, got {got}")
    return other


def copies(
    members: Sequence[Model], normalizers: Normalizers, count: int, prepared: Fields, task: Task
) -> list[Model]:
    """Models to fine-tune: copies of the members of an operator, in turn."""
    expected = model_spec(prepared, normalizers)
    own = task.normalizers(prepared)
    got = model_spec(prepared, own)
    if replace(expected, grid=None) != replace(got, grid=None):
        raise ValueError(
            f"cannot fine-tune: the operator was trained for {expected}, the data are {got}"
        )
    if normalizers.x.period != own.x.period:
        raise ValueError(
            f"cannot fine-tune: the operator's coordinates have periods "
            f"{normalizers.x.period}, those of the data {own.x.period}"
        )
    return [copy.deepcopy(members[k % len(members)]) for k in range(count)]
