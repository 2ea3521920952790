"""What the samples of training are like, and how far another sample is from them.

Two kinds of numbers describe a sample:

- descriptors of the data: quantiles of each input channel, the parameters, where the observed
  points lie, their number and spacing. What counts is how far each is outside of its range in
  training, in standard deviations of the training data, or in doublings of numbers and spacings;
- the latent tokens of models that stream. Their mean and standard deviation over the tokens, t,
  are taken to be normally distributed, with covariance from probabilistic PCA: V the leading r
  principal components, λ their variances, σ² the mean variance of all other directions,

      distance² = (Σ_j (V_j·(t − mean))² / λ_j + ‖rest‖² / σ²) / dimensions.

  It is about one for the samples of training.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lno.config import require_count, require_range, require_type
from lno.data import Batch, Fields, columns
from lno.evaluation import batches
from lno.prediction import encode_batch

if TYPE_CHECKING:
    from lno.operator import Operator

SAMPLES, FEWEST = 1024, 16  # of training that are described, as many as
POINTS = 2**21  # observed points allow
NEIGHBOURS = 256  # points whose nearest neighbour tells the spacing
COMPONENTS = 16  # r, at most
SAMPLES_EACH = 4  # a component needs so many samples
SMALLEST = 1e-6  # σ² at least, as a share of the mean variance: tokens may lie in a subspace
ROUNDING = 1e-5  # of tokens in single precision, relative to their size
QUANTILES = {
    "largest value": 1.0,
    "smallest value": 0.0,
    "median": 0.5,
    "lower quartile": 0.25,
    "upper quartile": 0.75,
}


class Descriptor(NamedTuple):
    """A number that describes a sample.

    Args:
        score: the score that it belongs to.
        text: what it is.
        unit: what one means in this number.
        logarithmic: it is the logarithm, to base 2, of what it describes.
    """

    score: str
    text: str
    unit: float
    logarithmic: bool = False

    def shown(self, value: float) -> str:
        """A value for a message."""
        return f"{2**value if self.logarithmic else value:.4g}"


@dataclass(frozen=True)
class Reference:
    """What samples of training are like: ranges of descriptors, and the distribution of tokens.

    Args:
        samples: how many of them were described.
        low, high: the smallest and largest value of each descriptor.
        mean: of the pooled tokens; nothing for models that do not stream.
        components: V, their principal components, row after row.
        variances: λ, of each component.
        rest: σ², the mean variance of all other directions.
    """

    samples: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    mean: tuple[float, ...]
    components: tuple[float, ...]
    variances: tuple[float, ...]
    rest: float

    def __post_init__(self) -> None:
        require_count("Reference.samples", self.samples, 10**9)
        for name in ("low", "high", "mean", "components", "variances"):
            require_numbers(f"Reference.{name}", getattr(self, name))
        as_many = len(self.low) == len(self.high)
        if not as_many or any(a > b for a, b in zip(self.low, self.high, strict=True)):
            raise ValueError("Reference: expected low <= high, as many of both")
        if len(self.components) != len(self.mean) * len(self.variances):
            raise ValueError(
                f"Reference.components: expected {len(self.variances)} of {len(self.mean)} "
                f"numbers, got {len(self.components)} numbers"
            )
        require_range("Reference.rest", self.rest, 1e-300, 1e300)
        if not all(v > 0 for v in self.variances):
            raise ValueError("Reference.variances: expected positive numbers")

    @classmethod
    def of(cls, operator: Operator, prepared: Fields) -> Reference:
        """Describe samples that the operator's task has prepared, a random part of many."""
        sizes = columns.sizes(prepared.x, len(prepared))
        most = max(FEWEST, min(SAMPLES, int(POINTS / sizes.mean())))
        chosen = np.random.default_rng(0).permutation(len(prepared))[:most]
        described, tokens = [], []
        for _, batch in batches(prepared.subset(np.sort(chosen)), operator.task):
            described.append(describe(operator, batch))
            tokens.append(pooled_tokens(operator, batch))
        values = np.concatenate(described)
        low, high = (tuple(v.tolist()) for v in (values.min(0), values.max(0)))
        known = [t for t in tokens if t is not None]
        pooled = np.concatenate(known) if known else np.zeros((0, 0))
        return cls(len(values), low, high, **_gaussian(pooled))

    @property
    def fewest_points(self) -> int:
        """The fewest observed points that a sample had."""
        return round(2 ** self.low[-2])  # the last two descriptors: number and spacing

    def excess(
        self, operator: Operator, described: Float[np.ndarray, "b k"]
    ) -> Float[np.ndarray, "b k"]:
        """How far descriptors lie outside of their ranges in training, in their units."""
        units = np.array([one.unit for one in descriptors(operator)])
        beyond = np.maximum(described - np.array(self.high), np.array(self.low) - described)
        return np.maximum(beyond, 0.0) / units

    def distance(self, tokens: Float[np.ndarray, "b t"]) -> Float[np.ndarray, " b"]:
        """How far pooled tokens are from those of training."""
        if tokens.shape[1] != len(self.mean):
            raise ValueError(
                f"Reference.mean: expected {tokens.shape[1]} numbers, as the model's pooled tokens "
                f"have, got {len(self.mean)}: the file is damaged, or calibrated for another model"
            )
        components = np.array(self.components).reshape(len(self.variances), -1)
        from_mean = tokens - np.array(self.mean)
        along = from_mean @ components.T
        rest = np.square(from_mean - along @ components).sum(1) / self.rest
        return np.sqrt((np.square(along) @ (1 / np.array(self.variances)) + rest) / len(self.mean))

    def require_fit(self, operator: Operator) -> None:
        """Raise unless it describes samples of an operator's kind."""
        expected = len(descriptors(operator))
        if len(self.low) != expected:
            raise ValueError(
                f"Reference.low: expected {expected} numbers for the operator's inputs, parameters "
                f"and positions, got {len(self.low)}"
            )
        logarithms = [k for k, one in enumerate(descriptors(operator)) if one.logarithmic]
        if any(abs(v) > 63 for k in logarithms for v in (self.low[k], self.high[k])):
            raise ValueError("Reference.low: expected logarithms of numbers of points and spacings")
        if self.mean and not has_tokens(operator):
            raise ValueError(f"Reference.mean: {operator.kind} gives no latent tokens")


def has_tokens(operator: Operator) -> bool:
    """Whether samples have latent tokens: the model streams, and reads the data as they are."""
    return operator.model.streams and not operator.task.time_as_input


def pooled_tokens(operator: Operator, batch: Batch) -> Float[np.ndarray, "b t"] | None:
    """Mean and standard deviation over the latent tokens of each sample; None without tokens.

    Where a model has tokens of several rounds, these are means over the rounds.
    """
    if not has_tokens(operator):
        return None
    z = encode_batch(operator, batch).double()
    z = z.flatten(1, -3) if z.ndim > 3 else z.reshape(len(z), 1, -1, z.shape[-1])
    return torch.cat((z.mean((1, 2)), z.std(2, correction=0).mean(1)), -1).numpy()


def descriptors(operator: Operator) -> list[Descriptor]:
    """What the numbers of `describe` are, in order."""
    labels, scale = operator.labels, operator.normalizers
    parameters = () if scale.parameters is None else scale.parameters.std
    found = [
        Descriptor("inputs", f"the {text} of {name}", std)
        for name, std in zip(labels.names["u"], scale.u.std, strict=True)
        for text in QUANTILES
    ]
    found += [
        Descriptor("parameters", name, std)
        for name, std in zip(labels.names.get("parameters", ()), parameters, strict=True)
    ]
    for k in _bounded(operator):
        name, std = labels.names["x"][k], scale.x.scale.std[k]
        for text in ("smallest", "largest"):
            found.append(Descriptor("positions", f"the {text} observed {name}", std))
            found.append(Descriptor("positions", f"the {text} {name} of a query", std))
    spacing = "the spacing of observed points, in standard deviations of positions,"
    found += [Descriptor("points", "the number of observed points", 1.0, logarithmic=True)]
    return [*found, Descriptor("points", spacing, 1.0, logarithmic=True)]


def describe(operator: Operator, batch: Batch) -> Float[np.ndarray, "b k"]:
    """The descriptors of each sample of a batch in physical units."""
    u = batch.u if batch.observed_background is None else batch.u - batch.observed_background
    inputs, places = _each(u, batch.mask), _each(batch.x, batch.mask)
    asked, rows = _each(batch.x_query, batch.query_mask), []
    shared = batch.mask is None and batch.query_mask is None
    shared = shared and len(batch.x) == len(batch.x_query) == 1
    for k in range(len(batch)):
        values, x, queries = next(inputs), next(places), next(asked)
        row = np.quantile(values, list(QUANTILES.values()), axis=0).T.ravel()
        numbers = [] if batch.parameters is None else batch.parameters[k].tolist()
        if k == 0 or not shared:
            where = _positions(operator, x, queries)
        rows.append([*row.tolist(), *numbers, *where])
    return np.array(rows)


def _positions(operator: Operator, x: np.ndarray, queries: np.ndarray) -> list[float]:
    """Ends of the observed points and of the queries, number and spacing of the points."""
    labels, found = operator.labels, []
    for k in _bounded(operator):
        # Queries may lie anywhere inside of the box.
        found += [float(x[:, k].min()), min(float(queries[:, k].min()), labels.low[k])]
        found += [float(x[:, k].max()), max(float(queries[:, k].max()), labels.high[k])]
    return [*found, math.log2(len(x)), math.log2(_spacing(operator, x))]


def _spacing(operator: Operator, x: Float[np.ndarray, "n d"]) -> float:
    """The median distance of a point from its nearest neighbour, in standardised coordinates."""
    from scipy.spatial import cKDTree

    at = operator.normalizers.x.distance_features(torch.from_numpy(x)).numpy()
    some = at[np.random.default_rng(0).permutation(len(at))[:NEIGHBOURS]]
    distances = np.asarray(cKDTree(at).query(some, k=2)[0])  # of itself, and of the nearest other
    return float(np.clip(np.median(distances[:, 1]), 1e-9, 1e9))  # infinite for a single point


def _bounded(operator: Operator) -> list[int]:
    """The coordinates that have no period."""
    return [k for k, period in enumerate(operator.normalizers.x.period) if period is None]


def _each(values: Tensor, mask: Tensor | None) -> Iterator[Any]:
    """The rows of each sample that are no padding, for ever where all samples share them."""
    arrays = values.double().cpu().numpy()
    if mask is None:
        while True:
            yield from arrays
    real = mask.cpu().numpy()
    shared = len(arrays) == 1
    for k in range(len(real)):
        yield arrays[0 if shared else k][real[k]]


def _gaussian(tokens: Float[np.ndarray, "s t"]) -> dict[str, Any]:
    """The arguments of `Reference` for pooled tokens; empty where there is nothing to learn."""
    nothing = {"mean": (), "components": (), "variances": (), "rest": 1.0}
    samples, dimensions = tokens.shape
    count = min(COMPONENTS, samples // SAMPLES_EACH, dimensions)
    if count == 0:
        return nothing
    mean = tokens.mean(0)
    total = np.square(tokens - mean).sum() / samples
    if not 1e-30 < total < 1e30:  # NaN, too
        return nothing
    if total < ROUNDING**2 * np.square(mean).sum():  # all samples are alike
        return nothing
    _, sizes, components = np.linalg.svd(tokens - mean, full_matrices=False)
    variances = np.square(sizes) / samples
    least = SMALLEST * total / dimensions
    count = min(count, int((variances > least).sum()))
    rest = variances[count:].sum() / max(1, dimensions - count)
    return {
        "mean": rounded(mean),
        "components": rounded(components[:count].ravel()),
        "variances": rounded(variances[:count]),
        "rest": rounded([max(rest, least)])[0],
    }


def rounded(values: Sequence[float] | np.ndarray) -> tuple[float, ...]:
    """Numbers of seven digits, which take little room in a file.

    >>> rounded([1 / 3, 2e-9 / 3])
    (0.3333333, 6.666667e-10)
    """
    return tuple(float(f"{value:.7g}") for value in values)


def require_numbers(name: str, values: Any) -> None:
    """Raise unless values are a tuple of finite numbers."""
    require_type(name, values, tuple[float, ...])
    if not all(math.isfinite(v) for v in values):
        raise ValueError(f"{name}: expected finite numbers, got {str(values)[:80]}")
