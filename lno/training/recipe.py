"""`Recipe`: everything that decides a training run besides the data, the model and the seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lno.config import from_dict, require_count, require_range, to_dict
from lno.metrics import METRICS
from lno.training.optim import OPTIMIZERS
from lno.training.schedules import SCHEDULES


@dataclass(frozen=True)
class Recipe:
    """How to train. The defaults are the paper's for forward problems, with Muon and fewer epochs.

    Args:
        epochs: passes over the training samples.
        batch: samples in a step.
        optimizer: "muon" (hidden matrices; AdamW for the rest), "adamw" (the paper's) or "adam".
        learning_rate: its peak.
        beta2: of Adam and AdamW.
        schedule: "onecycle" (the paper's), "onecycle_torch" (torch's defaults), "step" (×0.7 after
            every tenth of the run), "halve_fifths" and "halve_tenths" (×0.5 after every fifth or
            tenth), "linear" and "cosine" (decay to zero after a short warm-up), "cosine_torch"
            (without one) or "constant".
        weight_decay: of the optimiser.
        decay_all: apply weight decay to norms and biases too, as the paper does.
        loss: "relative_l2", "relative_mae" or "mse".
        physical: compute the loss in physical units instead of on the standardised output.
        gradient: weight of the same loss for differences between neighbours on the grid.
        queries: random query points in a step, the same for all samples of a batch; None: all of
            them. LNO's decoder learns equally well from a subset, and faster. LNO+, whose query
            points run through all rounds, takes longer if they are not the observed points.
        point_dropout: share of the observed points dropped at random in each step, also from the
            queries if these are the observed points. It prevents overfitting to a fixed mesh and
            makes a model less dependent on the resolution.
        jitter: points of a grid move at random in each step, by up to this many spacings along each
            axis, and their values are interpolated by parabolas. A model then learns the fields
            between the points, too. 0.5, the largest value, reaches every place.
        clip: largest gradient norm; None: no clipping.
        ema: decay of an exponential moving average of the weights, which then makes the
            predictions; None: no average.
        weighted: use the data's point weights in encoder, loss, validation and metrics.

    >>> Recipe(epochs=20, queries=512).loss
    'relative_l2'
    """

    epochs: int = 100
    batch: int = 4
    optimizer: str = "muon"
    learning_rate: float = 1e-3
    beta2: float = 0.99
    schedule: str = "onecycle"
    weight_decay: float = 5e-5
    decay_all: bool = True
    loss: str = "relative_l2"
    physical: bool = False
    gradient: float = 0.0
    queries: int | None = None
    point_dropout: float = 0.0
    jitter: float = 0.0
    clip: float | None = None
    ema: float | None = None
    weighted: bool = False

    def __post_init__(self) -> None:
        require_count("Recipe.epochs", self.epochs, 10**7)
        require_count("Recipe.batch", self.batch, 10**6)
        require_range("Recipe.learning_rate", self.learning_rate, 1e-12, 10.0)
        require_range("Recipe.beta2", self.beta2, 0.0, 1 - 1e-9)
        require_range("Recipe.weight_decay", self.weight_decay, 0.0, 10.0)
        for name, table in (("optimizer", OPTIMIZERS), ("schedule", SCHEDULES), ("loss", METRICS)):
            if not isinstance(getattr(self, name), str) or getattr(self, name) not in table:
                expected = ", ".join(table)
                raise ValueError(
                    f"Recipe.{name} must be one of {expected}, got {getattr(self, name)!r}"
                )
        for name in ("decay_all", "physical", "weighted"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(
                    f"Recipe.{name} must be True or False, got {getattr(self, name)!r}"
                )
        require_range("Recipe.gradient", self.gradient, 0.0, 1e6)
        if self.gradient and self.queries is not None:
            raise ValueError(
                "Recipe.gradient needs the whole grid in every step: set Recipe.queries to None"
            )
        require_range("Recipe.point_dropout", self.point_dropout, 0.0, 0.99)
        require_range("Recipe.jitter", self.jitter, 0.0, 0.5)
        if self.gradient and self.point_dropout:
            raise ValueError(
                "Recipe.gradient needs the whole grid in every step: set Recipe.point_dropout to 0"
            )
        if self.queries is not None:
            require_count("Recipe.queries", self.queries, 10**9)
        if self.clip is not None:
            require_range("Recipe.clip", self.clip, 1e-12, 1e12)
        if self.ema is not None:
            require_range("Recipe.ema", self.ema, 0.0, 1 - 1e-9)

    def changed(self, changes: Mapping[str, Any]) -> Recipe:
        """The recipe with other values of some keys.

        A loss of the gradient needs the whole grid: it turns off what leaves out points, unless
        that is asked for as well.

        >>> Recipe(queries=512).changed({"gradient": 0.1}).queries is None
        True
        """
        whole = {"queries": None, "point_dropout": 0.0} if changes.get("gradient") else {}
        return from_dict(Recipe, {**to_dict(self), **whole, **changes})
