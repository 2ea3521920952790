"""What is simple: predictions from the training samples without a network, to compare with.

- the mean of the training outputs;
- the output of the nearest training sample, by its inputs;
- kernel ridge regression from the inputs to POD coefficients of the outputs;
- kriging, where the field itself is observed at some points, and about a linear trend in covariates
  if there are any;
- the background, where the data have one.

The inputs of a sample are its parameters, its observed values, and its positions where these differ
from sample to sample. Each of the three counts alike. Where a background is known, all methods
predict what is to be added to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.spatial import cKDTree

from lno.data import Fields, columns
from lno.data.normalize import Coordinates
from lno.data.spec import Sample
from lno.kernel_methods.kernel_ridge import KernelRidge, squared_distances
from lno.kernel_methods.krige import krige
from lno.tasks import Completion, Task
from lno.text import visible

MEAN, NEAREST = "mean of the training samples", "nearest training sample"
REGRESSION, KRIGING, BACKGROUND = "kernel ridge regression", "kriging", "background alone"
MOST_SAMPLES, MOST_VALUES = 1000, 2**27  # of training, at random, that are used
REFERENCE = 4096  # points that samples on different points are compared at
KRIGED, SENSORS = 64, 1024  # test samples that are kriged; of more sensors, a quarter at least

Place = Callable[[np.ndarray], np.ndarray]  # positions to features whose distances mean something


@dataclass(frozen=True)
class Method:
    """What a simple method predicts.

    Args:
        name: of the method.
        predictions: values (q, o) at the query points of each test sample; None: not computed.
        note: how it was made, for a remark below a table.
    """

    name: str
    predictions: list[np.ndarray | None]
    note: str = ""


@dataclass(frozen=True)
class SimpleMethods:
    """The methods that the data allow, and of the others the reason why not, by name."""

    methods: list[Method]
    left_out: dict[str, str]


def predict_simply(
    train: Fields, test: Sequence[Sample], coordinates: Coordinates, task: Task | None = None
) -> SimpleMethods:
    """All simple methods, from training samples to test samples.

    Args:
        train: training samples with outputs, prepared by the task.
        test: what is observed of the test samples, and the query points.
        coordinates: turn positions into features for distances.
        task: says whether the output itself is observed, and where; None: from u to y.

    >>> x = np.linspace(0, 1, 5)[:, None]
    >>> data = Fields(x, y=np.arange(4.0)[:, None, None] * x, parameters=np.arange(4.0)[:, None])
    >>> found = predict_simply(data, [data[3]], Coordinates.fit(data))
    >>> [(method.name, float(method.predictions[0][-1, 0].round(2))) for method in found.methods]
    [('mean of the training samples', 1.5), ('nearest training sample', 3.0),
     ('kernel ridge regression', 3.0)]
    """
    drawn = isinstance(task, Completion)  # observed points differ from sample to sample
    require_alike(train, test, drawn)

    def place(x: np.ndarray) -> np.ndarray:
        there = coordinates.distance_features(torch.from_numpy(np.ascontiguousarray(x)))
        return there.double().numpy()

    size = max(1, int(columns.sizes(train.x_query, len(train)).max()) * train.spec.out_channels)
    most, note = max(2, min(MOST_SAMPLES, MOST_VALUES // size)), ""
    if len(train) > most:
        train = train.subset(np.sort(np.random.default_rng(0).permutation(len(train))[:most]))
        note = f"from {most} training samples, at random"
    common = CommonPoints.of(train, test, place)
    outputs = common.gather(train)  # (s, p, o)
    if not common.matched:
        note = "; ".join(filter(None, (note, "outputs interpolated between different points")))
    methods, left_out = [_spread(MEAN, common, test, outputs.mean(0)[None], None, note)], {}
    inputs = None
    if drawn:
        chosen = common.nearest_at_sensors(outputs, test)
        methods.append(_spread(NEAREST, common, test, outputs, chosen, note))
        left_out[REGRESSION] = "the observed points differ from sample to sample"
    else:
        inputs = _inputs(train, test, place)
        if inputs is None:
            reason = "all samples have the same inputs"
            left_out |= {NEAREST: reason, REGRESSION: reason}
        else:
            chosen = nearest(*inputs)
            methods.append(_spread(NEAREST, common, test, outputs, chosen, note))
    if inputs is not None and len(train) < 4:
        left_out[REGRESSION] = f"it needs 4 training samples, there are {len(train)}"
    elif inputs is not None:
        fitted = KernelRidge.fit(inputs[0], outputs)
        found = fitted.predict(inputs[1])
        every = np.arange(len(test))
        about = f"{len(fitted.modes)} POD modes; length scale {fitted.length:.3g}, ridge "
        about += f"{fitted.ridge:.0e}, by leave-one-out errors"
        both = "; ".join(filter(None, (about, note)))
        methods.append(_spread(REGRESSION, common, test, found, every, both))
    if task is not None and task.observes_outputs:
        covariates = train.names["x"][train.space :]
        axes = coordinates.distance_axes
        methods.append(_kriged(KRIGING, test, place, axes, train.spec.coordinates))
        if covariates:
            name = f"{KRIGING} with a linear trend in {visible(', '.join(covariates))}"
            methods.append(_kriged(name, test, place, axes, train.space))
    if train.background is not None:
        methods.append(Method(BACKGROUND, [one.background for one in test]))
    return SimpleMethods(methods, left_out)


def require_alike(train: Fields, test: Sequence[Sample], drawn: bool = False) -> None:
    """Raise unless training and test samples have the same coordinates, channels and parameters.

    Args:
        train: training samples.
        test: test samples.
        drawn: the observed values of the test samples were drawn from their outputs.
    """
    if train.y is None:
        raise ValueError("the training samples have no outputs y to compare with")
    one = test[0]
    assert one.y is not None
    numbers = [0 if p is None else p.shape[-1] for p in (train.parameters, one.parameters)]
    pairs = [
        ("coordinates", train.spec.coordinates, one.x_query.shape[1]),
        ("channels of y", train.spec.out_channels, one.y.shape[1]),
        ("channels of u", columns.channels(train.u), one.u.shape[1]),
        ("parameters", *numbers),
    ]
    for name, expected, got in pairs:
        if expected != got and not (drawn and name == "channels of u"):
            raise ValueError(
                f"the training samples have {expected} {name}, the test samples {got}: expected "
                "samples of one kind"
            )
    if (train.background is None) != (one.background is None):
        raise ValueError("expected a background in training and test samples, or in neither")


# -- from some points to others --------------------------------------------------------------------


def transfer(
    at: Float[np.ndarray, "n f"], values: Float[np.ndarray, "n c"], to: Float[np.ndarray, "q f"]
) -> Float[np.ndarray, "q c"]:
    """Values at other points: of the f + 1 nearest, weighted by inverse squares of distances.

    >>> x = np.array([[0.0], [1.0], [3.0]])
    >>> transfer(x, 2 * x, np.array([[1.0], [0.5]])).ravel().round(6)
    array([2., 1.])
    """
    count = min(len(at), at.shape[1] + 1)
    distance, index = cKDTree(at).query(to, k=np.arange(1, count + 1))
    weights = 1 / np.square(np.maximum(distance, 1e-9))
    weights /= weights.sum(1, keepdims=True)
    return np.einsum("qk,qkc->qc", weights, values[index])


def nearest_distance(
    at: Float[np.ndarray, "n f"], to: Float[np.ndarray, "q f"]
) -> Float[np.ndarray, " q"]:
    """The distance of each point of `to` from the nearest of `at`."""
    return np.asarray(cKDTree(at).query(to)[0])


@dataclass(frozen=True)
class CommonPoints:
    """Points where the outputs of all training samples are compared.

    Args:
        positions: features of these points.
        matched: point k of any sample, of training or test, is point k here: samples are on the
            same points, on grids of one shape, or on meshes with the same cells. Else outputs are
            interpolated.
        place: positions to features.
    """

    positions: Float[np.ndarray, "p f"]
    matched: bool
    place: Place

    @classmethod
    def of(cls, train: Fields, test: Sequence[Sample], place: Place) -> CommonPoints:
        """Those of training samples if all samples share them, else some of one of them."""
        sizes = columns.sizes(train.x_query, len(train))
        middle = train[int(np.argsort(sizes)[len(sizes) // 2])].x_query
        nodes = _nodes_correspond(train, test)
        matched = _matched(train.x_query, len(train), [one.x_query for one in test], nodes)
        if not matched and len(middle) > REFERENCE:
            some = np.random.default_rng(0).permutation(len(middle))[:REFERENCE]
            middle = middle[np.sort(some)]
        return cls(place(middle), matched, place)

    def gather(self, train: Fields) -> Float[np.ndarray, "s p o"]:
        """The outputs of training samples here, less their background."""
        rows = []
        for one in train:
            assert one.y is not None
            y = one.y if one.background is None else one.y - one.background
            rows.append(y if self.matched else transfer(self.place(one.x_query), y, self.positions))
        return np.stack(rows).astype(np.float32)

    def to_queries(self, one: Sample, values: Float[np.ndarray, "p o"]) -> np.ndarray:
        """A prediction (q, o) at the query points of a test sample, from values here."""
        if not self.matched:
            values = transfer(self.positions, values, self.place(one.x_query))
        return values if one.background is None else values + one.background

    def nearest_at_sensors(
        self, outputs: Float[np.ndarray, "s p o"], test: Sequence[Sample]
    ) -> Int[np.ndarray, " t"]:
        """For each test sample, the training sample whose output fits its observations best."""
        tree, chosen = cKDTree(self.positions), []
        for one in test:
            _, index = tree.query(self.place(one.x))
            u = _anomalies_at_sensors(one, self.place)
            chosen.append(int(np.square(outputs[:, index] - u).sum((1, 2)).argmin()))
        return np.array(chosen)


def _nodes_correspond(train: Fields, test: Sequence[Sample]) -> bool:
    """Whether query point k is the same node in all samples of one size, wherever it lies.

    So it is on whole grids, and on meshes whose samples all have the same cells.
    """
    if train.grid is not None and train.grid_index is None:
        return True
    if train.cells is None or not columns.is_shared(train.cells):
        return False
    cells = columns.sample(train.cells, 0)
    return all(one.cells is not None and np.array_equal(one.cells, cells) for one in test)


def _matched(points: columns.Column, count: int, others: Sequence[np.ndarray], nodes: bool) -> bool:
    """Whether all samples are on the same points, or have as many nodes that correspond."""
    first = columns.sample(points, 0)
    shared = columns.is_shared(points)
    samples = others if shared else [*columns.samples(points, count), *others]
    if not all(x.shape == first.shape for x in samples):
        return False
    far = 1e-5 * float(np.ptp(first, axis=0).max())
    return (nodes and not shared) or all(np.allclose(x, first, 0, far) for x in samples)


def _spread(
    name: str,
    common: CommonPoints,
    test: Sequence[Sample],
    outputs: Float[np.ndarray, "s p o"],
    chosen: Int[np.ndarray, " t"] | None,
    note: str,
) -> Method:
    """A method that gives each test sample one of some outputs at common points."""
    rows = np.zeros(len(test), int) if chosen is None else chosen
    found = [common.to_queries(one, outputs[k]) for one, k in zip(test, rows, strict=True)]
    return Method(name, list(found), note)


# -- methods ---------------------------------------------------------------------------------------


def _inputs(
    train: Fields, test: Sequence[Sample], place: Place
) -> tuple[Float[np.ndarray, "s f"], Float[np.ndarray, "t f"]] | None:
    """The inputs of training and test samples as vectors; None where nothing varies."""
    nodes = train.same_points and _nodes_correspond(train, test)
    matched = _matched(train.x, len(train), [one.x for one in test], nodes)
    reference = train[0].x
    if not matched and len(reference) > REFERENCE:
        some = np.random.default_rng(0).permutation(len(reference))[:REFERENCE]
        reference = reference[np.sort(some)]
    at, every = place(reference), [*train, *test]
    groups = []
    if train.parameters is not None:
        groups.append(np.stack([one.parameters for one in every])[:, None])
    here = [place(one.x) for one in every]
    if matched:
        groups += [np.stack([one.u for one in every]), np.stack(here)]
    else:
        pairs = zip(here, every, strict=True)
        groups.append(np.stack([transfer(x, one.u, at) for x, one in pairs]))
    parts = []
    for group in groups:
        varied = group - group[: len(train)].astype(np.float64).mean(0)
        deviation = varied[: len(train)].std((0, 1))
        varies = deviation > 1e-9 * np.abs(group).max((0, 1), initial=0.0)
        if varies.any():
            scaled = (varied / np.where(varies, deviation, 1.0))[..., varies]
            parts.append(scaled.reshape(len(every), -1) / np.sqrt(scaled[0].size))
    if not matched:  # in standardised coordinates as they are: some of it is chance
        outside = np.stack([_outside(x, at) for x in here]) / np.sqrt(len(at))
        parts += [outside] if outside.any() else []
    if not parts:
        return None
    vectors = np.concatenate(parts, 1)
    return vectors[: len(train)], vectors[len(train) :]


def _outside(x: Float[np.ndarray, "n f"], at: Float[np.ndarray, "r f"]) -> Float[np.ndarray, " r"]:
    """How far points are from a cloud of points, beyond twice the spacing of the cloud."""
    apart = np.asarray(cKDTree(x).query(x, k=np.arange(1, min(2, len(x)) + 1))[0])[:, -1]
    return np.maximum(nearest_distance(x, at) - 2 * np.median(apart), 0.0)


def nearest(
    train: Float[np.ndarray, "s f"], test: Float[np.ndarray, "t f"]
) -> Int[np.ndarray, " t"]:
    """For each test sample, the training sample with the nearest inputs.

    >>> nearest(np.array([[0.0], [1.0], [2.0]]), np.array([[1.9], [0.2]]))
    array([2, 0])
    """
    return squared_distances(test, train).argmin(1)


def _kriged(
    name: str, test: Sequence[Sample], place: Place, axes: Sequence[int], space: int
) -> Method:
    """Kriging of the observations of each sample.

    It is about their mean, or about their linear regression on the coordinates from `space` on.
    """
    sensors = max(len(one.x) for one in test)
    count = min(len(test), max(KRIGED // 4, KRIGED * SENSORS // max(sensors, SENSORS)))
    some = set(np.linspace(0, len(test) - 1, count).round().astype(int).tolist())
    found: list[np.ndarray | None] = [None] * len(test)
    for k in sorted(some):
        one = test[k]
        u = _anomalies_at_sensors(one, place)
        here, there = _trend(one, u, space)
        at, to = (torch.from_numpy(place(x))[None] for x in (one.x, one.x_query))
        values = krige(at, torch.from_numpy(u - here)[None], to, axes=axes)[0].numpy() + there
        found[k] = values if one.background is None else values + one.background
    note = "" if count == len(test) else f"on {count} of the {len(test)} samples"
    return Method(name, found, note)


def _trend(
    one: Sample, u: Float[np.ndarray, "n o"], space: int
) -> tuple[Float[np.ndarray, "n o"], Float[np.ndarray, "q o"]]:
    """The regression of values on the coordinates from `space` on, at sensors and at queries."""
    known, asked = (x[:, space:].astype(np.float64) for x in (one.x, one.x_query))
    middle, spread = known.mean(0), np.maximum(known.std(0), 1e-9)
    here, there = (
        np.column_stack((np.ones(len(x)), (x - middle) / spread)) for x in (known, asked)
    )
    if len(u) <= 2 * here.shape[1]:  # too few to tell a slope
        here, there = here[:, :1], there[:, :1]
    slopes = np.linalg.lstsq(here, u, rcond=None)[0]
    return here @ slopes, there @ slopes


def _anomalies_at_sensors(one: Sample, place: Place) -> Float[np.ndarray, "n o"]:
    """Observed values of an output, less the background there."""
    u = one.u.astype(np.float64)
    if one.background is None:
        return u
    return u - transfer(place(one.x_query), one.background, place(one.x))
