"""Several processes, as torchrun starts them: samples or points of a batch are shared out.

By samples, each process takes a part of every batch, and gradients are added up. By points, each
takes a part of the points of every sample: the encoder's sums are added up over the processes,
which exchanges M × (D + 2) numbers a sample and no points, and gives the result of all points.
Either way a run gives the curve of a single process, up to rounding.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce

from lno.data import Batch
from lno.models import LNO
from lno.models.streamed import Pooled

SPLITS = ("samples", "points")


@dataclass(frozen=True)
class Team:
    """The processes of a run, of which this is number `rank`."""

    rank: int
    size: int
    split: str

    @property
    def leads(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def prepare(self, model: nn.Module) -> None:
        """Make a model ready: by points, its encoder adds up over the processes."""
        if self.size == 1 or self.split == "samples":
            return
        if not isinstance(model, LNO):
            raise ValueError(
                f"only an LNO can be trained by points, not {type(model).__name__}: use 'samples'"
            )
        model.encoder.reduce = add_pooled

    def release(self, model: nn.Module) -> None:
        """Let a model be used by one process alone again."""
        if isinstance(model, LNO):
            model.encoder.reduce = None

    def share(self, batch: Batch) -> Batch:
        """This process's part of a batch that all have."""
        if self.size == 1:
            return batch
        mine = slice(self.rank, None, self.size)
        if self.split == "samples":
            return batch.at_samples(torch.arange(len(batch), device=batch.u.device)[mine])
        if min(batch.x.shape[1], batch.x_query.shape[1]) < self.size:
            raise ValueError(
                f"{self.size} processes share the points of a sample: expected at least as many, "
                f"got {batch.x.shape[1]} observed and {batch.x_query.shape[1]} queried"
            )
        part = replace(
            batch,
            x=batch.x[:, mine],
            u=batch.u[:, mine],
            mask=None if batch.mask is None else batch.mask[:, mine],
        )
        queries = torch.arange(batch.x_query.shape[1], device=batch.u.device)[mine]
        part = part.at_queries(queries)
        return replace(part, x_query=part.x) if batch.x_query is batch.x else part

    def weight(self, whole: Batch, part: Batch) -> float:
        """The share of this process's loss in that of the whole batch."""
        if self.split == "points":
            return 1 / self.size  # every process has the same loss
        return len(part) / len(whole)

    def total(self, value: Tensor) -> Tensor:
        """A number added up over the processes."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether any process says yes: all stop at the same step."""
        if self.size == 1:
            return flag
        return bool(self.total(torch.tensor(float(flag), device=device)) > 0)


ALONE = Team(0, 1, "samples")


def join(split: str, device: torch.device) -> Team:
    """Join the processes that torchrun started; alone where it did not."""
    if split not in SPLITS:
        raise ValueError(f"no way to share {split!r} out: expected one of {', '.join(SPLITS)}")
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return ALONE
    if not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return Team(dist.get_rank(), size, split)


def leads() -> bool:
    """Whether this process is the one that writes and prints."""
    return os.environ.get("RANK", "0") == "0"


def add_pooled(part: Pooled) -> Pooled:
    """The softmax sums over the points of all processes; gradients go back to each."""
    top = part.top.detach().clone()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    scale = torch.exp(part.top - top)  # the maximum is a shift, which cancels: it has no gradient
    sums = torch.cat((scale * part.total, (scale[..., None] * part.weighted).flatten(1)), dim=1)
    both = all_reduce(sums)
    total, weighted = both.split((part.total.shape[1], both.shape[1] - part.total.shape[1]), dim=1)
    return Pooled(top, total, weighted.view_as(part.weighted))


def relative_l2_of_parts(prediction: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
    """Like `lno.metrics.relative_l2`, of samples whose points are shared out."""
    error, real, _ = _real(prediction, target, mask)
    largest = real.detach().abs().amax(1, keepdim=True)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    scale = torch.where(largest > 0, largest, 1.0)
    squares, size = _sums((error / scale).square(), (real / scale).square())
    root = torch.where(squares > 0, squares, 1.0).sqrt()  # whose slope at zero is infinite
    return torch.where(squares > 0, root, 0.0) / torch.where(size > 0, size.sqrt(), 1.0)


def relative_mae_of_parts(prediction: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
    """Like `lno.metrics.relative_mae`, of samples whose points are shared out."""
    error, real, count = _real(prediction, target, mask)
    total, size, count = _sums(error.abs(), real.abs(), count)
    return total / torch.where(size > 0, size, count)


def mse_of_parts(prediction: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
    """Like `lno.metrics.mse`, of samples whose points are shared out."""
    error, _, count = _real(prediction, target, mask)
    squares, count = _sums(error.square(), count)
    return squares / count


METRICS_OF_PARTS = {
    "relative_l2": relative_l2_of_parts,
    "relative_mae": relative_mae_of_parts,
    "mse": mse_of_parts,
}


def _real(prediction: Tensor, target: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Error and target of each sample (b, n), zero where they pad, and ones where they do not."""
    error, count = prediction - target, torch.ones_like(target)
    if mask is not None:
        values = (torch.where(mask[..., None], v, 0.0) for v in (error, target, count))
        error, target, count = values
    return error.flatten(1), target.flatten(1), count.flatten(1)


def _sums(*values: Tensor) -> tuple[Tensor, ...]:
    """The sums (b,) of values (b, n) over all points of each sample, on all processes."""
    return all_reduce(torch.stack([v.sum(1) for v in values])).unbind()
