"""The training step: run eagerly, or captured once as a CUDA graph and replayed."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields

import torch
from torch import Tensor, nn
from torch._functorch import config as functorch
from torch.func import functional_call

from lno.data import Batch
from lno.metrics import METRICS
from lno.models import streamed
from lno.training.distributed import METRICS_OF_PARTS
from lno.training.precision import half_where_free, matrix_products
from lno.training.schedules import SCHEDULES
from lno.training.state import Training

COMPILE_FROM = 5000  # steps: a shorter run is over before compilation has paid off
KEPT_ACTIVATIONS = 0.4  # of what a backward pass needs; the compiler computes the rest again
Model = Callable[..., Tensor]


def loss_function(training: Training) -> Callable[[Model, Batch], Tensor]:
    """The mean loss of a model on an encoded batch, as the recipe defines it."""
    recipe, precision = training.recipe, training.precision
    grid = training.data.grid or ()
    if recipe.gradient and (min(grid, default=0) < 3 or training.team.split == "points"):
        raise ValueError(
            "Recipe.gradient needs data on a grid of three points and more along every axis, whole "
            f"on every process: pass Fields(..., grid=...); the grid is {grid or None}"
        )
    by_points = training.team.size > 1 and training.team.split == "points"
    metric = (METRICS_OF_PARTS if by_points else METRICS)[recipe.loss]
    scale = training.normalizers.y
    # Made here: a graph cannot be captured while numbers are moved to the device.
    mean, std = (torch.tensor(v, device=training.device) for v in (scale.mean, scale.std))

    def loss(model: Model, batch: Batch) -> Tensor:
        assert batch.y is not None
        with half_where_free(precision, batch.u.device):
            prediction = model(batch.x, batch.u, batch.x_query, batch.mask)
        prediction, target = prediction.to(batch.y.dtype), batch.y
        if recipe.physical:
            prediction, target = prediction * std + mean, target * std + mean
        value = metric(prediction, target, batch.query_mask)
        if recipe.gradient:
            slopes = (differences(v, grid) for v in (prediction, target))
            value = value + recipe.gradient * metric(*slopes)
        return value.mean()

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


def compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function compiled for fixed shapes."""
    from torch._inductor import list_options

    streamed.stay_uncompiled()
    # With torch 2.11 this option gives wrong shapes where samples share many points.
    faulty = "triton.mix_order_reduction"
    options: dict[str, str | int | bool | Callable[..., object]] = {}
    if faulty in list_options():
        options[faulty] = False
    return torch.compile(function, dynamic=False, options=options)


class Step:
    """One step on encoded batches, one for each model, as fast as the device allows.

    On CUDA the loss is compiled where the run is long enough, and the whole step, from the batches
    to the new weights, is captured as one graph for the first batches of full size and replayed;
    batches of other shapes run eagerly. Each model has a branch of the graph to itself: they run
    side by side, and do what each would do alone. Several processes add their gradients up between
    two halves of a step, of which the graph is the first.
    """

    def __init__(self, training: Training) -> None:
        self.training = training
        self.on_gpu = training.device.type == "cuda"
        self.alone = training.team.size == 1
        # By points, processes talk to each other in the middle of the forward pass.
        self.capturable = self.on_gpu and (self.alone or training.team.split == "samples")
        self.eager = loss_function(training)
        self.compiled: Callable[..., Tensor] | None = None
        if self.capturable and training.steps >= COMPILE_FROM:
            self.compiled = self._compiled()
        several = self.on_gpu and len(training.models) > 1
        self.streams = [torch.cuda.Stream() for _ in training.models] if several else []
        self.graph: torch.cuda.CUDAGraph | None = None
        self.static: list[Batch] = []  # what the graph reads,
        self.numbers = self._numbers().to(training.device)  # of the update, as well,
        self.value = torch.zeros(0)  # and what it writes

    def __call__(self, batches: Sequence[Batch], weight: float = 1.0) -> Tensor:
        """Take the step; returns the losses (k,) of all models, on the device.

        Args:
            batches: of each model, what this process has to do of it.
            weight: the share of this process's loss in that of all.
        """
        with matrix_products(self.training.precision):
            return self._step(batches, weight)

    def _step(self, batches: Sequence[Batch], weight: float) -> Tensor:
        self.numbers.copy_(self._numbers(), non_blocking=True)
        if self.capturable and self.graph is None and self.training.full:
            self._capture(batches)
        captured = self.graph is not None and all(map(_alike, batches, self.static))
        if self.graph is not None and captured:
            for source, target in zip(batches, self.static, strict=True):
                _copy(source, target)
            self.graph.replay()
            value = self.value.clone()
        else:
            value = self._differentiate(batches)
        if not self.alone:
            gradient = self.training.optimizer.gradient.mul_(weight)
            self.training.team.total(gradient)
            value = self.training.team.total(value * weight)
        if not (captured and self.alone):
            self._update()
        return value

    def _numbers(self) -> Tensor:
        training, recipe = self.training, self.training.recipe
        pace = SCHEDULES[recipe.schedule](training.step, training.steps, recipe.epochs)
        return training.optimizer.numbers(training.step, recipe.rate, pace)

    def _compiled(self) -> Callable[..., Tensor]:
        """The loss as a function of weights and batch: compiled once for all models."""
        model: nn.Module = self.training.models[0]

        def loss(weights: dict[str, Tensor], batch: Batch) -> Tensor:
            return self.eager(lambda *inputs: functional_call(model, weights, inputs), batch)

        return compiled(loss)

    def _differentiate(self, batches: Sequence[Batch], fast: bool = False) -> Tensor:
        """The losses (k,), their gradients being gathered in the optimiser."""
        if not self.streams:
            return torch.stack([self._one(k, batch, fast) for k, batch in enumerate(batches)])
        here, values = torch.cuda.current_stream(), []
        for k, (batch, stream) in enumerate(zip(batches, self.streams, strict=True)):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                values.append(self._one(k, batch, fast))
        for stream in self.streams:
            here.wait_stream(stream)
        return torch.stack(values)

    def _one(self, k: int, batch: Batch, fast: bool) -> Tensor:
        """The loss of the k-th model, its gradient being gathered in the optimiser."""
        optimizer, model = self.training.optimizer, self.training.models[k]
        parameters = optimizer.parameters[k]
        if len(batch) == 0:  # fewer samples than processes
            optimizer.gather(k, [None] * len(parameters))
            return batch.u.new_zeros(())
        if fast and self.compiled is not None:
            value = self.compiled(dict(model.named_parameters()), batch)
        else:
            value = self.eager(model, batch)
        optimizer.gather(k, torch.autograd.grad(value, parameters, allow_unused=True))
        return value.detach()

    def _update(self) -> None:
        optimizer, limit = self.training.optimizer, self.training.recipe.clip
        if limit is not None:
            optimizer.clip(limit)
        optimizer.update(self.numbers)

    def _capture(self, batches: Sequence[Batch]) -> None:
        start = time.perf_counter()
        self.static = [batch.each(Tensor.clone) for batch in batches]
        # Several models keep a GPU busy: for them, computing again costs more than it is worth.
        kept = 1.0 if self.streams else KEPT_ACTIVATIONS
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # warm-up: compilation, and what libraries allocate
            try:
                with functorch.patch(activation_memory_budget=kept):
                    self._differentiate(self.static, fast=True)
            except Exception as error:  # compilers fail in many ways, and none is worth the run
                if self.compiled is None:
                    raise
                first = str(error).strip().splitlines()[:1]
                warnings.warn(f"training goes on uncompiled: {first}", stacklevel=2)
                self.compiled = None
            for _ in range(2):
                self._differentiate(self.static, fast=True)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        # On the same stream, where the libraries have their workspaces already.
        with torch.cuda.graph(self.graph, stream=stream):
            self.value = self._differentiate(self.static, fast=True)
            if self.alone:
                self._update()
        self.training.compile_seconds += time.perf_counter() - start


def _tensors(batch: Batch) -> list[Tensor | None]:
    return [getattr(batch, field.name) for field in fields(batch)]


def _alike(a: Batch, b: Batch) -> bool:
    def shapes(batch: Batch) -> list[tuple[int, ...] | None]:
        return [None if v is None else tuple(v.shape) for v in _tensors(batch)]

    return shapes(a) == shapes(b) and (a.x_query is a.x) == (b.x_query is b.x)


def _copy(source: Batch, target: Batch) -> None:
    for a, b in zip(_tensors(source), _tensors(target), strict=True):
        if a is not None and b is not None:
            b.copy_(a, non_blocking=True)
