"""What a model is, what it can do, and whether that is enough for given data.

A model maps values u at points x to values at points x_query. It is built from a `Spec`, the sizes
of the data, and a config, the sizes of the model. Its capabilities are class attributes. The rest
of the package looks at these, never at the class or the name of a model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import prod
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lno.config import require_count, require_heads, require_part
from lno.data import Batch, Spec
from lno.models.streamed import SoftmaxSums

MOST = 65_536  # the largest value of a size that has no limit of its own
# Observations in parts: x (#b, n, d), u (b, n, i), mask (b, n) or None, weights (#b, n) or None.
Part = tuple[Tensor, Tensor, Tensor | None, Tensor | None]


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a model: a frozen dataclass beside its class, checked when it is made.

    Whole numbers must lie within `limits`, so that a damaged or hostile file is refused before
    it takes all memory; flags must be True or False; `heads`, if there are any, divide `width`. A
    part with sizes of its own has its config as a field, like `LatentGrid`.

    >>> @dataclass(frozen=True)
    ... class Sizes(ModelConfig):
    ...     width: int = 32
    >>> Sizes(width=0)
    Traceback (most recent call last):
    ...
    ValueError: Sizes.width must be a whole number from 1 to 8192, got 0
    """

    # Smallest and largest value by name; a config adds its own.
    limits: ClassVar[Mapping[str, tuple[int, int]]] = {
        "width": (1, 8192),
        "blocks": (1, 512),
        "layers": (1, 64),
    }

    def __post_init__(self) -> None:
        name = type(self).__name__
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for field in fields(self):
            key, value, kind = f"{name}.{field.name}", values[field.name], _type_name(field.type)
            optional = kind == "int | None" and value is None
            if kind.startswith("int") and field.name != "heads" and not optional:
                least, most = {**ModelConfig.limits, **self.limits}.get(field.name, (1, MOST))
                require_count(key, value, most, least)
            if kind == "bool" and not isinstance(value, bool):
                raise ValueError(f"{key} must be True or False, got {value!r}")
            require_part(type(self), field.name, value)
        if "heads" in values:
            require_heads(name, values["heads"], values["width"])


def _type_name(annotation: Any) -> str:
    """The annotation of a dataclass field as text, whether it was postponed or not."""
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


class Model(nn.Module, ABC):
    """A neural operator: values at points in, values at points out.

    A new model defines `forward` and `default_config`, states its capabilities where they differ
    from those below, and gets an entry in `lno.models.MODELS`. If it predicts at the observed
    points only, it is a `SamePointsModel`, which defines `predict`. An instance may narrow the
    capabilities of its class, as its config requires.

    Attributes:
        predicts_anywhere: predicts at points where nothing was observed.
        queries_interact: a prediction depends on the other query points of the call.
        samples_interact: a prediction depends on the other samples of the batch; they all need the
            same number of points, without a mask.
        needs_grid: reads points of a grid, all of them, in C order, without a mask.
        takes_other_grids: works on another grid than the one it was trained on.
        reads_weights: `forward` has an argument `weights`, the sizes of the observed points.
        embeds_time: reads grids in space and time one time after the other, with the time as its
            last input channel; `with_time` is the config for that.
        streams: reads observations in parts and decodes queries in parts, so that its memory does
            not depend on their number: `encode_parts`, `decode` and `reduce_with`.
        reads_query_values: `decode` has an argument `u_query`, the values at the query points.
        keeps_statistics: has buffers that training updates, such as running means of batch
            normalisation.
        has_latents: reads observations into latent positions, and predicts from these:
            `latent_weights`.
    """

    predicts_anywhere: bool = True
    queries_interact: bool = False
    samples_interact: bool = False
    needs_grid: bool = False
    takes_other_grids: bool = True
    reads_weights: bool = False
    embeds_time: bool = False
    streams: bool = False
    reads_query_values: bool = False
    keeps_statistics: bool = False
    has_latents: bool = False

    spec: Spec
    config: ModelConfig

    def __init__(self, spec: Spec, config: ModelConfig | None = None) -> None:
        super().__init__()
        if not isinstance(spec, Spec):
            raise TypeError(
                f"spec: expected the sizes of the data, Spec(coordinates, in_channels, "
                f"out_channels) or fields.spec, got {spec!r}"
            )
        self.spec = spec
        self.config = self.default_config(spec) if config is None else config

    @classmethod
    @abstractmethod
    def default_config(cls, spec: Spec) -> ModelConfig:
        """Sizes that suit data of this spec."""

    @classmethod
    def with_time(cls, config: ModelConfig) -> ModelConfig:
        """The same sizes for samples whose last input channel is their time.

        If the config has `time_input`, the time is embedded; else it is read like other values.
        """
        timed = any(field.name == "time_input" for field in fields(config))
        return replace(config, time_input=True) if timed else config  # type: ignore[call-arg]

    @classmethod
    def for_other_points(cls, config: ModelConfig) -> ModelConfig:
        """The same sizes for predictions at points where nothing is observed."""
        return config

    def initialise(self, positions: Float[np.ndarray, "n d"], seed: int) -> None:
        """Adapt the initial weights to where the training points are, if the model can."""

    @abstractmethod
    def forward(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        x_query: Float[Tensor, "#b q d"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b q o"]:
        """Predict at x_query from the values u observed at x.

        Args:
            x: positions of the observations; a batch axis of one if all samples share them.
            u: values there; i may be 0.
            x_query: positions of the predictions. Pass `x` itself to predict at the observed
                points: models then compute what depends on positions once.
            mask: True where an observation is real, False where it is padding. None: all real.
        """

    def on_grid(self, grid: tuple[int, ...]) -> Self:
        """This model for data on another grid, with the same weights (shared, not copied)."""
        if not self.needs_grid or grid == self.spec.grid:
            return self
        if not self.takes_other_grids:
            raise ValueError(
                f"{type(self).__name__} works only on the grid it was trained on: expected "
                f"{self.spec.grid}, got {grid}"
            )
        with torch.device("meta"):
            other = type(self)(replace(self.spec, grid=grid), self.config)
        other.load_state_dict(self.state_dict(), assign=True)
        return other.train(self.training)

    def require_plane(self, otherwise: str | None = None) -> tuple[int, int]:
        """Rows and columns of the data's 2-D grid. An error if they have none.

        Args:
            otherwise: a config of this model that needs none.
        """
        if self.spec.plane is None:
            raise ValueError(
                f"{type(self).__name__} needs data on a 2-D grid, got grid {self.spec.grid}: pass "
                "Fields(..., grid=(rows, columns))" + (f", or use {otherwise}" if otherwise else "")
            )
        return self.spec.plane

    def check_points(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        x_query: Float[Tensor, "#b q d"],
        mask: Bool[Tensor, "b n"] | None,
    ) -> None:
        """Raise unless x_query are the observed points and, on a grid, these are all of its points.

        For models that predict at the observed points only. Pass `x` itself as `x_query`. Another
        tensor is compared with it, which makes a GPU wait.
        """
        name = type(self).__name__
        if x_query is not x and not (
            x_query.shape[1:] == x.shape[1:] and bool((x_query == x).all())
        ):
            raise ValueError(
                f"{name} predicts at the observed points only: expected x_query to be x, got "
                f"other positions (x {tuple(x.shape)}, x_query {tuple(x_query.shape)})"
            )
        if not self.needs_grid:
            return
        if mask is not None:
            raise ValueError(f"{name} on a grid takes no mask: every point of it is needed")
        expected = prod(self.spec.grid or ())
        if u.shape[1] != expected:
            raise ValueError(
                f"this {name} is for the grid {self.spec.grid} of {expected} points, got "
                f"{u.shape[1]}: use on_grid for data on another grid"
            )

    def latent_weights(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        x_query: Float[Tensor, "#b q d"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> tuple[Float[Tensor, "b n m"], Float[Tensor, "b q m"]]:
        """Where latent positions look, for the arguments of `forward`.

        Returns:
            How much each latent position reads of each observation, which sums to one over the
            observations; and how much each query reads of each latent position, which sums to one
            over these.
        """
        raise ValueError(f"{type(self).__name__} has no latent positions")

    # -- only of models that stream --------------------------------------------------------------

    def encode_parts(self, parts: Callable[[], Iterable[Part]]) -> Float[Tensor, "b ..."]:
        """What `decode` needs to know of observations that come in parts.

        Args:
            parts: called for each pass over the observations; gives their parts, always the same.
        """
        self._cannot_stream()

    def decode(
        self, z: Float[Tensor, "b ..."], x_query: Float[Tensor, "#b q d"]
    ) -> Float[Tensor, "b q o"]:
        """Predictions at any part of the queries, from what `encode_parts` gave."""
        self._cannot_stream()

    def reduce_with(self, reduce: Callable[[SoftmaxSums], SoftmaxSums] | None) -> None:
        """Apply `reduce` to the encoder's sums, e.g. to add them over processes. None: undo."""
        self._cannot_stream()

    def _cannot_stream(self) -> NoReturn:
        raise ValueError(f"{type(self).__name__} does not stream: it needs all points at once")


def apply_model(model: Model, batch: Batch, weighted: bool) -> Float[Tensor, "b q o"]:
    """The model's output for an encoded batch.

    Args:
        model: the model.
        batch: normalised data; the parameters of its samples are read as input channels.
        weighted: pass the weights of the observed points, if the batch has any and the model
            reads them.
    """
    inputs = (batch.x, batch.inputs, batch.x_query, batch.mask)
    if weighted and model.reads_weights and batch.weights is not None:
        return model(*inputs, weights=batch.weights)
    return model(*inputs)


@dataclass(frozen=True)
class Demand:
    """What data and a task ask of a model.

    Args:
        spec: the sizes of the data; `grid` is None if the points do not form one.
        elsewhere: predictions are wanted at points where nothing was observed.
        ragged: samples differ in their number of points.
        subset: training asks for a random subset of the query points in every step.
        dropout: training leaves out random points in every step.
        moved: training moves the points of the grid in every step.
    """

    spec: Spec
    elsewhere: bool = False
    ragged: bool = False
    subset: bool = False
    dropout: bool = False
    moved: bool = False


def require_capable(model: Model, kind: str, demand: Demand) -> None:
    """Raise a ValueError unless the model can do what is demanded.

    The message says why not, and which models in `MODELS` can, by their capabilities.

    Args:
        model: the model.
        kind: its name in `MODELS`.
        demand: what data and task ask for.
    """
    problem = _obstacle(model, demand)
    if problem is None:
        return
    able = capable_models(demand)
    others = [name for name in able if name != kind]
    ways = [f"use {' or '.join(others)}"] if others else ["no other model can take these data"]
    if kind in able:
        ways.append(f"or {kind} with its default config for these data")
    raise ValueError(f"{kind} {problem}: {', '.join(ways)}")


def capable_models(demand: Demand) -> list[str]:
    """Names of the models in `MODELS` that can do what is demanded, with their default configs.

    >>> capable_models(Demand(Spec(2, 1, 1), elsewhere=True, ragged=True))[:3]
    ['lno', 'lno_plus', 'deeponet']
    """
    from lno.models import MODELS  # the table lists the models, which are made of this module

    able = []
    for name, (kind, _) in MODELS.items():
        try:
            model = _default_model(kind, demand.spec, demand.elsewhere)
        except ValueError:
            continue
        if _obstacle(model, demand) is None:
            able.append(name)
    return able


@lru_cache(maxsize=64)
def _default_model(kind: type[Model], spec: Spec, elsewhere: bool) -> Model:
    """A model with its default config and without memory, to ask for its capabilities."""
    config = kind.default_config(spec)
    with torch.device("meta"):
        return kind(spec, kind.for_other_points(config) if elsewhere else config)


def _obstacle(model: Model, demand: Demand) -> str | None:
    """The first reason why the model cannot do what is demanded, or None."""
    grid = demand.spec.grid
    if demand.elsewhere and not model.predicts_anywhere:
        return (
            "predicts only at the observed points, expected x_query to be x, got query points "
            "where nothing was observed"
        )
    if demand.subset and not model.predicts_anywhere:
        return (
            "predicts at all observed points at once, expected training on all query points, got "
            "a random subset of them (Recipe.queries)"
        )
    if demand.dropout and model.needs_grid:
        return (
            f"needs every point of the grid {model.spec.grid} in every step, got some left out "
            "(Recipe.point_dropout)"
        )
    if demand.moved and model.needs_grid:
        return (
            f"needs the points of the grid {model.spec.grid} where they are in every step, got "
            "some moved (Recipe.jitter)"
        )
    if model.samples_interact and demand.ragged:
        return (
            "reads the samples of a batch together, expected the same number of points in each, "
            "got samples that differ in their number of points"
        )
    if model.needs_grid and demand.ragged:
        return (
            f"needs every point of the grid {model.spec.grid} in every sample, got samples that "
            "differ in their number of points"
        )
    if model.needs_grid and grid is None:
        return f"needs points on a grid, expected one like {model.spec.grid}, got none"
    if model.needs_grid and not model.takes_other_grids and grid != model.spec.grid:
        return f"works only on the grid it was built for, expected {model.spec.grid}, got {grid}"
    if model.queries_interact and demand.ragged and (demand.elsewhere or demand.subset):
        return (
            "lets query points attend to each other and has no mask for them, expected the "
            "observed points as queries or the same number in every sample, got ragged queries"
        )
    return None
