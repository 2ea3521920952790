"""Everything that a training run needs and changes, in one dataclass, and its checkpoints.

A checkpoint is one safetensors file: weights, their moving average, optimiser state and generators
as tensors; step counters, learning curve and identity as JSON in its metadata. A run resumed from
it continues bit-for-bit on the same hardware.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lno.data import Fields
from lno.data.normalize import Normalizers
from lno.data.symmetry import RandomSymmetry, Symmetry
from lno.files import replacing, require_signature
from lno.models.model import Model
from lno.tasks import Task
from lno.training.distributed import SINGLE, Processes
from lno.training.optim import OPTIMIZERS, Optimizer
from lno.training.recipe import Recipe

KEEP = 2  # checkpoints: the older one is the fallback if the newer one is damaged
METADATA_KEY = "lno.checkpoint"
SAVED_NUMBERS = (
    "step",
    "total_steps",
    "compiled",
    "seconds",
    "compile_seconds",
    "peak_memory",
    "recent",
)


@dataclass(frozen=True)
class Point:
    """One point of the learning curve."""

    step: int
    seconds: float
    losses: list[float]  # one per member
    errors: list[float] | None  # validation errors, one per member; None without validation samples

    @property
    def loss(self) -> float:
        """The mean loss of the members."""
        return sum(self.losses) / len(self.losses)

    @property
    def error(self) -> float | None:
        """The mean validation error of the members."""
        return None if self.errors is None else sum(self.errors) / len(self.errors)

    def row(self) -> dict[str, Any]:
        """As plain data, with the numbers of each member if there are several."""
        row = {"step": self.step, "seconds": self.seconds, "loss": self.loss, "error": self.error}
        return (
            row if len(self.losses) == 1 else {**row, "losses": self.losses, "errors": self.errors}
        )


@dataclass
class Training:
    """A training run.

    Args:
        models: the models to train, in place. Several models of one kind (members of an ensemble,
            each from its own seed) share a GPU that one of them would leave idle.
        task, normalizers, recipe: how to train.
        data: training samples, prepared by the task.
        validation: validation samples, prepared by the task; None: no validation.
        device: where to train.
        seed: of the order of samples and all random draws; member k uses seed + k.
        precision: one of `PRECISIONS`.
        processes: the processes that share the work.
        symmetries: of the problem; every sample of a step is transformed by a random one.
    """

    models: Sequence[Model]
    task: Task
    normalizers: Normalizers
    recipe: Recipe
    data: Fields
    validation: Fields | None
    device: torch.device
    seed: int
    precision: str = "fp32"
    processes: Processes = SINGLE
    symmetries: Sequence[Symmetry] = ()
    step: int = 0  # steps taken so far
    total_steps: int = 0  # of the whole run; 0: as many as the recipe's epochs have
    compiled: bool | None = None  # whether steps on a GPU are compiled; None: if the run is long
    seconds: float = 0.0  # of training, without compilation and validation
    compile_seconds: float = 0.0
    peak_memory: int = 0  # bytes on a GPU, without the resident data
    curve: list[Point] = field(default_factory=list)
    recent: list[list[float]] = field(default_factory=list)  # losses since the curve's last point

    def __post_init__(self) -> None:
        recipe = self.recipe
        self.total_steps = self.total_steps or recipe.epochs * self.steps_per_epoch
        self.grid = self.data.spec.grid
        for model in self.models:
            self.processes.prepare(model)
        self.random_symmetry: RandomSymmetry | None = None
        if self.symmetries:
            self.random_symmetry = RandomSymmetry(self.symmetries, self.data, self.normalizers)
        self.seeds = range(self.seed, self.seed + len(self.models))
        self.generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        self._order = (-1, torch.empty(0, dtype=torch.int64))  # an epoch, and its order of samples
        self.optimizer = Optimizer(
            self.models,
            OPTIMIZERS[recipe.optimizer],
            recipe.weight_decay,
            recipe.decay_all,
            recipe.beta2,
            recipe.ema,
        )

    @property
    def steps_per_epoch(self) -> int:
        """Steps in one pass over the data; the last batch may be smaller."""
        return -(-len(self.data) // self.recipe.batch)

    @property
    def next_batch_is_full(self) -> bool:
        """Whether the next batch has the recipe's size; the last one of an epoch may be smaller."""
        last = (self.step + 1) % self.steps_per_epoch == 0
        return not last or self.steps_per_epoch == 1 or len(self.data) % self.recipe.batch == 0

    def samples_at(self, step: int) -> Tensor:
        """Indices (members, b) of the samples of a step.

        The order of an epoch depends on the seed and the epoch alone. So the next batch is known
        ahead, and a resumed run has no order to restore.
        """
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            orders = [
                np.random.default_rng([seed, 2, epoch]).permutation(len(self.data))
                for seed in self.seeds
            ]
            self._order = (epoch, torch.from_numpy(np.stack(orders)))
        start = position * self.recipe.batch
        return self._order[1][:, start : start + self.recipe.batch]

    # -- weights ---------------------------------------------------------------------------------

    @contextmanager
    def predicting(self) -> Iterator[None]:
        """Put the models into evaluation mode, with the moving average of their weights if any."""
        values, average = self.optimizer.values, self.optimizer.average
        kept = None if average is None else values.clone()
        if average is not None:
            values.copy_(average)
        self._set_mode(training=False)
        try:
            yield
        finally:
            self._set_mode(training=True)
            if kept is not None:
                values.copy_(kept)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Undo all steps taken inside: weights, optimiser, generators and counter, bit-for-bit."""
        tensors = {name: value.clone() for name, value in self._tensors().items()}
        step = self.step
        try:
            yield
        finally:
            self._set_tensors(tensors)
            self.step = step

    def end(self) -> Sequence[Model]:
        """End the run: the weights leave the optimiser's buffer. Returns the trained models."""
        with self.predicting():
            for parameter in (p for own in self.optimizer.parameters for p in own):
                parameter.data = parameter.data.clone()
        for model in self.models:
            self.processes.release(model)
        self._set_mode(training=False)
        return self.models

    def _set_mode(self, training: bool) -> None:
        for model in self.models:
            model.train(training)

    # -- checkpoints -----------------------------------------------------------------------------

    def save(self, folder: str | Path, identity: dict[str, Any]) -> Path:
        """Write a checkpoint atomically, and remove all but the last two."""
        record = {name: getattr(self, name) for name in SAVED_NUMBERS}
        record["curve"] = [asdict(point) for point in self.curve]
        path = Path(folder) / f"checkpoint-{self.step:09d}.safetensors"
        metadata = {METADATA_KEY: json.dumps({"identity": identity, **record})}
        with replacing(path) as temporary:
            tensors = {k: v.detach().cpu().contiguous() for k, v in self._tensors().items()}
            save_file(tensors, temporary, metadata)
        for old in sorted(Path(folder).glob("checkpoint-*.safetensors"))[:-KEEP]:
            old.unlink(missing_ok=True)
        return path

    def resume(self, folder: str | Path, identity: dict[str, Any]) -> Path | None:
        """Continue from the newest intact checkpoint in `folder`; None if there is none.

        Raises if the checkpoint belongs to a different run, naming the difference.
        """
        for path in sorted(Path(folder).glob("checkpoint-*.safetensors"), reverse=True):
            try:
                record, tensors = _read(path)
                curve = [Point(**row) for row in record["curve"]]
            except (ValueError, SafetensorError, OSError, KeyError, TypeError):
                continue  # damaged: try the one before
            _require_same(path, record["identity"], identity)
            shapes = [{k: v.shape for k, v in own.items()} for own in (tensors, self._tensors())]
            if shapes[0] == shapes[1]:
                self._set_tensors(tensors)
                for name in SAVED_NUMBERS:
                    setattr(self, name, record[name])
                self.curve = curve
                return path
        return None

    def _tensors(self) -> dict[str, Tensor]:
        """All tensors of a checkpoint, by name."""
        tensors = {
            f"model.{k}.{name}": v
            for k, model in enumerate(self.models)
            for name, v in model.state_dict().items()
        }
        tensors |= {f"optimizer.{name}": v for name, v in self.optimizer.state()}
        return tensors | {f"generator.{k}": g.get_state() for k, g in enumerate(self.generators)}

    def _set_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Copy the tensors of a checkpoint into models, optimiser and generators, in place."""
        for k, model in enumerate(self.models):
            own = f"model.{k}."
            model.load_state_dict(
                {name.removeprefix(own): v for name, v in tensors.items() if name.startswith(own)}
            )
        for name, values in self.optimizer.state():
            values.copy_(tensors[f"optimizer.{name}"])
        for k, generator in enumerate(self.generators):
            generator.set_state(tensors[f"generator.{k}"])


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    require_signature(path, b"{", 8, "a checkpoint written by lno")
    with safe_open(path, framework="pt") as file:
        record = json.loads((file.metadata() or {})[METADATA_KEY])
        missing = {*SAVED_NUMBERS, "curve", "identity"} - set(record)
        if missing or not isinstance(record["identity"], dict):
            raise ValueError("not the state of a run")
        return record, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _require_same(path: Path, saved: dict[str, Any], current: dict[str, Any]) -> None:
    current = json.loads(json.dumps(current))
    for key in {**current, **saved}:
        a, b = saved.get(key), current.get(key)
        if a == b:
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            inner = next(k for k in sorted({*a, *b}) if a.get(k) != b.get(k))
            key, a, b = f"{key}.{inner}", a.get(inner), b.get(inner)
        raise ValueError(
            f"cannot resume from {path}: {key} was {a!r} there and is {b!r} now. Set it back, or "
            "train into another folder."
        )
