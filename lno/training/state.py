"""Everything that a training run needs and changes, in one dataclass, and its checkpoints.

A checkpoint is one safetensors file: weights, their running mean, optimiser states and generators
as tensors; step, curve and identity as JSON in its metadata. A run that resumes from it goes on
with the same bits on the same hardware.
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
from torch import Tensor, nn

from lno.data import Fields
from lno.data.normalize import Normalizers
from lno.data.symmetry import Orbit, Symmetry
from lno.files import replacing, require_signature
from lno.tasks import Task
from lno.training.distributed import ALONE, Team
from lno.training.optim import OPTIMIZERS, Optimizer
from lno.training.recipe import Recipe

KEEP = 2  # checkpoints; the second is there for the day when the first is damaged
KEY = "lno.checkpoint"
KEPT = ("step", "seconds", "compile_seconds", "peak_memory", "recent")


@dataclass(frozen=True)
class Point:
    """One point of the learning curve."""

    step: int
    seconds: float
    losses: list[float]  # of each member
    errors: list[float] | None  # of each on the validation part, None where there is none

    @property
    def loss(self) -> float:
        """The mean loss of the members."""
        return sum(self.losses) / len(self.losses)

    @property
    def error(self) -> float | None:
        """The mean error of the members."""
        return None if self.errors is None else sum(self.errors) / len(self.errors)

    def row(self) -> dict[str, Any]:
        """As plain data, with what each member did where there are several."""
        row = {"step": self.step, "seconds": self.seconds, "loss": self.loss, "error": self.error}
        return (
            row if len(self.losses) == 1 else {**row, "losses": self.losses, "errors": self.errors}
        )


@dataclass
class Training:
    """A training run.

    Args:
        models: what is trained, in place: several of one kind, each from a seed of its own, share
            the time of a GPU that one of them would leave idle.
        task, normalizers, recipe: how.
        data: training samples, prepared by the task.
        validation: samples to watch the error on, prepared; None: none.
        device: where.
        seed: of the order of samples and all draws; member k has seed + k.
        precision: what a step is computed in.
        team: the processes that share it.
        symmetries: of the problem; every sample of a step is a random image of it.
    """

    models: Sequence[nn.Module]
    task: Task
    normalizers: Normalizers
    recipe: Recipe
    data: Fields
    validation: Fields | None
    device: torch.device
    seed: int
    precision: str = "fp32"
    team: Team = ALONE
    symmetries: Sequence[Symmetry] = ()
    step: int = 0
    seconds: float = 0.0  # of training, without compilation and validation
    compile_seconds: float = 0.0
    peak_memory: int = 0  # bytes on a GPU, resident data apart
    curve: list[Point] = field(default_factory=list)
    recent: list[list[float]] = field(default_factory=list)  # losses since the curve's last point

    def __post_init__(self) -> None:
        recipe = self.recipe
        for model in self.models:
            self.team.prepare(model)
        self.orbit: Orbit | None = None
        if self.symmetries:
            self.orbit = Orbit(self.symmetries, self.data, self.normalizers)
        self.seeds = range(self.seed, self.seed + len(self.models))
        self.generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        self._order = (-1, torch.empty(0, dtype=torch.int64))  # an epoch, and its order of samples
        rule = OPTIMIZERS[recipe.optimizer]
        self.optimizer = Optimizer(
            self.models,
            rule,
            recipe.weight_decay,
            recipe.decay_all,
            recipe.square_beta,
            recipe.ema,
        )

    @property
    def steps_per_epoch(self) -> int:
        """Steps in a pass over the data; the last one may be smaller."""
        return -(-len(self.data) // self.recipe.batch)

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.recipe.epochs * self.steps_per_epoch

    @contextmanager
    def predicting(self) -> Iterator[None]:
        """Inside, the weights of the models are their running mean if there is one."""
        values, mean = self.optimizer.values, self.optimizer.mean
        kept = None if mean is None else values.clone()
        if mean is not None:
            values.copy_(mean)
        self._set_mode(training=False)
        try:
            yield
        finally:
            self._set_mode(training=True)
            if kept is not None:
                values.copy_(kept)

    def end(self) -> Sequence[nn.Module]:
        """The trained models. Their weights leave the optimiser's buffer, so the run is over."""
        with self.predicting():
            for parameter in (p for own in self.optimizer.parameters for p in own):
                parameter.data = parameter.data.clone()
        for model in self.models:
            self.team.release(model)
        self._set_mode(training=False)
        return self.models

    def _set_mode(self, training: bool) -> None:
        for model in self.models:
            model.train(training)

    @property
    def full(self) -> bool:
        """Whether the next step has a batch of full size; the last of an epoch may be smaller."""
        last = (self.step + 1) % self.steps_per_epoch == 0
        return not last or self.steps_per_epoch == 1 or len(self.data) % self.recipe.batch == 0

    def samples_at(self, step: int) -> Tensor:
        """Indices (members, b) of the samples of a step.

        Each epoch has an order of its own, a function of seed and epoch alone: what comes next can
        be read ahead, and a run that resumes has no order to restore.
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

    # -- checkpoints -----------------------------------------------------------------------------

    def save(self, folder: str | Path, identity: dict[str, Any]) -> Path:
        """Write a checkpoint, atomically, and remove all but the last two."""
        told = {key: getattr(self, key) for key in KEPT}
        told["curve"] = [asdict(point) for point in self.curve]
        path = Path(folder) / f"checkpoint-{self.step:09d}.safetensors"
        metadata = {KEY: json.dumps({"identity": identity, **told})}
        with replacing(path) as temporary:
            plain = {k: v.detach().cpu().contiguous() for k, v in self._tensors().items()}
            save_file(plain, temporary, metadata)
        for old in sorted(Path(folder).glob("checkpoint-*.safetensors"))[:-KEEP]:
            old.unlink(missing_ok=True)
        return path

    def resume(self, folder: str | Path, identity: dict[str, Any]) -> Path | None:
        """Continue from the newest whole checkpoint in `folder`; None if there is none.

        Raises if it belongs to another run, naming what differs.
        """
        for path in sorted(Path(folder).glob("checkpoint-*.safetensors"), reverse=True):
            try:
                told, tensors = _read(path)
                curve = [Point(**row) for row in told["curve"]]
            except (ValueError, SafetensorError, OSError, KeyError, TypeError):
                continue  # damaged: the one before it is whole
            _require_same(path, told["identity"], identity)
            shapes = [{k: v.shape for k, v in own.items()} for own in (tensors, self._tensors())]
            if shapes[0] == shapes[1]:
                self._restore(told, tensors)
                self.curve = curve
                return path
        return None

    def _tensors(self) -> dict[str, Tensor]:
        """Everything of a checkpoint that is not a plain number."""
        tensors = {
            f"model.{k}.{name}": v
            for k, model in enumerate(self.models)
            for name, v in model.state_dict().items()
        }
        tensors |= {f"optimizer.{name}": v for name, v in self.optimizer.state()}
        return tensors | {f"generator.{k}": g.get_state() for k, g in enumerate(self.generators)}

    def _restore(self, told: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        for k, model in enumerate(self.models):
            own = f"model.{k}."
            model.load_state_dict(
                {name.removeprefix(own): v for name, v in tensors.items() if name.startswith(own)}
            )
        for name, values in self.optimizer.state():
            values.copy_(tensors[f"optimizer.{name}"])
        for k, generator in enumerate(self.generators):
            generator.set_state(tensors[f"generator.{k}"])
        for key in KEPT:
            setattr(self, key, told[key])


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    require_signature(path, b"{", 8, "a checkpoint written by lno")
    with safe_open(path, framework="pt") as file:
        told = json.loads((file.metadata() or {})[KEY])
        missing = {*KEPT, "curve", "identity"} - set(told)
        if missing or not isinstance(told["identity"], dict):
            raise ValueError("not the state of a run")
        return told, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _require_same(path: Path, there: dict[str, Any], here: dict[str, Any]) -> None:
    here = json.loads(json.dumps(here))
    for key in {**here, **there}:
        a, b = there.get(key), here.get(key)
        if a == b:
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            inner = next(k for k in sorted({*a, *b}) if a.get(k) != b.get(k))
            key, a, b = f"{key}.{inner}", a.get(inner), b.get(inner)
        raise ValueError(
            f"cannot resume from {path}: {key} was {a!r} there and is {b!r} now. Set it back, or "
            "train into another folder."
        )
