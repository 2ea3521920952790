"""Showing how long work goes on: a live line on a terminal, a plain line now and then in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Update = Callable[[int, str], None]


@contextmanager
def progress(title: str, total: int, show: bool = True) -> Iterator[Update]:
    """Yield `update(done, status)` for work of `total` parts.

    On a terminal it draws a bar with the status and the time left; elsewhere it prints a line at
    each tenth of the work.
    """
    if not show:
        yield lambda done, status: None
    elif sys.stderr.isatty():
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            TextColumn("{task.fields[status]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        with bar:
            task = bar.add_task(title, total=total, status="")
            yield lambda done, status: bar.update(task, completed=done, status=status)
    else:
        yield _lines(title, total)


def _lines(title: str, total: int) -> Update:
    start, shown = time.perf_counter(), 0

    def update(done: int, status: str) -> None:
        nonlocal shown
        if done * 10 // total > shown:
            shown = done * 10 // total
            seconds = time.perf_counter() - start
            left = seconds * (total - done) / done
            line = (
                f"{title} {100 * done // total:3d} %  {status}  {seconds:.0f} s, {left:.0f} s left"
            )
            print(line, file=sys.stderr, flush=True)

    return update
