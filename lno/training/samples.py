"""Batches of encoded samples on a device: resident there, or read ahead of the step."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from lno.data import Batch, Fields
from lno.data.normalize import Normalizers


class Samples:
    """Batches of encoded samples on a device.

    They stay on the device where they fit into half of its free memory, and are encoded once.
    Others, and samples of different sizes, are read, encoded and pinned by a thread while the
    device is busy with the step before.
    """

    def __init__(self, data: Fields, normalizers: Normalizers, device: torch.device) -> None:
        self.data, self.normalizers, self.device = data, normalizers, device
        self.resident: Batch | None = None
        if fits(data, device):
            self.resident = normalizers.encode(data.batch(np.arange(len(data)))).to(device)
        else:
            self.reader = ThreadPoolExecutor(1, "lno-reader")
            self.coming: tuple[Tensor, Future[list[Batch]]] | None = None

    @property
    def resident_bytes(self) -> int:
        """What the samples take up on the device."""
        if self.resident is None:
            return 0
        tensors = {id(v): v for v in vars(self.resident).values() if isinstance(v, Tensor)}
        return sum(v.numel() * v.element_size() for v in tensors.values())

    def batches(self, index: Tensor, ahead: Tensor | None = None) -> list[Batch]:
        """A batch of the samples in each row of `index`, a CPU tensor (k, b).

        Those at `ahead` are read meanwhile. Samples of different sizes are padded in each batch by
        itself, so that it does not depend on the others.
        """
        if self.resident is not None:
            every = self.resident.at_samples(index.flatten().to(self.device, non_blocking=True))
            return every.split(len(index))
        if self.coming is not None and torch.equal(self.coming[0], index):
            batches = self.coming[1].result()
        else:
            batches = self._read(index)
        self.coming = None
        if ahead is not None:
            self.coming = (ahead, self.reader.submit(self._read, ahead))
        return [batch.to(self.device) for batch in batches]

    def _read(self, index: Tensor) -> list[Batch]:
        batches = [self.normalizers.encode(self.data.batch(row)) for row in index.numpy()]
        if self.device.type == "cuda":
            return [batch.each(Tensor.pin_memory) for batch in batches]
        return batches


def fits(data: Fields, device: torch.device) -> bool:
    """Whether all samples may stay on the device."""
    parts = [data.column(name) for name in ("x", "u", "x_query", "y")]
    if any(c is not None and not isinstance(c, np.ndarray) for c in parts):
        return False  # ragged, or in a file
    size = sum(4 * c.size for c in parts if isinstance(c, np.ndarray))
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 4e9
    return size < 0.5 * free
