"""Timing work on a GPU as training does it: captured as a CUDA graph, and replayed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

REPLAYS = 10  # between two looks at the clock
ENOUGH, MOST = 200.0, 20  # milliseconds in all, and looks


def captured_milliseconds(step: Callable[[], Any], device: torch.device) -> float:
    """The median time of a step that was run twice before; on a CPU, the time of one call."""
    if device.type == "cpu":
        start = time.perf_counter()
        step()
        return 1000 * (time.perf_counter() - start)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # libraries allocate their workspaces
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    graph.replay()
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times: list[float] = []
    while REPLAYS * sum(times) < ENOUGH and len(times) < MOST:
        begin.record()
        for _ in range(REPLAYS):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / REPLAYS)
    return sorted(times)[len(times) // 2]
