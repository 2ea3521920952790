"""A run with everything around it: progress, checkpoints, metrics, signals, a time limit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lno import tasks
from lno.config import to_dict
from lno.files import require_folder, write_text
from lno.training.loop import Progress, curve_rows, stop_signals, train
from lno.training.progress import progress
from lno.training.state import Point, Training


def run(
    training: Training,
    kind: str,
    data_hash: str,
    folder: str | Path | None = None,
    resume: bool = False,
    minutes: float | None = None,
    show: bool = True,
    tensorboard: bool = False,
) -> bool:
    """Train, and return whether the run is finished; see `lno.Operator.fit`."""
    show = show and training.team.leads
    if folder is None:
        if resume or tensorboard:
            what = "resume" if resume else "tensorboard"
            raise ValueError(f"{what} needs the folder of the run: pass folder=...")
        with progress("training", training.steps, show, training.step) as update:

            def show_step(now: Progress) -> None:
                update(now.step, status(now, training))

            return train(training, show_step, minutes=minutes)
    folder = require_folder(folder)
    if training.team.leads:
        for left in folder.glob(".checkpoint-*.tmp"):  # by a process that was killed
            left.unlink(missing_ok=True)
    identity = identify(training, kind, data_hash)
    existing = sorted(folder.glob("checkpoint-*.safetensors"))
    if resume:
        if training.resume(folder, identity) is None:
            raise FileNotFoundError(f"{folder} has no whole checkpoint to resume from")
    elif existing:
        raise FileExistsError(
            f"{folder} holds a run already ({existing[-1].name}): resume it, or choose another "
            "folder"
        )
    with (
        progress("training", training.steps, show, training.step) as update,
        stop_signals() as stopped,
        board(folder / "tensorboard", training, tensorboard) as show_point,
    ):

        def report(now: Progress) -> None:
            update(now.step, status(now, training))

        def checkpoint() -> None:
            if not training.team.leads:
                return
            if training.curve and training.curve[-1].step == training.step:
                rows = (json.dumps(row) for row in curve_rows(training.curve))
                write_text(folder / "metrics.jsonl", "".join(f"{row}\n" for row in rows))
                show_point(training.curve[-1])
            training.save(folder, identity)

        return train(training, report, checkpoint, minutes, stopped)


@contextmanager
def board(folder: Path, training: Training, wanted: bool) -> Iterator[Callable[[Point], None]]:
    """Yield what shows a point of the learning curve in TensorBoard, or does nothing."""
    if not wanted or not training.team.leads:
        yield lambda point: None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError(
            "TensorBoard is not installed: pip install 'latent-neural-operator[tensorboard]'"
        ) from error
    # What an interrupted run wrote after its checkpoint is hidden: it comes again.
    with SummaryWriter(str(folder), purge_step=training.step + 1) as writer:

        def show_point(point: Point) -> None:
            writer.add_scalar("loss", point.loss, point.step)
            if point.error is not None:
                writer.add_scalar("validation error", point.error, point.step)
            writer.flush()

        yield show_point


def identify(training: Training, kind: str, data_hash: str) -> dict[str, Any]:
    """Everything that must be the same for a run to go on with the same bits."""
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
        "processes": training.team.size,
        "split": training.team.split,
        "data": data_hash,
        "normalizers": training.normalizers.to_dict(),
        "initial weights": _fingerprint(training.models),
        "validation": None if training.validation is None else training.validation.hash,
    }


def status(now: Progress, training: Training) -> str:
    """The line beside the progress bar."""
    error = [] if now.error is None else [f"validation error {100 * now.error:.2f} %"]
    parts = [*error, f"epoch {now.epoch}", f"loss {now.loss:.4f}"]  # the last go where it is narrow
    parts.append(f"{now.points_per_second:,.0f} points/s")
    if training.device.type == "cuda":
        parts.append(f"{torch.cuda.max_memory_allocated(training.device) / 1e9:.1f} GB")
    return "  ".join(parts)


def _fingerprint(models: Sequence[nn.Module]) -> str:
    """A hash of the weights."""
    every = hashlib.sha256()
    for weight in (w for model in models for w in model.state_dict().values()):
        every.update(weight.detach().cpu().contiguous().numpy().tobytes())
    return every.hexdigest()[:16]
