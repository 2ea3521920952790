"""The training step: one function, run eagerly, or captured once as a CUDA graph and replayed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import torch
from torch import Tensor, nn

from lno.data import Batch, Fields
from lno.data.normalize import Normalizers
from lno.metrics import METRICS
from lno.training.precision import computing_in
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
    model, recipe, scale = training.model, training.recipe, training.normalizers.y
    metric = METRICS[recipe.loss]

    def loss(batch: Batch) -> Tensor:
        with computing_in(training.precision, training.device):
            prediction = model(batch.x, batch.u, batch.x_query, batch.mask)
        target = batch.y
        assert target is not None
        prediction = prediction.to(target.dtype)
        if recipe.physical:
            prediction, target = scale.decode(prediction), scale.decode(target)
        return metric(prediction, target, batch.query_mask).mean()

    return loss


def update(training: Training, loss: Loss, batch: Batch) -> Tensor:
    """One step on an encoded batch; returns the loss, a tensor on the device."""
    value = loss(batch)
    for optimizer in training.optimizers:
        optimizer.zero_grad(set_to_none=True)
    value.backward()
    if training.recipe.clip is not None:
        nn.utils.clip_grad_norm_(training.model.parameters(), training.recipe.clip)
    for optimizer in training.optimizers:
        optimizer.step()
    if training.mean is not None:
        training.mean.update_parameters(training.model)
    return value.detach()


class Step:
    """`update`, as fast as the device allows.

    On CUDA the loss is compiled where the run is long enough, and the whole step is captured as a
    graph for the first batch of full size; batches of other shapes run eagerly.
    """

    def __init__(self, training: Training) -> None:
        self.training = training
        self.loss = loss_function(training)
        self.on_gpu = training.device.type == "cuda"
        # Muon's rate is a plain number, which a graph would freeze.
        self.capture = self.on_gpu and training.recipe.optimizer != "muon"
        if self.on_gpu and training.steps >= COMPILE_FROM:
            self.loss = torch.compile(self.loss, dynamic=False)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.static: Batch | None = None
        self.value = torch.zeros((), device=training.device)

    def __call__(self, batch: Batch) -> Tensor:
        if not self.capture:
            return update(self.training, self.loss, batch)
        if self.graph is None and len(batch) == min(
            self.training.recipe.batch, len(self.training.data)
        ):
            self._capture(batch)
        if self.graph is None or self.static is None or not _same_shapes(batch, self.static):
            return update(self.training, loss_function(self.training), batch)
        _copy(batch, self.static)
        self.graph.replay()
        return self.value.clone()

    def _capture(self, batch: Batch) -> None:
        training = self.training
        self.static = _clone(batch)
        before = [t.clone() for t in training.tensors()]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # warm-up: libraries and optimiser allocate what they need
            for _ in range(3):
                update(training, self.loss, self.static)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.value.copy_(update(training, self.loss, self.static))
        after = training.tensors()
        # The warm-up must leave no trace: new optimiser states begin at zero.
        for k, tensor in enumerate(after):
            if k < len(before):
                tensor.copy_(before[k])
            else:
                tensor.zero_()


def _tensors(batch: Batch) -> list[Tensor | None]:
    return [getattr(batch, field.name) for field in fields(batch)]


def _clone(batch: Batch) -> Batch:
    def copy(values: Tensor) -> Tensor:
        return values.clone()

    masks = (None if m is None else m.clone() for m in (batch.mask, batch.query_mask))
    cloned = batch.map(copy, copy, copy)
    return replace(cloned, **dict(zip(("mask", "query_mask"), masks, strict=True)))  # type: ignore[arg-type]


def _same_shapes(a: Batch, b: Batch) -> bool:
    def shapes(batch: Batch) -> list[tuple[int, ...] | None]:
        return [None if v is None else tuple(v.shape) for v in _tensors(batch)]

    return shapes(a) == shapes(b) and (a.x_query is a.x) == (b.x_query is b.x)


def _copy(source: Batch, target: Batch) -> None:
    for a, b in zip(_tensors(source), _tensors(target), strict=True):
        if a is not None and b is not None:
            b.copy_(a, non_blocking=True)
