"""The evaluation loop: errors of predictions, sample by sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from lno.data import Batch, Fields
from lno.metrics import METRICS, Metric
from lno.tasks import Rollout, Task

Predict = Callable[[Batch], Tensor]


@dataclass(frozen=True)
class Errors:
    """Errors of predictions.

    Args:
        samples: for each metric, the error of each sample.
        frames: for a rollout, the mean relative L2 error of each predicted frame.

    >>> Errors({"mse": [1.0, 3.0]}).means()
    {'mse': 2.0}
    """

    samples: dict[str, list[float]]
    frames: list[float] = field(default_factory=list)

    def means(self) -> dict[str, float]:
        """The mean over the samples of each metric."""
        return {name: float(np.mean(errors)) for name, errors in self.samples.items()}


def batches(
    prepared: Fields, task: Task, *, seed: int = 0, size: int = 16
) -> Iterator[tuple[slice, Batch]]:
    """Consecutive samples as the task observes them; the same seed observes the same points."""
    generator = torch.Generator().manual_seed(seed)
    for index in np.array_split(np.arange(len(prepared)), -(-len(prepared) // size)):
        batch = task.observe(prepared.batch(index), prepared.spec.grid, generator)
        yield slice(int(index[0]), int(index[-1]) + 1), batch


@torch.no_grad()
def evaluate(
    predict: Predict,
    prepared: Fields,
    task: Task,
    *,
    seed: int = 0,
    size: int = 16,
    where: Bool[Tensor, " q"] | None = None,
    weighted: bool = False,
    metrics: Mapping[str, Metric] = METRICS,
) -> Errors:
    """Errors of predictions on data with known outputs, in physical units.

    Args:
        predict: from a batch to values (b, q, o) at its query points.
        prepared: samples, prepared by the task.
        task: what is observed of them.
        seed: of the random draws of the task.
        size: samples in a batch.
        where: which query points count; None: all.
        weighted: points are weighted by the size that they represent.
        metrics: what to measure, by name.
    """
    if prepared.y is None:
        raise ValueError("the data have no outputs y to compare with")
    samples: dict[str, list[float]] = {name: [] for name in metrics}
    frames: list[Tensor] = []
    for _, batch in batches(prepared, task, seed=seed, size=size):
        prediction = predict(batch)
        assert batch.y is not None
        if prediction.shape != batch.y.shape:
            raise ValueError(
                f"y: expected {prediction.shape[-1]} channel{'s' * (prediction.shape[-1] != 1)}, "
                f"got {batch.y.shape[-1]}"
            )
        if where is not None:
            batch, prediction = batch.at_queries(where), prediction[:, where]
        assert batch.y is not None
        weights = batch.query_weights if weighted else None
        for name, metric in metrics.items():
            samples[name] += metric(prediction, batch.y, batch.query_mask, weights).tolist()
        if isinstance(task, Rollout):
            pairs = zip(*(v.split(task.channels, -1) for v in (prediction, batch.y)), strict=True)
            error = METRICS["relative_l2"]
            frames.append(
                torch.stack([error(p, y, batch.query_mask, weights) for p, y in pairs], -1)
            )
    by_frame = torch.cat(frames).mean(0).tolist() if frames else []
    return Errors(samples, by_frame)
