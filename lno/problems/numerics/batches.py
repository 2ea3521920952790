"""Solving samples in batches so that no result depends on the other samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor


def solve_in_batches(
    solve: Callable[[Tensor], Tensor],
    inputs: Sequence[np.ndarray],
    device: torch.device,
    *,
    cpu: int,
    gpu: int,
) -> list[np.ndarray | None]:
    """Solve any number of samples of one shape, in batches of a fixed size; None: not finite.

    Matrix products and Fourier transforms round differently for other batch sizes and other numbers
    of threads. So all batches have one size, the last one is padded, and on a CPU each batch is
    solved by a single thread. Several batches run at once there, which is also faster than several
    threads for one batch.

    Args:
        solve: maps a batch of inputs to a batch of solutions, NaN for those not converged.
        inputs: one array for each sample.
        device: where to compute.
        cpu: the batch size on a CPU.
        gpu: the batch size on a GPU.

    >>> solved = solve_in_batches(
    ...     lambda x: 2 * x, [np.ones(2), np.zeros(2)], torch.device("cpu"), cpu=16, gpu=16
    ... )
    >>> [s.tolist() for s in solved]
    [[2.0, 2.0], [0.0, 0.0]]
    """
    whole = torch.from_numpy(np.stack(inputs)).to(device)
    size = gpu if whole.is_cuda else cpu
    padding = whole[:1].expand(-len(inputs) % size, *whole.shape[1:])
    batches = torch.cat((whole, padding)).split(size)
    if whole.is_cuda:
        solved = [solve(batch) for batch in batches]
    else:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            # A new thread starts with a number of its own, so it is set in each of them.
            with ThreadPoolExecutor(
                threads, initializer=torch.set_num_threads, initargs=(1,)
            ) as pool:
                solved = list(pool.map(solve, batches))
        finally:
            torch.set_num_threads(threads)
    found = torch.cat(solved)[: len(inputs)].cpu().numpy()
    return [one if np.isfinite(one).all() else None for one in found]
