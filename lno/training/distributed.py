"""Training with several processes, started by torchrun: each takes a part of every batch.

- split="samples": each process takes some of the samples, and gradients are summed.
- split="points": each process takes some of the points of every sample. The encoder's softmax sums
  are reduced over the processes: M × (D + 2) numbers a sample, however many points there are.

Either way, the run has the learning curve of a single process, up to rounding.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.nn.functional import all_reduce

from lno.data import Batch
from lno.metrics import LOCAL, Reduction
from lno.models import MODELS
from lno.models.model import Model
from lno.models.streamed import SoftmaxSums

SPLITS = ("samples", "points")


@dataclass(frozen=True)
class Processes:
    """The processes of a run: this is number `rank` of `size`."""

    rank: int
    size: int
    split: str

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    @property
    def split_points(self) -> bool:
        """Whether the points of a sample are spread over several processes."""
        return self.size > 1 and self.split == "points"

    @property
    def reduction(self) -> Reduction:
        """How metrics combine the points of a sample."""
        return AcrossProcesses() if self.split_points else LOCAL

    def prepare(self, model: Model) -> None:
        """Let a model's encoder sum over all processes, where they split the points."""
        if self.size > 1 and model.keeps_statistics:
            raise ValueError(
                f"{type(model).__name__} normalises with statistics of the whole batch, of which "
                "each process has only a part: train it in one process, without torchrun"
            )
        if not self.split_points:
            return
        if not model.streams:
            able = ", ".join(name for name, (cls, _) in MODELS.items() if cls.streams)
            raise ValueError(
                f"{type(model).__name__} needs all points of a sample in one process: use "
                f"split='samples', or a model that works on parts of a sample ({able})"
            )
        model.reduce_with(sum_softmax)

    def release(self, model: Model) -> None:
        """Undo `prepare`, so that one process alone can use the model."""
        if self.split_points:
            model.reduce_with(None)

    def part(self, batch: Batch) -> Batch:
        """This process's part of a batch that every process has."""
        if self.size == 1:
            return batch
        mine = slice(self.rank, None, self.size)
        if self.split == "samples":
            return batch.at_samples(torch.arange(len(batch), device=batch.u.device)[mine])
        if min(batch.x.shape[1], batch.x_query.shape[1]) < self.size:
            raise ValueError(
                f"{self.size} processes split the points of a sample: expected at least as many, "
                f"got {batch.x.shape[1]} observed and {batch.x_query.shape[1]} query points"
            )
        part = batch.at_points(mine).at_queries(mine)
        return replace(part, x_query=part.x) if batch.x_query is batch.x else part

    def share(self, whole: Batch, part: Batch) -> float:
        """The factor of this process's loss in the loss of the whole batch."""
        if self.split == "points":
            return 1 / self.size  # every process computes the same loss
        return len(part) / len(whole)

    def sum(self, value: Tensor) -> Tensor:
        """Sum a tensor over the processes, in place."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether the flag is set in any process, so that all stop at the same step."""
        if self.size == 1:
            return flag
        return bool(self.sum(torch.tensor(float(flag), device=device)) > 0)

    def from_main(self, number: int, device: torch.device) -> int:
        """The main process's value of a number that may differ between processes."""
        if self.size == 1:
            return number
        value = torch.tensor(number if self.is_main else 0, device=device)
        return int(self.sum(value))


SINGLE = Processes(0, 1, "samples")


def join(split: str, device: torch.device) -> Processes:
    """Join the processes started by torchrun; `SINGLE` without it."""
    if split not in SPLITS:
        raise ValueError(f"no split {split!r}: expected one of {', '.join(SPLITS)}")
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return SINGLE
    if not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return Processes(dist.get_rank(), size, split)


def is_main() -> bool:
    """Whether this process writes files and prints; usable before `join`."""
    return os.environ.get("RANK", "0") == "0"


def sum_softmax(part: SoftmaxSums) -> SoftmaxSums:
    """Softmax sums over the points of all processes; gradients flow back to each."""
    top, total, weighted = part
    largest = top.detach().clone()
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    scale = torch.exp(top - largest)  # the maximum is a shift that cancels: it has no gradient
    sums = torch.cat((scale * total, (scale[..., None] * weighted).flatten(1)), dim=1)
    total, weighted = all_reduce(sums).split((total.shape[1], weighted[0].numel()), dim=1)
    return SoftmaxSums(largest, total, weighted.view_as(part[2]))


class AcrossProcesses(Reduction):
    """Metrics of samples whose points are spread over the processes."""

    def sum(self, sums: Tensor) -> Tensor:
        """Sums over the points of all processes."""
        return all_reduce(sums)

    def norm(self, norms: Tensor) -> Tensor:
        """Euclidean norms over the points of all processes."""
        squares = all_reduce(norms.square())
        # The slope of a square root at zero is infinite, and its product with zero NaN.
        return torch.where(squares > 0, torch.where(squares > 0, squares, 1.0).sqrt(), 0.0)

    def max(self, maxima: Tensor) -> Tensor:
        """Maxima over the points of all processes."""
        dist.all_reduce(maxima, op=dist.ReduceOp.MAX)
        return maxima
