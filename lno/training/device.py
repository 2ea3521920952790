"""The device to compute on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

SHARED = "shared"  # in the description of a device that other runs use at the same time
SHARING = "LNO_SHARED"  # set in the environment of processes that share their device
MPS = "CUDA_MPS_PIPE_DIRECTORY"  # set where NVIDIA's Multi-Process Service shares the GPU


def pick_device(name: str | torch.device = "auto") -> torch.device:
    """The device called `name`; "auto" is CUDA if there is one, else Apple's GPU, else the CPU.

    >>> pick_device("cpu")
    device(type='cpu')
    """
    if not isinstance(name, str | torch.device):
        raise TypeError(f"device: expected 'auto', 'cpu', 'mps' or 'cuda', got {name!r}")
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, ValueError) as error:
        raise ValueError(
            f"device: cannot compute on {name!r}: expected 'auto', 'cpu', 'mps' or 'cuda', on a "
            f"machine that has it ({str(error).splitlines()[0][:100]})"
        ) from error
    return device


def pick_solver_device(name: str = "auto") -> torch.device:
    """Like `pick_device`, for solvers: these need float64, which Apple's GPUs lack."""
    device = pick_device(name)
    return torch.device("cpu") if device.type == "mps" and name == "auto" else device


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one CPU core while inside.

    Small models gain nothing from more cores. With several threads they run up to twenty times
    slower when another program keeps a core busy: every operation waits for the slowest thread.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def is_shared(device: torch.device) -> bool:
    """Whether other runs use the device at the same time, as the environment says."""
    return SHARING in os.environ or (device.type == "cuda" and MPS in os.environ)


def hardware(device: torch.device, shared: bool = False) -> str:
    """A description of the device, for records.

    The times of runs that share a device depend on the other runs, so the description says so.

    Args:
        device: the device.
        shared: whether it was shared at an earlier time, although it may not be now.

    >>> hardware(torch.device("cpu"), shared=True)
    'CPU, ... thread..., shared'
    """
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        threads = torch.get_num_threads()
        name = f"{device.type.upper()}, {threads} thread{'s' if threads > 1 else ''}"
    if not (shared or is_shared(device)):
        return name
    return f"{name}, {SHARED}" + " (MPS)" * (device.type == "cuda" and MPS in os.environ)
