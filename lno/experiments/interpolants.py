"""Interpolation without learning: the classical baselines of completers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lno.data import Fields
from lno.data.normalize import Coordinates
from lno.kernel_methods.krige import krige
from lno.kernel_methods.rbf import interpolate_rbf
from lno.training.progress import progress

NEIGHBORS = 64  # nearest observations that an RBF interpolant uses at a point
Interpolant = Callable[[Sequence[Fields]], list[Tensor]]


def by_rbf(observed: Sequence[Fields]) -> list[Float[Tensor, "s q o"]]:
    """Interpolate several sets of observations with radial basis functions, on all cores."""
    samples = [sample for fields in observed for sample in fields]
    rbf = partial(interpolate_rbf, period=observed[0].period, neighbors=NEIGHBORS)
    columns = ([getattr(s, name) for s in samples] for name in ("x", "u", "x_query"))
    predictions = []
    with progress("interpolating", len(samples)) as update, _mapping(len(samples)) as mapped:
        for predicted in mapped(rbf, *columns):
            predictions.append(torch.from_numpy(predicted).float())
            update(len(predictions))
    return list(torch.stack(predictions).split([len(fields) for fields in observed]))


def by_kriging(observed: Sequence[Fields], one_scale: bool = False) -> list[Float[Tensor, "s q o"]]:
    """Krige several sets of observations, with a length scale for each coordinate or for all."""
    coordinates = Coordinates.fit(observed[0])
    axes, predictions = None if one_scale else coordinates.distance_axes, []
    batches = [fields.batch([k]) for fields in observed for k in range(len(fields))]
    with progress("kriging", len(batches)) as update:
        for batch in batches:
            x, x_query = (coordinates.distance_features(v) for v in (batch.x, batch.x_query))
            predictions.append(krige(x, batch.u, x_query, axes=axes))
            update(len(predictions))
    return list(torch.cat(predictions).split([len(fields) for fields in observed]))


INTERPOLANTS: dict[str, tuple[Interpolant, dict[str, Any]]] = {
    "rbf": (by_rbf, {"kernel": "cubic", "neighbors": NEIGHBORS}),
    "kriging": (by_kriging, {"covariance": "matern", "smoothness": 2.5}),
}


@contextmanager
def _mapping(count: int) -> Iterator[Callable[..., Any]]:
    """`map`, in several processes where there is enough work to make up for starting them."""
    processes = min(os.cpu_count() or 1, count // 32)
    if processes < 2:
        yield map
        return
    # Not forked: CUDA and threads do not survive a fork.
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield pool.map
