"""Processes that a command starts: they leave Ctrl-C and SIGTERM to it, and end when it does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any


def start(
    work: Callable[..., None], *arguments: Any, name: str, daemon: bool
) -> tuple[SpawnProcess, Connection]:
    """Start a process that calls `work(pipe, *arguments)`; returns it and our end of the pipe.

    Args:
        work: a function at the top level of a module.
        arguments: further arguments, which are sent to the process.
        name: of the process.
        daemon: whether it may start no processes itself.
    """
    # Not by fork: a copy of a process with threads, such as torch's, may hang.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, *arguments), name=name, daemon=daemon)
    try:
        process.start()
    finally:
        theirs.close()  # else the end of the process would not be seen as the end of its messages
    return process, ours


def end_with_parent() -> None:
    """Have this process end when the one that started it does, whatever ended that."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def how_it_ended(process: SpawnProcess) -> str:
    """How a process ended that said nothing, in words."""
    code = process.exitcode or 0
    if code < 0:
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"ended with exit code {code}"


@contextmanager
def signals_kept_from_children() -> Iterator[None]:
    """Processes started inside never see Ctrl-C or SIGTERM, not even while they start.

    A terminal sends Ctrl-C to all processes of a command, and a cluster may do so with SIGTERM.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # its start would undo what follows
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
