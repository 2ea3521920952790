"""Progress of long work: a bar on terminals and in notebooks, a plain line now and then elsewhere.

In a notebook, rich draws bars with ipywidgets. Without them it would show nothing but a warning, so
there are lines as well, and not in the red of stderr.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

BAR_WIDTH = 20  # columns
_hidden = False


class Update(Protocol):
    """Reports how many parts are done, with a status text."""

    def __call__(self, done: int, status: str = "") -> None: ...


@contextmanager
def hidden() -> Iterator[None]:
    """Show no progress while inside: nobody can read that of several processes at once."""
    global _hidden
    before, _hidden = _hidden, True
    try:
        yield
    finally:
        _hidden = before


@contextmanager
def progress(title: str, total: int, show: bool = True, done: int = 0) -> Iterator[Update]:
    """Yield `update(done, status)` for work of `total` parts, `done` of which are done already.

    On a terminal, and in a notebook with ipywidgets, it draws a bar with the status and the
    remaining time; elsewhere it prints a line at each tenth of the work.
    """
    console = Console(stderr=True)
    widgets = find_spec("ipywidgets") is not None
    bars = widgets if console.is_jupyter else sys.stderr.isatty()
    if not show or _hidden:
        yield lambda done, status="": None
    elif bars:
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=BAR_WIDTH),
            TextColumn("{task.fields[status]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        room = console.width - len(title) - BAR_WIDTH - len("    0:00:00 left 0:00:00 ")
        with bar:
            task = bar.add_task(title, total=total, completed=done, status="")

            def draw(done: int, status: str = "") -> None:
                shown = fitting(status or f"{done} of {total}", room)
                bar.update(task, completed=done, status=shown)

            yield draw
    else:
        yield _lines(title, total, done, sys.stdout if console.is_jupyter else sys.stderr)


def fitting(status: str, room: int) -> str:
    """The first parts of a status, separated by two spaces, as far as they fit.

    >>> fitting("epoch 3  loss 0.1  9 points/s", 20)
    'epoch 3  loss 0.1'
    """
    parts = status.split("  ")
    while len(parts) > 1 and len("  ".join(parts)) > room:
        parts.pop()
    return "  ".join(parts)


def _lines(title: str, total: int, before: int, file: TextIO) -> Update:
    start, shown = time.perf_counter(), before * 10 // total

    def update(done: int, status: str = "") -> None:
        nonlocal shown
        if done * 10 // total > shown:
            shown = done * 10 // total
            seconds = time.perf_counter() - start
            left = seconds * (total - done) / (done - before)
            status = status or f"{done} of {total}"
            line = (
                f"{title} {100 * done // total:3d} %  {status}  {seconds:.0f} s, {left:.0f} s left"
            )
            print(line, file=file, flush=True)

    return update
