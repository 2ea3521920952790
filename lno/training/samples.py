"""Training samples on their way to the device, and the split into training and validation."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields

import numpy as np
import torch
from torch import Tensor

from lno.data import Batch, Fields
from lno.data.normalize import Normalizers

ASSUMED_FREE = 4e9  # bytes of free memory on devices that are not asked: CPUs, Apple's GPUs


class Samples:
    """Batches of encoded samples on a device.

    Samples that fit into half of the device's free memory are encoded once and stay there. All
    others, and samples of different sizes, are read, encoded and pinned by a background thread
    while the device is busy with the step before.
    """

    def __init__(self, data: Fields, normalizers: Normalizers, device: torch.device) -> None:
        self.data, self.normalizers, self.device = data, normalizers, device
        self.resident: Batch | None = None
        if fits(data, device):
            self.resident = normalizers.encode(data.batch(np.arange(len(data)))).to(device)
        else:
            self.reader = ThreadPoolExecutor(1, "lno-reader")
            self.prefetched: tuple[Tensor, Future[list[Batch]]] | None = None

    @property
    def resident_bytes(self) -> int:
        """Memory that the samples occupy on the device."""
        if self.resident is None:
            return 0
        tensors = {id(v): v for v in vars(self.resident).values() if isinstance(v, Tensor)}
        return sum(v.numel() * v.element_size() for v in tensors.values())

    def batches(self, index: Tensor, prefetch: Tensor | None = None) -> list[Batch]:
        """A batch of the samples in each row of `index`, a CPU tensor (k, b).

        Samples at `prefetch` are read in the background for the next call. Samples of different
        sizes are padded to the largest in their own batch, independent of the other batches.
        """
        if self.resident is not None:
            chosen = self.resident.at_samples(index.flatten().to(self.device, non_blocking=True))
            return chosen.split(len(index))
        if self.prefetched is not None and torch.equal(self.prefetched[0], index):
            batches = self.prefetched[1].result()
        else:
            batches = self._read(index)
        self.prefetched = None
        if prefetch is not None:
            self.prefetched = (prefetch, self.reader.submit(self._read, prefetch))
        return [batch.to(self.device) for batch in batches]

    def _read(self, index: Tensor) -> list[Batch]:
        batches = [self.normalizers.encode(self.data.batch(row)) for row in index.numpy()]
        if self.device.type == "cuda":
            return [batch.each(Tensor.pin_memory) for batch in batches]
        return batches


def fits(data: Fields, device: torch.device) -> bool:
    """Whether all samples can stay on the device: not ragged, not in a file, and small enough."""
    columns = [data.column(f.name) for f in fields(Batch) if hasattr(data, f.name)]
    if any(c is not None and not isinstance(c, np.ndarray) for c in columns):
        return False
    size = sum(4 * c.size for c in columns if isinstance(c, np.ndarray))
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else ASSUMED_FREE
    return size < 0.5 * free


def split_validation(data: Fields, validation: float | Fields) -> tuple[Fields, Fields | None]:
    """Split training samples into those to train on and those held out for validation.

    Args:
        data: all training samples.
        validation: the fraction to hold out, at random but the same for every training seed; or
            other samples, in which case all of `data` is trained on.
    """
    if isinstance(validation, Fields):
        return data, validation
    if not 0 <= validation < 1:
        raise ValueError(
            f"validation: expected a fraction from 0 to below 1, or Fields, got {validation}"
        )
    count = min(round(validation * len(data)), len(data) - 1)
    if count == 0:
        return data, None
    order = np.random.default_rng([0, 1]).permutation(len(data))
    return data.subset(np.sort(order[count:])), data.subset(np.sort(order[:count]))
