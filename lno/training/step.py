"""The training step: run eagerly, or captured once as a CUDA graph and replayed."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from lno.data import Batch
from lno.metrics import METRICS
from lno.models.model import Model, apply_model
from lno.training.precision import autocast, matmul_precision
from lno.training.schedules import SCHEDULES
from lno.training.state import Training

COMPILE_FROM = 5000  # steps: shorter runs end before compilation pays off
# Models give convolutions tensors whose channels are last already. Told to choose the layout, the
# compiler adds copies that take up to half of a step.
COMPILER: dict[str, Any] = {"layout_optimization": False}
# Off: in torch 2.11 this optimisation gives wrong shapes if samples share many points.
NEWEST_COMPILER: dict[str, Any] = {"triton.mix_order_reduction": False}


class Loss(nn.Module):
    """The mean loss of a model on an encoded batch, as the recipe defines it."""

    def __init__(self, model: Model, training: Training) -> None:
        super().__init__()
        self.model, self.precision = model, training.precision
        self.recipe, self.task = training.recipe, training.task
        self.grid = training.task.model_spec(training.data.spec).grid or ()
        if self.recipe.gradient and (
            min(self.grid, default=0) < 3 or training.processes.split_points
        ):
            raise ValueError(
                "Recipe.gradient needs data on a grid with at least three points along every axis, "
                "and whole samples in every process: pass Fields(..., grid=...); the grid is "
                f"{self.grid or None}"
            )
        if self.task.reads_query_values and self.recipe.queries and training.processes.split_points:
            raise ValueError(
                "processes that split the points of a sample cannot interpolate its last frame at "
                "other query points: set Rollout.increments to False, or Recipe.queries to None"
            )
        self.metric = METRICS[self.recipe.loss]
        self.reduction = training.processes.reduction
        scale = training.normalizers.y
        # Copied to the device here: copies from the CPU cannot be captured in a CUDA graph.
        self.mean, self.std = (
            torch.tensor(v, device=training.device) for v in (scale.mean, scale.std)
        )

    def forward(self, batch: Batch) -> Tensor:
        assert batch.y is not None
        with autocast(self.precision, batch.u.device):
            prediction = apply_model(self.model, batch, self.recipe.weighted)
        prediction, target = self.task.model_output(prediction.to(batch.y.dtype), batch), batch.y
        if self.recipe.physical:
            prediction, target = (self._physical(v, batch) for v in (prediction, target))
        weights = batch.query_weights if self.recipe.weighted else None
        value = self.metric(prediction, target, batch.query_mask, weights, self.reduction)
        if self.recipe.gradient:
            slopes = (differences(v, self.grid) for v in (prediction, target))
            value = value + self.recipe.gradient * self.metric(*slopes)
        return value.mean()

    def _physical(self, values: Tensor, batch: Batch) -> Tensor:
        values = values * self.std + self.mean
        return values if batch.background is None else values + batch.background


def differences(values: Tensor, grid: tuple[int, ...]) -> Tensor:
    """Central differences of values (b, n, o) along each axis of a grid, at its inner points.

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
    try:
        return torch.compile(function, dynamic=False, options={**COMPILER, **NEWEST_COMPILER})
    except RuntimeError:  # a version of torch without the newest
        return torch.compile(function, dynamic=False, options=COMPILER)


class Step:
    """One step on encoded batches, one batch for each model.

    On CUDA, the loss is compiled if the run is long enough. The whole step, from the batches to the
    new weights, is captured as one CUDA graph at the first batch of full size and then replayed.
    A model that cannot be captured runs without a graph. Batches of other shapes run eagerly.

    Several models are parallel branches of the graph; up to rounding, each is trained as if alone.
    Several processes sum their gradients between the backward pass, which is captured, and the
    update, which is not.
    """

    def __init__(self, training: Training) -> None:
        self.training = training
        self.on_gpu = training.device.type == "cuda"
        self.single = training.processes.size == 1
        # Processes that split points communicate within the forward pass.
        self.capturable = self.on_gpu and not training.processes.split_points
        self.losses = [Loss(model, training) for model in training.models]
        self.compiled: Callable[..., Tensor] | None = None
        if training.compiled is None:
            training.compiled = training.total_steps >= COMPILE_FROM
        if self.capturable and training.compiled:
            self.compiled = self._compiled()
        parallel = self.on_gpu and len(training.models) > 1
        self.streams = [torch.cuda.Stream() for _ in training.models] if parallel else []
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: list[Batch] = []  # the graph reads these batches
        self.numbers = self._numbers().to(training.device)  # and these scalars of the update
        self.output = torch.zeros(0)  # and writes these losses

    def __call__(self, batches: Sequence[Batch], share: float = 1.0) -> Tensor:
        """Take the step and return the losses (k,) of all models, on the device.

        Args:
            batches: one for each model; with several processes, this process's part of it.
            share: the factor of this process's loss in the total loss.
        """
        with matmul_precision(self.training.precision):
            return self._step(batches, share)

    def _step(self, batches: Sequence[Batch], share: float) -> Tensor:
        self.numbers.copy_(self._numbers(), non_blocking=True)
        if self.capturable and self.graph is None and self.training.next_batch_is_full:
            self._capture(batches)
        full = bool(self.inputs) and all(map(_same_shapes, batches, self.inputs))
        captured = self.graph is not None and full
        if self.graph is not None and captured:
            for source, target in zip(batches, self.inputs, strict=True):
                _copy(source, target)
            self.graph.replay()
            losses = self.output.clone()
        else:
            losses = self._differentiate(batches, fast=full)
        if not self.single:
            gradient = self.training.optimizer.gradient.mul_(share)
            self.training.processes.sum(gradient)
            losses = self.training.processes.sum(losses * share)
        if not (captured and self.single):
            self._update()
        return losses

    def _numbers(self) -> Tensor:
        training, recipe = self.training, self.training.recipe
        pace = SCHEDULES[recipe.schedule](training.step, training.total_steps)
        return training.optimizer.numbers(training.step, recipe.learning_rate, pace)

    def _compiled(self) -> Callable[..., Tensor]:
        """The loss as a function of a model's state and a batch: compiled once for all models."""
        loss = self.losses[0]
        return compiled(lambda state, batch: functional_call(loss, state, (batch,)))

    def _differentiate(self, batches: Sequence[Batch], fast: bool = False) -> Tensor:
        """Compute the losses (k,) and gather their gradients in the optimiser."""
        if not self.streams:
            return torch.stack([self._one(k, batch, fast) for k, batch in enumerate(batches)])
        current, losses = torch.cuda.current_stream(), []
        for k, (batch, stream) in enumerate(zip(batches, self.streams, strict=True)):
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                losses.append(self._one(k, batch, fast))
        for stream in self.streams:
            current.wait_stream(stream)
        return torch.stack(losses)

    def _one(self, k: int, batch: Batch, fast: bool) -> Tensor:
        """Compute the loss of the k-th model and gather its gradient in the optimiser."""
        optimizer, loss = self.training.optimizer, self.losses[k]
        parameters = optimizer.parameters[k]
        if len(batch) == 0:  # fewer samples than processes
            optimizer.gather(k, [None] * len(parameters))
            return batch.u.new_zeros(())
        if fast and self.compiled is not None:
            value = self.compiled(dict([*loss.named_parameters(), *loss.named_buffers()]), batch)
        else:
            value = loss(batch)
        optimizer.gather(k, torch.autograd.grad(value, parameters, allow_unused=True))
        return value.detach()

    def _update(self) -> None:
        optimizer, limit = self.training.optimizer, self.training.recipe.clip
        if limit is not None:
            optimizer.clip(limit)
        optimizer.update(self.numbers)
        self.training.statistics.update_average(self.numbers[-1])

    def _capture(self, batches: Sequence[Batch]) -> None:
        start = time.perf_counter()
        self.inputs = [batch.each(Tensor.clone) for batch in batches]
        stream = torch.cuda.Stream()
        with self.training.statistics.restored():  # the warm-up changes them
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._warm_up()
            torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        try:
            # Capture on the stream of the warm-up, where libraries already have their workspaces.
            # A failed capture does not switch back to the previous stream: `outside` does.
            outside = torch.cuda.stream(torch.cuda.current_stream())
            # The thread that reads the next samples may pin memory, which the default mode forbids.
            mode = "thread_local"
            with outside, torch.cuda.graph(graph, stream=stream, capture_error_mode=mode):
                self.output = self._differentiate(self.inputs, fast=True)
                if self.single:
                    self._update()
            self.graph = graph
        except Exception as error:  # some operations cannot be captured
            first = error.__context__ or error  # ending a failed capture fails, too
            said = f"training continues without a CUDA graph: {first_line(first)}"
            warnings.warn(said, stacklevel=2)
            self.capturable = False
        self.training.compile_seconds += time.perf_counter() - start

    def _warm_up(self) -> None:
        """Run some passes before the capture: they compile the loss and let libraries allocate."""
        try:
            self._differentiate(self.inputs, fast=True)
        except Exception as error:  # whatever fails in the compiler must not end the run
            if self.compiled is None:
                raise
            warnings.warn(f"training continues uncompiled: {first_line(error)}", stacklevel=2)
            self.compiled = None
        for _ in range(2):
            self._differentiate(self.inputs, fast=True)


def first_line(error: BaseException) -> str:
    """The kind of an error and the first line of its message."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def _tensors(batch: Batch) -> list[Tensor | None]:
    return [getattr(batch, field.name) for field in fields(batch)]


def _same_shapes(a: Batch, b: Batch) -> bool:
    def shapes(batch: Batch) -> list[tuple[int, ...] | None]:
        return [None if v is None else tuple(v.shape) for v in _tensors(batch)]

    return shapes(a) == shapes(b) and (a.x_query is a.x) == (b.x_query is b.x)


def _copy(source: Batch, target: Batch) -> None:
    for a, b in zip(_tensors(source), _tensors(target), strict=True):
        if a is not None and b is not None:
            b.copy_(a, non_blocking=True)
