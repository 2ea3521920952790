"""A training run and everything around the loop: checkpoints, progress, signals, time limits."""

from __future__ import annotations

import hashlib
import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn

from lno import tasks
from lno.config import to_dict
from lno.data import Fields
from lno.files import owning, remove, remove_leftovers, require_folder, write_text
from lno.text import percent
from lno.training.best import best_steps
from lno.training.budget import COMPILE_FROM_MINUTES, fit_to_budget, warn_if_late
from lno.training.device import hardware, is_shared
from lno.training.loop import Progress, curve_rows, train
from lno.training.progress import progress
from lno.training.samples import Samples
from lno.training.state import Point, Training
from lno.training.step import Step
from lno.version import __version__


def run(
    training: Training,
    kind: str,
    digest: str,
    folder: str | Path | None = None,
    resume: bool = False,
    minutes: float | None = None,
    pause_after: float | None = None,
    show: bool = True,
    tensorboard: bool = False,
) -> bool:
    """Train, and return whether the run is finished; see `lno.Operator.fit`.

    Args:
        training: the run, at its beginning.
        kind: the name of the model.
        digest: of the training data.
        folder: where to keep checkpoints and `metrics.jsonl`; None: nowhere.
        resume: continue from the last checkpoint in `folder`.
        minutes: a time budget, compilation included: a new run gets as many steps as fit into it.
            A resumed run keeps the number that was chosen when it began.
        pause_after: minutes after which the run stops early, ready to resume.
        show: show progress.
        tensorboard: write the learning curve for TensorBoard.
    """
    start = perf_counter()
    pause_at = None if pause_after is None else start + 60 * pause_after
    with ExitStack() as stack:
        checkpoint: Callable[[], None] = _no_checkpoint
        interrupted: Callable[[], bool] = _never
        if folder is None:
            if resume or tensorboard:
                what = "resume" if resume else "tensorboard"
                raise ValueError(f"{what} needs the folder of the run: pass folder=...")
        else:
            folder = require_folder(folder)
            if training.processes.is_main:
                stack.enter_context(owning(folder))
            identity = identify(training, kind, digest)
            open_folder(folder, training, identity, resume)
            interrupted = stack.enter_context(stop_signals())
            show_point = stack.enter_context(tensorboard_writer(folder, training, tensorboard))
            checkpoint = partial(save, training, folder, identity, show_point)
        training.shared |= is_shared(training.device)  # or before it was resumed
        if minutes is not None and not resume:
            training.compiled = minutes >= COMPILE_FROM_MINUTES
        samples = Samples(training.data, training.normalizers, training.device)
        take_step = Step(training)
        if minutes is not None and not resume:
            fit_to_budget(training, take_step, samples, checkpoint, start + 60 * minutes)
        show = show and training.processes.is_main
        update = stack.enter_context(
            progress("training", training.total_steps, show, training.step)
        )

        def report(now: Progress) -> None:
            update(now.step, status(now, training))

        def should_stop() -> bool:
            return interrupted() or (pause_at is not None and perf_counter() >= pause_at)

        finished = train(training, take_step, samples, report, checkpoint, should_stop)
    if finished and minutes is not None and not resume and training.processes.is_main:
        warn_if_late(perf_counter() - start, minutes)
    return finished


def open_folder(folder: Path, training: Training, identity: dict[str, Any], resume: bool) -> None:
    """Resume the run in a folder, or make sure that the folder holds none."""
    if training.processes.is_main:  # which owns the folder
        remove_leftovers(folder, lambda name: name.startswith("."))
        for path in folder.glob(".tmp??????"):  # of safetensors
            remove(path)
    existing = sorted(folder.glob("checkpoint-*.safetensors"))
    if resume:
        if training.resume(folder, identity) is None:
            raise FileNotFoundError(f"{folder} has no intact checkpoint to resume from")
    elif existing:
        raise FileExistsError(
            f"{folder} already holds a run ({existing[-1].name}): resume it, or choose another "
            "folder"
        )


def save(
    training: Training, folder: Path, identity: dict[str, Any], show_point: Callable[[Point], None]
) -> None:
    """Write a checkpoint, and at a new point of the learning curve the curve as well."""
    if not training.processes.is_main:
        return
    try:
        if training.curve and training.curve[-1].step == training.step:
            rows = (json.dumps(row) for row in curve_rows(training.curve))
            write_text(folder / "metrics.jsonl", "".join(f"{row}\n" for row in rows))
            show_point(training.curve[-1])
        training.save(folder, identity)
    except OSError as error:
        kept = any(folder.glob("checkpoint-*.safetensors"))
        advice = (
            "The checkpoints before it are intact: make room and resume the run."
            if kept
            else "There is no checkpoint yet: make room and start the run again."
        )
        raise OSError(
            f"training stopped at step {training.step} of {training.total_steps}: {error} {advice}"
        ) from error


def identify(training: Training, kind: str, digest: str) -> dict[str, Any]:
    """Everything that must be the same for a resumed run to continue bit-for-bit."""
    return {
        "model": kind,
        "config": to_dict(training.models[0].config),
        "recipe": to_dict(training.recipe),
        "task": tasks.to_json(training.task),
        "seed": training.seed,
        "members": len(training.seeds),
        "device": training.device.type,
        "precision": training.precision,
        "symmetries": [g.name for g in training.symmetries],
        "processes": training.processes.size,
        "split": training.processes.split,
        "data": digest,
        "normalizers": training.normalizers.to_dict(),
        "initial weights": _digest(training.models),
        "validation": None if training.validation is None else training.validation.digest,
        **({"early stop": True} if training.early_stop else {}),
    }


def status(now: Progress, training: Training) -> str:
    """The text beside the progress bar; where it is narrow, the last parts are left out."""
    error = [] if now.error is None else [f"validation error {percent(now.error)}"]
    parts = [*error, f"epoch {now.epoch}", f"loss {now.loss:.4f}"]
    parts.append(f"{now.points_per_second:,.0f} points/s")
    if training.device.type == "cuda":
        parts.append(f"{torch.cuda.max_memory_allocated(training.device) / 1e9:.1f} GB")
    return "  ".join(parts)


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Catch Ctrl-C and SIGTERM while inside; the yielded function says whether one came.

    A second one raises KeyboardInterrupt at once. Only the main thread receives signals; in other
    threads nothing changes.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield _never
        return

    def receive(number: int, frame: object) -> None:
        received.append(number)
        if len(received) == 2:  # not again while the files of the run are closed
            raise KeyboardInterrupt

    old = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in old:
            signal.signal(number, receive)
        yield lambda: bool(received)
    finally:
        for number, handler in old.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def tensorboard_writer(
    folder: Path, training: Training, wanted: bool
) -> Iterator[Callable[[Point], None]]:
    """Yield a function that adds a point of the learning curve to TensorBoard, if wanted."""
    if not wanted or not training.processes.is_main:
        yield lambda point: None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError(
            "TensorBoard is not installed: pip install 'latent-neural-operator[tensorboard]'"
        ) from error
    # Hide what an interrupted run wrote after its last checkpoint: these steps are repeated.
    with SummaryWriter(str(folder / "tensorboard"), purge_step=training.step + 1) as writer:

        def show_point(point: Point) -> None:
            writer.add_scalar("loss", point.loss, point.step)
            if point.error is not None:
                writer.add_scalar("validation error", point.error, point.step)
            writer.flush()

        yield show_point


def _no_checkpoint() -> None:
    """Without a folder, nothing is saved."""


def _never() -> bool:
    return False


def _digest(models: Sequence[nn.Module]) -> str:
    """A hash of the weights."""
    digest = hashlib.sha256()
    for weight in (w for model in models for w in model.state_dict().values()):
        digest.update(weight.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def provenance(
    training: Training, used: Fields, stopped: str, init: dict[str, Any] | None
) -> dict[str, Any]:
    """How an operator was trained, for its file.

    Args:
        training: the run, at its end.
        used: the samples that it was trained on.
        stopped: why before its end; "" if it is finished.
        init: the provenance of the operator that it was fine-tuned from.
    """
    return {
        "lno": __version__,
        "torch": torch.__version__,
        "hardware": hardware(training.device, training.shared),
        "precision": training.precision,
        "data": {**used.provenance, "digest": used.digest, "samples": len(used)},
        "recipe": to_dict(training.recipe),
        "symmetries": [g.name for g in training.symmetries],
        "seed": training.seed,
        "finished": not stopped,
        **({"stopped": stopped} if stopped else {}),
        "seconds": round(training.seconds, 2),
        "compile_seconds": round(training.compile_seconds, 2),
        "peak_memory_gb": training.peak_memory / 1e9 or None,
        "members": len(training.models),
        "steps": training.step,
        "total_steps": training.total_steps,
        "epochs": training.step / training.steps_per_epoch,
        "curve": curve_rows(training.curve),
        **({"best_steps": best_steps(training.curve)} if training.early_stop else {}),
        **({"init": init} if init is not None else {}),
    }
