"""Which device to compute on."""

from __future__ import annotations

import torch


def pick_device(name: str = "auto") -> torch.device:
    """The device called `name`; "auto" is CUDA if there is one, else Apple's GPU, else the CPU.

    >>> pick_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"cannot compute on {name!r}: expected 'auto', 'cpu', 'mps' or 'cuda', on a machine "
            f"that has it ({str(error).splitlines()[0]})"
        ) from error
    return device


def hardware(device: torch.device) -> str:
    """The device in words, for records."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {torch.get_num_threads()} threads"
