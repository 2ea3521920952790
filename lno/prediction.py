"""From a batch to predictions: members of an ensemble, any number of points in bounded memory.

A model that streams encodes its observations a chunk of points at a time and decodes its queries
likewise, so memory does not grow with the number of points. Other models take whole samples. Values
at queries, where a model reads them, come from the nearest observations if there are many points.

A conditional operator corrects every member by the observations: the prediction is the conditional
mean of a Gaussian process whose prior mean is the model (`lno.kernel_methods.krige`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lno.data import Batch, Fields
from lno.data.checks import SMALLEST_AREA
from lno.data.climatology import Climatology, with_background
from lno.data.columns import as_real
from lno.data.labels import Labels
from lno.data.normalize import Normalizers
from lno.kernel_methods.krige import ConditionedModels
from lno.models import Model, apply_model
from lno.models.interpolation import Interpolant
from lno.models.streamed import slices
from lno.training.precision import matmul_precision

if TYPE_CHECKING:
    from lno.operator import Operator

CHUNK = 16_384  # points in flight at once: about 200 MB for the largest model of the paper
PAIRS = 2**21  # of an observation and a query: with more, a CPU interpolates faster from neighbours


@dataclass(frozen=True)
class Prediction:
    """What the members of an operator predict, in physical units, on the CPU.

    Args:
        members: a prediction of each.
        residuals: the observations minus each model's own prediction there, before it is corrected
            by them; None unless the operator is conditional.
        deviation: the standard deviation of the kriging error, the mean over the members; None
            unless the operator is conditional and it was asked for.
    """

    members: Float[Tensor, "k b q o"]
    residuals: Float[Tensor, "k b n i"] | None = None
    deviation: Float[Tensor, "b q o"] | None = None

    def mean(self) -> Float[Tensor, "b q o"]:
        """The mean over the members."""
        return self.members.mean(0) if len(self.members) > 1 else self.members[0]

    def spread(self) -> Float[Tensor, "b q o"] | None:
        """The standard deviation over the members; None where there is one."""
        return self.members.std(0) if len(self.members) > 1 else None


@dataclass(frozen=True)
class Observations:
    """What `Operator.predict` was given.

    Args:
        fields: as data.
        single: it was one sample without a batch axis; so is the result.
        listed: samples came as a list, or differ in their number of points: the result is a list.
        device: of the tensors; None: it was no torch.
        weighted: the sizes of points were given to be read.
    """

    fields: Fields
    single: bool
    listed: bool
    device: torch.device | None = None
    weighted: bool = False

    def reader(self, operator: Operator) -> Operator:
        """The operator that reads them: a weighted one where the sizes of points were given."""
        return replace(operator, weighted=True) if self.weighted else operator

    def like(self, predictions: Sequence[Tensor]) -> Any:
        """Predictions (b, q, o) for groups of samples, in the form of the arguments.

        One array or a list of them, with or without a batch axis; torch for torch, else NumPy.
        """
        if self.listed:
            return [self._converted(row) for group in predictions for row in group]
        whole = torch.cat(list(predictions))
        return self._converted(whole[0] if self.single else whole)

    def _converted(self, predicted: Tensor) -> Tensor | np.ndarray:
        return predicted.numpy() if self.device is None else predicted.to(self.device)


def observations(
    operator: Operator,
    x: Any,
    u: Any = None,
    x_query: Any = None,
    parameters: Any = None,
    weights: Any = None,
    background: Any = None,
) -> Observations:
    """The arguments of `Operator.predict` as data that the operator can read."""
    found = _as_observations(x, u, x_query, parameters, weights, background, operator.labels)
    if found.weighted and not operator.model.reads_weights:
        raise ValueError(f"weights: {operator.kind} does not read the sizes of points; lno does")
    found = replace(found, fields=as_trained(operator, found.fields))
    operator.labels.check(found.fields, operator.normalizers.x.wraps)
    return found


def as_trained(operator: Operator, fields: Fields) -> Fields:
    """Data with what the operator knows beside them: a background, latitude and longitude."""
    if operator.background is not None:
        fields = with_background(fields, operator.background)
    sphere = operator.normalizers.x.sphere
    if sphere is not None and fields.sphere is None and fields.spec.coordinates > max(sphere):
        fields = fields.replace(sphere=[fields.names["x"][k] for k in sphere])
    return fields


def _as_observations(
    x: Any, u: Any, x_query: Any, parameters: Any, weights: Any, background: Any, labels: Labels
) -> Observations:
    """The arguments of `Operator.predict` as data; NumPy, torch or nested lists."""
    if isinstance(x, Fields):
        if any(v is not None for v in (u, x_query, parameters, weights, background)):
            raise ValueError("x: Fields hold everything, pass nothing beside them")
        return Observations(x, False, x.is_ragged)
    given = {"x": x, "u": u, "x_query": x_query, "background": background}
    arrays = {name: None if v is None else _arrays(name, v) for name, v in given.items()}
    present = {name: v for name, v in arrays.items() if v is not None}
    if "x" not in present:
        raise TypeError("x: expected positions (n, d) or (b, n, d), or Fields, got None")
    for name, v in present.items():
        if not isinstance(v, list) and v.ndim not in (2, 3):
            raise ValueError(
                f"{name}: expected an array (points, channels) of one sample, (samples, points, "
                f"channels) of several, or a list of arrays; got shape {v.shape}. For one channel "
                "write values[..., None]"
            )
    positions = present["x"]
    one = positions[0] if isinstance(positions, list) and len(positions) else positions
    if np.ndim(one) > 1:
        labels.require("x", np.shape(one)[-1])
    single = all(not isinstance(v, list) and v.ndim == 2 for v in present.values())
    for name in ("u", "background"):
        if single and name in present:
            arrays[name] = present[name][None]
        elif name in present and not isinstance(present[name], list) and present[name].ndim == 2:
            several = next(n for n, v in present.items() if isinstance(v, list) or v.ndim == 3)
            raise ValueError(
                f"{name}: expected values of each sample, (samples, points, channels), as "
                f"{several} has several samples; got shape {present[name].shape} of one"
            )
    if parameters is not None:
        parameters = np.atleast_2d(as_real("parameters", parameters))
    others = {"parameters": parameters, "weights": weights, "background": arrays["background"]}
    fields = Fields(arrays["x"], arrays["u"], arrays["x_query"], **others, space=labels.space)
    listed = isinstance(arrays["x"], list) or isinstance(arrays["x_query"], list)
    first = (v[0] if isinstance(v, list | tuple) and v else v for v in (x, u))
    device = next((v.device for v in first if isinstance(v, Tensor)), None)
    return Observations(fields, single, listed or fields.is_ragged, device, weights is not None)


def _arrays(name: str, values: Any) -> Any:
    """An array; or a list, where it is one of arrays (n_k, c)."""
    if isinstance(values, list | tuple) and values:
        each = [as_real(f"{name}, sample {k}", v) for k, v in enumerate(values)]
        if each[0].ndim == 2:
            return each
    return as_real(name, values)


def groups(operator: Operator, fields: Fields) -> Iterator[tuple[int, Batch]]:
    """As many samples at a time as fit into one chunk of points, and the number of the first."""
    points = max(len(fields[0].x), len(fields[0].x_query))
    size = 1 if fields.is_ragged else max(1, CHUNK // points)
    for part in slices(len(fields), size):
        batch = fields.batch(np.arange(part.start, part.stop))
        if batch.background is not None and operator.task.observes_outputs:
            batch = replace(batch, observed_background=background_at(batch, operator))
        yield part.start, batch


def predict_groups(
    operator: Operator, fields: Fields, noise: float, deviation: bool = False
) -> Iterator[tuple[Batch, Prediction]]:
    """Finite predictions for `groups` of samples."""
    for first, batch in groups(operator, fields):
        prediction = predict_batch(operator, batch, noise, deviation)
        bad = ~torch.isfinite(prediction.mean())
        if bad.any():
            sample, point, _ = bad.nonzero()[0].tolist()
            raise RuntimeError(
                f"the prediction for sample {first + sample}, point {point} is not finite: "
                "the input is far from the training data, or the weights are damaged"
            )
        yield batch, prediction


@torch.inference_mode()
def predict_batch(
    operator: Operator, batch: Batch, noise: float = 0.0, deviation: bool = False
) -> Prediction:
    """The prediction of every member for a batch in physical units.

    Args:
        operator: a trained operator.
        batch: what is observed, and the query points.
        noise: the standard deviation of the observations' errors, in their units; for conditional
            operators.
        deviation: measure that of the kriging error, too.
    """
    operator.normalizers.require_readable(batch)
    batch = _with_areas(operator, batch)
    with matmul_precision("fp32"):
        if operator.conditional:
            return _conditional(operator, batch, noise, deviation)
        values = []
        for model in operator.members:

            def apply(batch: Batch, model: Model = model) -> Tensor:
                [out] = predictions_at(operator, model, batch, batch.x_query)
                return operator.normalizers.decode(out, batch.background)

            values.append(operator.task.predict(apply, batch))
        return Prediction(torch.stack(values))


def _with_areas(operator: Operator, batch: Batch) -> Batch:
    """On a sphere, observed points without a weight have that of their latitude, as in training."""
    sphere = operator.normalizers.x.sphere
    if sphere is None or batch.weights is not None or not operator.weighted:
        return batch
    area = torch.cos(torch.deg2rad(batch.x[..., sphere[0]])).clamp(min=SMALLEST_AREA)
    return replace(batch, weights=area.to(batch.u))


def _conditional(operator: Operator, batch: Batch, noise: float, deviation: bool) -> Prediction:
    """The members' predictions conditioned on the observations."""
    scale, device = operator.normalizers, operator.device
    at = (batch.x_query, batch.x)
    pairs = [predictions_at(operator, model, batch, *at) for model in operator.members]
    at_query, at_x = (torch.stack([scale.y.decode(v) for v in w]) for w in zip(*pairs, strict=True))
    background, observed = batch.background, batch.observed_background
    u = batch.u.to(at_x) if observed is None else (batch.u - observed).to(at_x)
    x, x_query = (scale.x.distance_features(v).to(device) for v in (batch.x, batch.x_query))
    mask, axes = None if batch.mask is None else batch.mask.to(device), scale.x.distance_axes
    errors = None
    if operator.covariance is not None:
        residuals = (u - at_x).to(device)
        added, left = operator.covariance.correct(x, residuals, x_query, mask, noise, axes)
        errors = left.to(at_query) if deviation else None
        values = at_query + added.to(at_query)
    else:
        x, models = x.expand(len(batch), -1, -1), (at_x.to(device), at_query.to(device))
        conditioned = ConditionedModels(x, u.to(device), x_query, *models, mask, noise, axes)
        errors = conditioned.deviation().mean(0).to(at_query) if deviation else None
        values = conditioned.mean.to(at_query)
    values = values if background is None else values + background.to(values)
    return Prediction(values, u - at_x, errors)


def predictions_at(operator: Operator, model: Model, batch: Batch, *places: Tensor) -> list[Tensor]:
    """One model's predictions for a batch at several sets of positions (#b, q, d), standardised.

    Observations are encoded once for all sets.
    """
    model.eval()
    b, n = len(batch), batch.x.shape[1]
    chunk = max(1, CHUNK // b)
    few = len(places) == 1 and max(n, places[0].shape[1]) <= chunk
    if few and model.reads_query_values and places[0] is not batch.x:
        few = operator.device.type != "cpu" or n * places[0].shape[1] <= PAIRS
    if few or not model.streams:
        asked = [_ready(operator, _asked_at(batch, place)) for place in places]
        return [_whole(model, each, operator).cpu() for each in asked]
    z, task = _encode(operator, model, batch), operator.task
    needed = model.reads_query_values or task.reads_query_values
    values = _interpolants(operator, batch) if needed else []
    found = []
    for place in places:
        out = torch.empty(b, place.shape[1], len(operator.normalizers.y.mean))
        for part in slices(place.shape[1], chunk):
            some = _asked_at(batch.at_points(slice(0, 1)), place[:, part])
            if values:
                some = _interpolated(some, operator.normalizers, values)
            ready = _ready(operator, some)
            known = [ready.inputs] if model.reads_query_values else []
            decoded = model.decode(z, ready.x_query, *known).float()
            out[:, part] = task.model_output(decoded, ready).cpu()
        found.append(out)
    return found


@torch.inference_mode()
def encode_batch(operator: Operator, batch: Batch) -> Float[Tensor, "b ..."]:
    """What the first member makes of the observations of a batch: its latent tokens, on the CPU.

    For models that stream, and tasks that a model reads as the data are.
    """
    operator.normalizers.require_readable(batch)
    operator.model.eval()
    with matmul_precision("fp32"):
        return _encode(operator, operator.model, batch).float().cpu()


def _encode(operator: Operator, model: Model, batch: Batch) -> Tensor:
    """The observations of a batch in physical units, encoded a chunk of points at a time."""

    def observed() -> Iterator[tuple[Any, ...]]:
        for part in slices(batch.x.shape[1], max(1, CHUNK // len(batch))):
            some = _ready(operator, _asked_at(batch.at_points(part), batch.x[:, :1]))
            weights = some.weights if operator.weighted else None
            yield some.x, some.inputs, some.mask, weights

    return model.encode_parts(observed)


def _ready(operator: Operator, batch: Batch) -> Batch:
    """A batch in physical units as a model reads it, on its device."""
    return operator.task.model_input(operator.normalizers.encode(batch)).to(operator.device)


def _interpolants(operator: Operator, batch: Batch) -> list[Interpolant]:
    """The observed values of each sample as a function of encoded positions."""
    x = operator.normalizers.encode(_asked_at(batch, batch.x[:, :1])).x
    u = batch.u if batch.observed_background is None else batch.u - batch.observed_background
    real = torch.ones(u.shape[:2], dtype=torch.bool) if batch.mask is None else batch.mask
    sizes = batch.weights if operator.weighted else None
    found = []
    for k in range(len(batch)):
        where = real[k] if sizes is None else real[k] & (sizes[k % len(sizes)] > 0)
        own = None if sizes is None else sizes[k % len(sizes)][where].numpy()
        found.append(Interpolant(x[k % len(x)][where].numpy(), u[k][where].numpy(), own))
    return found


def _interpolated(asked: Batch, scale: Normalizers, values: Sequence[Interpolant]) -> Batch:
    """Values interpolated at the query points, as if they were observed there."""
    x = scale.encode(asked).x_query.numpy()
    u = torch.stack([torch.from_numpy(at(x[k % len(x)])) for k, at in enumerate(values)])
    known = replace(asked, x=asked.x_query, u=u, mask=None, weights=None, observed_background=None)
    return replace(known, x_query=known.x)


def _asked_at(batch: Batch, place: Tensor) -> Batch:
    """The observations of a batch with other query points, about which nothing else is known."""
    return replace(
        batch, x_query=place, y=None, query_mask=None, query_weights=None, background=None
    )


def _whole(model: Model, ready: Batch, operator: Operator) -> Tensor:
    """A model's prediction for an encoded batch, all points at once.

    Where a prediction depends on the other queries of a call, predictions are made in random sets
    of the size that the model was trained with.
    """
    size, count, task = operator.query_set, ready.x_query.shape[1], operator.task
    if size is None or count <= size:
        return task.model_output(apply_model(model, ready, operator.weighted).float(), ready)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    order = torch.cat((order, order))[: -(-count // size) * size].to(ready.x_query.device)
    out = ready.u.new_empty(len(ready), count, model.spec.out_channels)
    for chosen in order.split(size):
        out[:, chosen] = apply_model(model, ready.at_queries(chosen), operator.weighted).float()
    return task.model_output(out, ready)


def background_at(batch: Batch, operator: Operator) -> Tensor:
    """The background at the observed points: a climatology there, or that of the nearest query."""
    assert batch.background is not None
    if isinstance(operator.background, Climatology):
        return climatology_at(operator.background, batch.x, batch).to(batch.background)
    features = operator.normalizers.x.distance_features
    x, x_query = (features(v).expand(len(batch), -1, -1) for v in (batch.x, batch.x_query))
    nearest = torch.cdist(x, x_query).argmin(2)
    index = nearest[..., None].expand(-1, -1, batch.background.shape[-1])
    return batch.background.gather(1, index)


def climatology_at(known: Climatology, x: Tensor, batch: Batch) -> Tensor:
    """A climatology (b, n, o) at positions (#b, n, d) of the samples of a batch."""
    places, given = x.double().numpy(), batch.parameters
    rows = [
        known.at(places[k % len(places)], None if given is None else given[k].double().numpy())
        for k in range(len(batch))
    ]
    return torch.from_numpy(np.stack(rows)).float()
