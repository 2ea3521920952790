"""Model, sizes and recipe for data that come without any.

| task | model | on a CPU | on a GPU |
|---|---|---|---|
| fields observed at some points | `lno` | width 64, 64 latents, 2 blocks | the same |
| all others | `lno_plus` | width 64, 64 latents, 3 rounds | its defaults |

Why:

- **Fields observed at some points.** The decoder of `lno` works point by point: it predicts where
  nothing was observed, and a step needs a random subset of the query points only. What `lno_plus`
  gains from values at the query points is not there to gain. After equal time, `lno` was more
  accurate (`benchmarks/sensors.py`).
- **All others.** At the same time of training, `lno_plus` was more accurate than `lno` on four sets
  of data out of five, two of them with 100 samples (`benchmarks/defaults.py`; the numbers are in
  docs/training.md). Its full size takes a GPU.

A step has 4 to 16 samples, more where there are more: gradients are less noisy, and there are still
some hundred steps in an epoch. There are as many epochs as give about 10,000 steps. The points of
data that have weights count by them.

Where all samples have the same points, a model learns these by heart otherwise, and errs between
them. If the points form a grid that resolves the outputs, they move at random in every step, by up
to half a spacing (`benchmarks/small_resolution.py`). If not, a step leaves out three of ten. Then
`lno_plus` has no Fourier features, whose shorter waves are arbitrary between such points, and its
weights decay.

A rollout learns increments where frames change little from one to the next (`rollout_for`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from lno.data import Fields, columns
from lno.models import MODELS, LNOConfig, LNOPlus, LNOPlusConfig, ModelConfig
from lno.tasks import Rollout, Steady, Task
from lno.training.recipe import Recipe

STEPS = 10_000  # of a run, about
BATCHES = ((500, 4), (2000, 8))  # below so many samples, a step has so many of them,
LARGEST_BATCH = 16  # and otherwise so many
MANY_POINTS, QUERIES = 2048, 1024  # from so many query points on, a step has a random subset
DROPOUT, ENOUGH = 0.3, 100  # of points that all samples share, if there are so many
DECAY = 0.1  # of the weights of LNO+, on such points
JITTER = 0.5  # in spacings, on grids that all samples share and that resolve the outputs
RESOLVED = 0.25  # of the standard deviation: how far points may be from the mean of two neighbours
COMPARED, LOOKED_AT = 64, 2**22  # samples that are looked at, and numbers in them, about
SMALL = LNOConfig(width=64, latents=64, blocks=2, heads=4, layers=1)
MEDIUM = LNOPlusConfig(width=64, latents=64, rounds=3)


@dataclass(frozen=True)
class Choice:
    """What to train, and how.

    Args:
        model: a name in `lno.models.MODELS`.
        config: its sizes; None: its defaults for the data.
        recipe: how to train.
    """

    model: str
    config: ModelConfig | None
    recipe: Recipe


def choose(
    data: Fields, task: Task, device: torch.device | str = "cpu", model: str | None = None
) -> Choice:
    """Model, sizes and recipe for training samples; the rule is the table above.

    Args:
        data: the samples to train on, without those held out. Only their sizes count.
        task: what a step means.
        device: where to train.
        model: the model, if it is not to be chosen. It has its default sizes, unless the rule would
            choose it too.

    >>> import numpy as np
    >>> from lno.tasks import Steady
    >>> x = np.linspace(0, 1, 50)[:, None]
    >>> found = choose(Fields(x, y=np.zeros((1000, 50, 1))), Steady())
    >>> found.model, found.recipe.epochs  # of 125 steps
    ('lno_plus', 80)
    """
    kind, config = _model(data, task, device)
    if model is not None and model != kind:
        return Choice(model, None, _recipe(data, task, model))
    return Choice(kind, config, _recipe(data, task, kind))


def rollout_for(data: Fields, task: Rollout) -> Rollout:
    """The rollout, with increments if the last frame predicts the next one better than the mean.

    Args:
        data: the samples to train on, of which the first 64 are read.
        task: its frames and channels.

    >>> x, t = np.linspace(0, 6, 50), 0.3 * np.arange(4)
    >>> waves = np.sin(x[:, None] + t)[None] * np.ones((5, 1, 1))
    >>> data = Fields(x[:, None], waves[..., :2], y=waves[..., 2:])
    >>> rollout_for(data, Rollout(2)).increments
    True
    """
    assert data.y is not None
    read = range(min(COMPARED, len(data)))
    last, following = (
        np.concatenate([columns.sample(column, k)[:, part] for k in read], dtype=np.float64)
        for column, part in (
            (data.u, slice(-task.channels, None)),
            (data.y, slice(task.channels)),
        )
    )
    change = np.square(following - last).mean(axis=0)
    variance = following.var(axis=0)  # the error of the mean
    ratio = change / np.maximum(variance, np.finfo(np.float32).tiny)
    return replace(task, increments=bool(ratio.mean() < 1))


def can_jitter(data: Fields, task: Task) -> bool:
    """Whether points move in training: many, on a grid that resolves the outputs of a steady map.

    It resolves them if the mean of two neighbours along an axis is nearly the value between them,
    in the first samples. That of the inputs does not matter: coefficients may jump.

    >>> x = np.linspace(0, 1, 100)[:, None]
    >>> smooth = Fields(x, y=np.sin(9 * x)[None], grid=(100,))
    >>> rough = smooth.replace(y=np.random.default_rng(0).normal(size=(1, 100, 1)))
    >>> can_jitter(smooth, Steady()), can_jitter(rough, Steady())
    (True, False)
    """
    grid = data.spec.grid
    if grid is None or min(grid) < 3 or math.prod(grid) < ENOUGH:
        return False
    if not data.same_points or not isinstance(task, Steady):
        return False
    assert data.y is not None
    count = max(1, min(COMPARED, len(data), LOOKED_AT // columns.sample(data.y, 0).size))
    y = np.stack([columns.sample(data.y, k) for k in range(count)]).astype(np.float64)
    scale, y = y.var(axis=(0, 1)), y.reshape(count, *grid, -1)
    for axis in range(1, 1 + len(grid)):
        bend = np.moveaxis(np.diff(y, 2, axis=axis), -1, 0) / 2
        worst = np.square(bend).reshape(len(bend), -1).mean(axis=1)
        if np.mean(worst / np.maximum(scale, np.finfo(np.float32).tiny)) > RESOLVED**2:
            return False
    return True


def _model(data: Fields, task: Task, device: torch.device | str) -> tuple[str, ModelConfig]:
    if task.observes_outputs:
        return "lno", SMALL
    config = MEDIUM if torch.device(device).type == "cpu" else LNOPlusConfig()
    fixed = columns.is_shared(data.x) and not can_jitter(data, task)
    config = replace(config, octaves=0) if fixed else config
    elsewhere = task.queries_elsewhere or not data.same_points
    return "lno_plus", LNOPlus.for_other_points(config) if elsewhere else config


def _recipe(data: Fields, task: Task, kind: str) -> Recipe:
    samples = len(data) * task.visits
    batch = next((b for below, b in BATCHES if samples < below), LARGEST_BATCH)
    cls = MODELS[kind][0] if kind in MODELS else None  # unknown ones are refused elsewhere
    pointwise = cls is not None and cls.predicts_anywhere and not cls.queries_interact
    large = columns.sizes(data.x_query, len(data)).max() >= MANY_POINTS
    same = columns.is_shared(data.x) and data.same_points and not task.observes_outputs
    fixed = same and pointwise and len(columns.sample(data.x, 0)) >= ENOUGH
    jitter = fixed and can_jitter(data, task)
    fixed = fixed and not jitter
    return Recipe(
        epochs=max(1, round(STEPS / -(-samples // batch))),
        batch=batch,
        loss="relative_mae" if task.observes_outputs else "relative_l2",
        queries=QUERIES if large and pointwise and kind == "lno" else None,
        point_dropout=DROPOUT if fixed else 0.0,
        jitter=JITTER if jitter else 0.0,
        weight_decay=DECAY if fixed and kind == "lno_plus" else Recipe.weight_decay,
        weighted=data.weights is not None or data.query_weights is not None,
    )
