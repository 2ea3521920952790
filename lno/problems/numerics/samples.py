"""Solving the samples of a batch so that none depends on the others."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor


def solve_samples(
    solve: Callable[[Tensor], Tensor], inputs: Tensor, *, cpu: int, gpu: int
) -> Tensor:
    """Solve any number of samples in parts of one fixed size, the last one padded.

    So the bits of a sample do not depend on how many samples are solved with it: those of matrix
    products and transforms change with the size of a batch and with the number of threads. On a CPU
    each part has one thread to itself, which also beats all threads for one part after the other.

    Args:
        solve: solves a part.
        inputs: (b, ...), on the device to compute on.
        cpu: samples in a part on a CPU.
        gpu: samples in a part on a GPU.

    >>> solve_samples(lambda x: 2 * x, torch.ones(3, 2), cpu=2, gpu=16).shape
    torch.Size([3, 2])
    """
    size = gpu if inputs.is_cuda else cpu
    missing = -len(inputs) % size
    whole = torch.cat((inputs, inputs[:1].expand(missing, *inputs.shape[1:])))
    parts = whole.split(size)
    if inputs.is_cuda:
        return torch.cat([solve(part) for part in parts])[: len(inputs)]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        # Each new thread has to be told: it starts with a number of its own.
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return torch.cat(list(pool.map(solve, parts)))[: len(inputs)]
    finally:
        torch.set_num_threads(threads)
