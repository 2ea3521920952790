"""Everything that a training run needs and changes, in one dataclass, and its checkpoints.

A checkpoint is one safetensors file: weights and statistics of the models, their moving average,
optimiser state and generators as tensors; step counters, learning curve and identity as JSON in its
metadata, with a digest of the whole file (`lno.files.seal`). A run resumed from it continues
bit-for-bit on the same hardware; a damaged one is passed over for the one before it.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save_file
from torch import Tensor

from lno import limits
from lno.config import from_dict, require_count, require_type
from lno.data import Fields, columns
from lno.data.normalize import Normalizers
from lno.data.symmetry import RandomSymmetry, Symmetry
from lno.files import UNSEALED, parse_json, read_sealed, replacing, seal, system_error
from lno.models.model import Model
from lno.tasks import Task
from lno.training.best import Best
from lno.training.distributed import SINGLE, Processes
from lno.training.optim import OPTIMIZERS, Optimizer
from lno.training.order import epoch_order
from lno.training.recipe import Recipe
from lno.training.statistics import Statistics

KEEP = 2  # checkpoints: the older one is the fallback if the newer one is damaged
METADATA_KEY, VERSION = "lno.checkpoint", 3
KIND = "a checkpoint written by lno"
SAVED: dict[str, Any] = {  # attributes of a run that its checkpoints hold, besides the curve
    "step": int,
    "total_steps": int,
    "compiled": bool | None,
    "seconds": float,
    "compile_seconds": float,
    "peak_memory": int,
    "shared": bool,
    "recent": list[list[float]],
}


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
        early_stop: keep the weights with the lowest validation error.
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
    early_stop: bool = False
    step: int = 0  # steps taken so far
    total_steps: int = 0  # of the whole run; 0: as many as the recipe's epochs have
    compiled: bool | None = None  # whether steps on a GPU are compiled; None: if the run is long
    seconds: float = 0.0  # of training, without compilation and validation
    compile_seconds: float = 0.0
    peak_memory: int = 0  # bytes on a GPU, without the resident data
    shared: bool = False  # whether other runs used the device at some time
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
        self._sizes: np.ndarray | None = None
        if self.data.is_ragged:
            n, q = (columns.sizes(c, len(self.data)) for c in (self.data.x, self.data.x_query))
            self._sizes = n + q
        self.best = Best(self.models) if self.early_stop else None
        self.optimizer = Optimizer(
            self.models,
            OPTIMIZERS[recipe.optimizer],
            recipe.weight_decay,
            recipe.decay_all,
            recipe.beta2,
            recipe.ema,
        )
        self.statistics = Statistics(self.models, recipe.ema)
        self._set_mode(training=True)  # models to fine-tune come in evaluation mode

    @property
    def epoch_samples(self) -> int:
        """How many samples an epoch has: a task may visit each of them several times."""
        return len(self.data) * self.task.visits

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch; the last batch may be smaller."""
        return -(-self.epoch_samples // self.recipe.batch)

    @property
    def next_batch_is_full(self) -> bool:
        """Whether the next batch has the recipe's size; the last one of an epoch may be smaller."""
        last = (self.step + 1) % self.steps_per_epoch == 0
        even = self.epoch_samples % self.recipe.batch == 0
        return not last or self.steps_per_epoch == 1 or even

    def samples_at(self, step: int) -> Tensor:
        """Indices (members, b) of the samples of a step.

        The order of an epoch depends on the seed and the epoch alone. So the next batch is known
        ahead, and a resumed run has no order to restore.
        """
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            count, batch = self.epoch_samples, self.recipe.batch
            generators = (np.random.default_rng([seed, 2, epoch]) for seed in self.seeds)
            orders = [epoch_order(random, count, batch, self._sizes) for random in generators]
            self._order = (epoch, torch.from_numpy(np.stack(orders) % len(self.data)))
        start = position * self.recipe.batch
        return self._order[1][:, start : start + self.recipe.batch]

    # -- weights ---------------------------------------------------------------------------------

    @contextmanager
    def predicting(self) -> Iterator[None]:
        """Put the models into evaluation mode, with the moving average of their state if any."""
        values, average = self.optimizer.values, self.optimizer.average
        kept = None if average is None else values.clone()
        with self.statistics.restored():
            if average is not None:
                values.copy_(average)
                self.statistics.use_average()
            self._set_mode(training=False)
            try:
                yield
            finally:
                self._set_mode(training=True)
                if kept is not None:
                    values.copy_(kept)

    def keep_best(self) -> None:
        """With early stopping: keep the weights that predict, where their error is the lowest."""
        if self.best is not None:
            with self.predicting():
                self.best.keep(self.models, self.curve)

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
        self.statistics.use_average()
        if self.best is not None and self.curve:
            self.best.put_back(self.models)
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
        record = {name: getattr(self, name) for name in SAVED}
        record["curve"] = [asdict(point) for point in self.curve]
        path = Path(folder) / f"checkpoint-{self.step:09d}.safetensors"
        head = {"digest": UNSEALED, "version": VERSION, "identity": identity}
        with replacing(path) as temporary:
            tensors = {k: v.detach().cpu().contiguous() for k, v in self._tensors().items()}
            try:
                save_file(tensors, temporary, {METADATA_KEY: json.dumps({**head, **record})})
                seal(temporary)
            except SafetensorError as error:
                raise system_error(error) from error
        for old in sorted(Path(folder).glob("checkpoint-*.safetensors"))[:-KEEP]:
            old.unlink(missing_ok=True)
        return path

    def resume(self, folder: str | Path, identity: dict[str, Any]) -> Path | None:
        """Continue from the newest intact checkpoint in `folder`; None if there is none.

        Warns of those that are damaged. Raises if the checkpoint belongs to a different run, naming
        the difference, or to another version of lno.
        """
        for path in sorted(Path(folder).glob("checkpoint-*.safetensors"), reverse=True):
            try:
                record, tensors = _read(path)
                record.setdefault("shared", False)  # older ones do not say
                _require_version(path, record)
                _require_same(path, record["identity"], identity)
                curve = self._check(path, record, tensors)
            except _DamagedError as error:
                warnings.warn(f"{path} is damaged and was passed over: {error}", stacklevel=2)
                continue
            self._set_tensors(tensors)
            for name in SAVED:
                setattr(self, name, record[name])
            self.curve = curve
            return path
        return None

    def _check(self, path: Path, record: dict[str, Any], tensors: dict[str, Tensor]) -> list[Point]:
        """Raise unless a checkpoint can be one of this run; returns its learning curve."""
        own = self._tensors()
        for name in sorted({*own, *tensors}):
            sizes = [(tuple(t[name].shape), t[name].dtype) for t in (own, tensors) if name in t]
            if len(sizes) < 2 or sizes[0] != sizes[1]:
                raise _DamagedError(f"{name}: expected {sizes[0] if name in own else 'nothing'}")
        for name, values in tensors.items():
            if values.is_floating_point() and not values.isfinite().all():
                raise _DamagedError(f"{name} is not finite")
        members = len(self.models)
        try:
            for name, kind in SAVED.items():
                require_type(name, record.get(name), kind)
            require_count("total_steps", record["total_steps"], limits.STEPS)
            require_count("step", record["step"], record["total_steps"], least=0)
            if path.stem != f"checkpoint-{record['step']:09d}":
                raise ValueError(f"the name is not that of step {record['step']}")
            require_type("curve", record.get("curve"), list[dict[str, Any]])
            curve = [from_dict(Point, row) for row in record["curve"]]
            steps = [point.step for point in curve]
            if steps != sorted(set(steps)) or not all(1 <= k <= record["step"] for k in steps):
                raise ValueError(f"curve: expected increasing steps up to {record['step']}")
            rows = [row for p in curve for row in (p.losses, p.errors) if row is not None]
            for row in (*rows, *record["recent"]):
                if len(row) != members or not all(map(math.isfinite, row)):
                    raise ValueError(f"expected finite numbers of {members} members, got {row}")
            for name in ("seconds", "compile_seconds", "peak_memory"):
                if not 0 <= record[name] < math.inf:
                    raise ValueError(f"{name}: expected a finite number, got {record[name]}")
            for k in range(members):
                torch.Generator().set_state(tensors[f"generator.{k}"])
        except (ValueError, RuntimeError) as error:
            raise _DamagedError(str(error)) from error
        return curve

    def _tensors(self) -> dict[str, Tensor]:
        """All tensors of a checkpoint, by name."""
        tensors = {
            f"model.{k}.{name}": v
            for k, model in enumerate(self.models)
            for name, v in model.state_dict().items()
        }
        tensors |= {f"optimizer.{name}": v for name, v in self.optimizer.state()}
        tensors |= {f"statistics.{k}": v for k, v in enumerate(self.statistics.average)}
        tensors |= {} if self.best is None else self.best.tensors()
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
        for k, values in enumerate(self.statistics.average):
            values.copy_(tensors[f"statistics.{k}"])
        for k, generator in enumerate(self.generators):
            generator.set_state(tensors[f"generator.{k}"])
        if self.best is not None:
            self.best.set_tensors(tensors)


class _DamagedError(Exception):
    """A checkpoint that cannot be resumed from."""


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        file = read_sealed(path, KIND)
        record = parse_json(file.metadata.get(METADATA_KEY, ""), finite=False)
        require_type("metadata", record, dict[str, Any])
        if not file.intact and {"version", "digest"} & set(record):  # version 1 had neither
            raise ValueError("its content does not match its digest")
        require_type("identity", record.get("identity"), dict[str, Any])
        return record, load_tensors(file.data)
    except (ValueError, SafetensorError, OSError, KeyError) as error:
        raise _DamagedError(str(error)) from error


def _require_version(path: Path, record: dict[str, Any]) -> None:
    found = record.get("version", 1)
    if found != VERSION:
        raise ValueError(
            f"cannot resume from {path}: it was written in format version {found!r}, this lno "
            f"reads version {VERSION}. Use the version of lno that wrote it, or train into another "
            "folder."
        )


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
