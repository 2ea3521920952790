"""What a sensible person does without learning: the classical opponents of completers."""

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
from lno.data.interpolate import interpolate_rbf
from lno.data.krige import krige
from lno.data.normalize import Coordinates
from lno.training.progress import progress

NEIGHBORS = 64  # observations that decide a value of radial basis functions
Interpolant = Callable[[Sequence[Fields]], list[Tensor]]


def by_rbf(seen: Sequence[Fields]) -> list[Float[Tensor, "s q o"]]:
    """What radial basis functions make of several sets of observations, on all cores."""
    samples = [sample for fields in seen for sample in fields]
    rbf = partial(interpolate_rbf, period=seen[0].period, neighbors=NEIGHBORS)
    columns = ([getattr(s, name) for s in samples] for name in ("x", "u", "x_query"))
    answers = []
    with progress("interpolating", len(samples)) as update, _mapping(len(samples)) as mapped:
        for answer in mapped(rbf, *columns):
            answers.append(torch.from_numpy(answer).float())
            update(len(answers))
    return list(torch.stack(answers).split([len(fields) for fields in seen]))


def by_kriging(seen: Sequence[Fields], one_scale: bool = False) -> list[Float[Tensor, "s q o"]]:
    """What kriging makes of several sets of observations, with a scale for each coordinate."""
    coordinates = Coordinates.fit(seen[0])
    axes, answers = None if one_scale else coordinates.axes, []
    batches = [fields.batch([k]) for fields in seen for k in range(len(fields))]
    with progress("kriging", len(batches)) as update:
        for batch in batches:
            x, x_query = (coordinates.encode(v) for v in (batch.x, batch.x_query))
            answers.append(krige(x, batch.u, x_query, axes=axes))
            update(len(answers))
    return list(torch.cat(answers).split([len(fields) for fields in seen]))


INTERPOLANTS: dict[str, tuple[Interpolant, dict[str, Any]]] = {
    "rbf": (by_rbf, {"kernel": "cubic", "neighbors": NEIGHBORS}),
    "kriging": (by_kriging, {"covariance": "matern", "smoothness": 2.5}),
}


@contextmanager
def _mapping(count: int) -> Iterator[Callable[..., Any]]:
    """`map`, shared out to processes where there is enough to do for each to be worth its start."""
    processes = min(os.cpu_count() or 1, count // 32)
    if processes < 2:
        yield map
        return
    # Not forked: what CUDA and threads hold in this process would be broken in a copy of it.
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield pool.map
