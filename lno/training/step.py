"""The training step: run eagerly, or captured once as a CUDA graph and replayed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import torch
from torch import Tensor, nn

from lno.data import Batch, Fields
from lno.data.normalize import Normalizers
from lno.metrics import METRICS
from lno.training.distributed import METRICS_OF_PARTS
from lno.training.precision import half_where_free, matrix_products
from lno.training.state import Training

COMPILE_FROM = 2000  # steps: a shorter run is over before compilation has paid off
Loss = Callable[[Batch], Tensor]


class Samples:
    """Batches of encoded samples on a device.

    They stay on the device where they fit into half of its free memory, and are encoded once;
    others, and samples of different sizes, are read, encoded and moved batch by batch.
    """

    def __init__(self, data: Fields, normalizers: Normalizers, device: torch.device) -> None:
        self.data, self.normalizers, self.device = data, normalizers, device
        self.resident: Batch | None = None
        if _fits(data, device):
            self.resident = normalizers.encode(data.batch(np.arange(len(data)))).to(device)

    def batch(self, index: Tensor) -> Batch:
        """The samples at `index`, a CPU tensor (b,)."""
        if self.resident is None:
            return self.normalizers.encode(self.data.batch(index.numpy())).to(self.device)
        return self.resident.at_samples(index.to(self.device, non_blocking=True))


def _fits(data: Fields, device: torch.device) -> bool:
    parts = [data.column(name) for name in ("x", "u", "x_query", "y")]
    if any(c is not None and not isinstance(c, np.ndarray) for c in parts):
        return False  # ragged, or in a file
    size = sum(4 * c.size for c in parts if isinstance(c, np.ndarray))
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 4e9
    return size < 0.5 * free


def loss_function(training: Training) -> Loss:
    """The mean loss of an encoded batch, as the recipe defines it."""
    model, recipe, precision = training.model, training.recipe, training.precision
    grid = training.data.grid or ()
    if recipe.gradient and (not grid or training.team.split == "points"):
        raise ValueError(
            "Recipe.gradient needs data on a grid, whole on every process: pass "
            "Fields(..., grid=...)"
        )
    by_points = training.team.size > 1 and training.team.split == "points"
    metric = (METRICS_OF_PARTS if by_points else METRICS)[recipe.loss]
    scale = training.normalizers.y
    # Made here: a graph cannot be captured while numbers are moved to the device.
    mean, std = (torch.tensor(v, device=training.device) for v in (scale.mean, scale.std))

    def loss(batch: Batch) -> Tensor:
        with half_where_free(precision, batch.u.device):
            prediction = model(batch.x, batch.u, batch.x_query, batch.mask)
        target = batch.y
        assert target is not None
        prediction = prediction.to(target.dtype)
        if recipe.physical:
            prediction, target = prediction * std + mean, target * std + mean
        value = metric(prediction, target, batch.query_mask).mean()
        if recipe.gradient:
            slopes = (differences(v, grid) for v in (prediction, target))
            value = value + recipe.gradient * metric(*slopes).mean()
        return value

    return loss


def differences(values: Tensor, grid: tuple[int, ...]) -> Tensor:
    """Central differences along each axis of a grid, of values (b, n, o); ends are left out.

    >>> differences(torch.arange(5.0).square().view(1, 5, 1), (5,)).flatten().tolist()
    [4.0, 8.0, 12.0]
    """
    field = values.view(len(values), *grid, values.shape[-1])
    inside = [slice(None), *[slice(1, -1)] * len(grid)]
    parts = []
    for axis, size in enumerate(grid, start=1):
        up, down = list(inside), list(inside)
        up[axis], down[axis] = slice(2, size), slice(0, size - 2)
        parts.append((field[tuple(up)] - field[tuple(down)]).flatten(1, -2))
    return torch.cat(parts, dim=1)


class Step:
    """One step on an encoded batch, as fast as the device allows.

    On CUDA the loss is compiled where the run is long enough, and forward and backward pass are
    captured as one graph for the first batch of full size; batches of other shapes run eagerly. The
    optimisers run outside of the graph: their few launches hide behind the graph's work, and rates,
    betas, clipping and any optimiser stay ordinary code.
    """

    def __init__(self, training: Training) -> None:
        self.training = training
        self.on_gpu = training.device.type == "cuda"
        # By points, processes talk to each other in the middle of the forward pass.
        self.capturable = self.on_gpu and not (
            training.team.size > 1 and training.team.split == "points"
        )
        self.eager = self.loss = loss_function(training)
        if self.capturable and training.steps >= COMPILE_FROM:
            self.loss = torch.compile(self.eager, dynamic=False)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.static: Batch | None = None  # what the graph reads
        self.value = torch.zeros((), device=training.device)  # what it writes
        self.gradients: list[Tensor | None] = []

    def __call__(self, batch: Batch) -> Tensor:
        """Take the step; returns the loss, a tensor on the device."""
        with matrix_products(self.training.precision):
            return self._step(batch)

    def _step(self, whole: Batch) -> Tensor:
        training, team = self.training, self.training.team
        batch = team.share(whole)
        full = len(whole) == min(training.recipe.batch, len(training.data))
        if self.capturable and self.graph is None and full:
            self._capture(batch)
        if self.graph is not None and self.static is not None and _alike(batch, self.static):
            _copy(batch, self.static)
            self.graph.replay()
            for parameter, gradient in zip(
                training.model.parameters(), self.gradients, strict=True
            ):
                parameter.grad = gradient
            value = self.value.clone()
        else:
            value = self._differentiate(self.eager if self.on_gpu else self.loss, batch)
        if team.size > 1:
            weight = team.weight(whole, batch)
            team.add_gradients(training.model.parameters(), weight)
            value = team.total(value * weight)
        if training.recipe.clip is not None:
            nn.utils.clip_grad_norm_(training.model.parameters(), training.recipe.clip)
        for optimizer in training.optimizers:
            optimizer.step()
        if training.mean is not None:
            training.mean.update_parameters(training.model)
        return value

    def _differentiate(self, loss: Loss, batch: Batch) -> Tensor:
        # Gradients are made anew, so that those of a graph are written, not added to.
        for parameter in self.training.model.parameters():
            parameter.grad = None
        if len(batch) == 0:  # fewer samples than processes
            return batch.u.new_zeros(())
        value = loss(batch)
        value.backward()
        return value.detach()

    def _capture(self, batch: Batch) -> None:
        self.static = _clone(batch)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # warm-up: compilation, and what libraries allocate
            try:
                self._differentiate(self.loss, self.static)
            except Exception as error:  # compilers fail in many ways, and none is worth the run
                if self.loss is self.eager:
                    raise
                first = str(error).strip().splitlines()[:1]
                warnings.warn(f"training goes on uncompiled: {first}", stacklevel=2)
                self.loss = self.eager
            for _ in range(3):
                self._differentiate(self.loss, self.static)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.value.copy_(self._differentiate(self.loss, self.static))
        self.gradients = [parameter.grad for parameter in self.training.model.parameters()]


def _tensors(batch: Batch) -> list[Tensor | None]:
    return [getattr(batch, field.name) for field in fields(batch)]


def _clone(batch: Batch) -> Batch:
    def copy(values: Tensor) -> Tensor:
        return values.clone()

    masks = (None if m is None else m.clone() for m in (batch.mask, batch.query_mask))
    cloned = batch.map(copy, copy, copy)
    return replace(cloned, **dict(zip(("mask", "query_mask"), masks, strict=True)))  # type: ignore[arg-type]


def _alike(a: Batch, b: Batch) -> bool:
    def shapes(batch: Batch) -> list[tuple[int, ...] | None]:
        return [None if v is None else tuple(v.shape) for v in _tensors(batch)]

    return shapes(a) == shapes(b) and (a.x_query is a.x) == (b.x_query is b.x)


def _copy(source: Batch, target: Batch) -> None:
    for a, b in zip(_tensors(source), _tensors(target), strict=True):
        if a is not None and b is not None:
            b.copy_(a, non_blocking=True)
