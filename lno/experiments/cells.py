"""Runs of the ledger: what decides one, training those that are missing, and recording them.

A cell of a table is one set-up, with a run for each seed. Seeds train together as members, which is
faster than one after the other. Nothing of the test samples decides anything: all of the training
split is trained on, and the last model is the one that is tested.

Trained operators are kept in the cache folder. Tables are made from the ledger alone, but a run may
go on from the operators of other cells: these are trained again where they are not kept any more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lno import tasks
from lno.config import to_dict
from lno.data import Fields
from lno.experiments.datasets import PROTOCOLS, cache_folder, dataset
from lno.experiments.presets import Preset, preset
from lno.experiments.train import symmetries_of
from lno.files import replacing
from lno.ledger import Run, commit
from lno.metrics import METRICS
from lno.operator import Operator
from lno.tasks import Rollout
from lno.training.precision import pick_precision

MODEL = "model.safetensors"


@dataclass(frozen=True)
class Cell:
    """A set-up that is run from several seeds.

    >>> Cell("darcy", "lno", "paper", 500, "tf32").name(2)
    'paper-500-tf32-seed2'
    """

    problem: str
    model: str
    recipe: str  # the name of a preset
    epochs: int
    precision: str
    protocol: str = "standard"

    def name(self, seed: int | str) -> str:
        """What the run of a seed is called; with "*", a pattern of the runs of all."""
        protocol = "" if self.protocol == "standard" else f"{self.protocol}-"
        return f"{protocol}{self.recipe}-{self.epochs}-{self.precision}-seed{seed}"

    def path(self, results: Path, seed: int) -> Path:
        """Where the run of a seed is kept."""
        return results / self.problem / self.model / f"{self.name(seed)}.json"

    def runs(self, results: Path, seeds: Sequence[int]) -> dict[int, Run]:
        """The runs that there are, by seed."""
        paths = {seed: self.path(results, seed) for seed in seeds}
        return {seed: Run.load(path) for seed, path in paths.items() if path.exists()}

    def missing(self, results: Path, seeds: Sequence[int]) -> list[int]:
        """The seeds that have no run yet."""
        return [seed for seed in seeds if not self.path(results, seed).exists()]

    @property
    def preset(self) -> Preset:
        """Sizes and recipe, for the epochs of this cell."""
        found = preset(self.problem, self.recipe, self.model)
        return replace(found, recipe=replace(found.recipe, epochs=self.epochs))

    @property
    def steps(self) -> int:
        """Steps of one run."""
        samples = PROTOCOLS[self.protocol][self.problem].train
        return self.epochs * -(-samples // self.preset.recipe.batch)

    def samples(self, device: str) -> tuple[Fields, Fields, Fields]:
        """Samples to train on, to watch for the learning curve and nothing else, and to test on."""
        train, test = dataset(self.problem, self.protocol, device)
        return train, test, test

    def needs(self) -> tuple[Cell, ...]:
        """Cells whose operators the test of a run goes on from, seed by seed."""
        return ()

    def errors(self, operator: Operator, test: Fields, seed: int) -> Errors:
        """What is measured of the trained operator of a seed."""
        return errors_of(operator, test)

    @property
    def key(self) -> str:
        """Changes with all that decides a run besides its name: what was kept is no longer it."""
        chosen, data = self.preset, PROTOCOLS[self.protocol][self.problem]
        told = [to_dict(chosen.recipe), asdict(chosen.config), tasks.to_json(chosen.task)]
        every = json.dumps([*told, chosen.symmetries, chosen.raw, asdict(data)])
        return hashlib.sha256(every.encode()).hexdigest()[:8]

    def folder(self, seeds: Sequence[int]) -> Path:
        """Where consecutive seeds are trained together, and their operators kept."""
        last = f"-to-{seeds[-1]}" if len(seeds) > 1 else ""
        name = f"{self.name(seeds[0])}{last}-{self.key}"
        return cache_folder() / "runs" / self.problem / self.model / name

    def kept(self, seed: int, device: str = "cpu") -> tuple[Operator, int] | None:
        """The trained operator that a seed is a member of, and which one; None: it is not kept."""
        there = self.folder([seed]).parent
        for path in sorted(there.glob(f"{self.name('*')}-{self.key}/{MODEL}")):
            try:
                found = Operator.load(path, device)
            except ValueError:
                continue  # damaged: it is made again
            k = seed - found.provenance["seed"]
            if found.finished and 0 <= k < len(found.members):
                return found, k
        return None

    def operator(self, seed: int, device: str = "cpu") -> Operator | None:
        """The trained operator of a seed; None where it is not kept."""
        found = self.kept(seed, device)
        return None if found is None else found[0].member(found[1])

    def make(
        self,
        seeds: Sequence[int],
        results: Path,
        device: str = "auto",
        minutes: float | None = None,
    ) -> tuple[bool, float]:
        """Train consecutive seeds together unless they are kept; record those that are missing.

        Returns:
            whether training came to its end, and the minutes that it took.
        """
        seconds = 0.0
        if any(self.kept(seed) is None for seed in seeds):
            seconds = _train(self, seeds, device, minutes)
        _, _, samples = self.samples(device)
        for seed in seeds:
            found = self.kept(seed, device)
            if found is None:
                return False, seconds / 60
            if not self.path(results, seed).exists():
                record(self, seed, *found, samples, results)
        return True, seconds / 60


@dataclass(frozen=True)
class Errors:
    """What the test of one model gave.

    Args:
        metrics: mean errors by data set.
        samples: relative L2 of each test sample, by data set.
        frames: of a rollout, the mean relative L2 of each frame.
    """

    metrics: dict[str, dict[str, float]]
    samples: dict[str, list[float]]
    frames: list[float]


def errors_of(operator: Operator, test: Fields) -> Errors:
    """Errors of an operator on test samples."""
    errors: dict[str, list[float]] = {name: [] for name in METRICS}
    frames: list[torch.Tensor] = []
    for batch, prediction in operator.evaluate_batches(test):
        for name, metric in METRICS.items():
            errors[name] += metric(prediction, batch.y, batch.query_mask).tolist()
        if isinstance(operator.task, Rollout) and batch.y is not None:
            pairs = zip(prediction.split(1, -1), batch.y.split(1, -1), strict=True)
            frames.append(torch.stack([METRICS["relative_l2"](p, y) for p, y in pairs], -1))
    means = {name: float(np.mean(values)) for name, values in errors.items()}
    by_frame = torch.cat(frames).mean(0).tolist() if frames else []
    return Errors({"test": means}, {"test": errors["relative_l2"]}, by_frame)


def train_missing(
    cells: Sequence[Cell],
    seeds: Sequence[int],
    results: Path,
    *,
    minutes: float | None = None,
    together: bool = True,
    device: str = "auto",
    say: Callable[[str], None] = lambda line: None,
) -> bool:
    """Train the runs that are missing, or go on with those that were cut off.

    Args:
        cells: the set-ups.
        seeds: of each.
        results: the ledger.
        minutes: of training, after which it stops, ready to go on.
        together: train the seeds of a cell at once, as members.
        device: as in `Operator.fit`.
        say: hears what is done.

    Returns:
        whether nothing is missing any more.
    """
    left = minutes
    for cell, absent in missing_runs(cells, seeds, results).items():
        for group in _groups(absent, together):
            if left is not None and left <= 0:
                return False
            named = f"{cell.problem} {cell.model} {cell.recipe}"
            named += f", {cell.epochs} epochs" * bool(cell.epochs)
            say(f"{named}, seed {', '.join(map(str, group))}")
            finished, used = cell.make(group, results, device, left)
            left = None if left is None else left - used
            if not finished:
                return False
    return True


def train_operators(
    cell: Cell,
    seeds: Sequence[int],
    device: str = "auto",
    say: Callable[[str], None] = lambda line: None,
) -> list[Operator]:
    """The trained operators of all seeds; those that are not kept any more are trained again."""
    gone = [seed for seed in seeds if cell.operator(seed) is None]
    for group in _groups(gone, together=True):
        say(f"{cell.problem} {cell.model} {cell.recipe}, seed {', '.join(map(str, group))}")
        _train(cell, group, device, None)
    found = [cell.operator(seed, device) for seed in seeds]
    if None in found:
        raise InterruptedError("training was stopped before its end: the same command goes on")
    return [operator for operator in found if operator is not None]


def missing_runs(
    cells: Sequence[Cell], seeds: Sequence[int], results: Path
) -> dict[Cell, list[int]]:
    """The seeds that each cell has no run of, and before them what those go on from.

    An operator that is not kept any more is trained again, whether or not the ledger has its run.
    """
    found: dict[Cell, list[int]] = {}
    for cell in cells:
        absent = cell.missing(results, seeds)
        for other in cell.needs():
            gone = [seed for seed in absent if other.operator(seed) is None]
            found[other] = sorted({*found.get(other, ()), *gone})
        found[cell] = sorted({*found.get(cell, ()), *absent})
    return {cell: absent for cell, absent in found.items() if absent}


def record(
    cell: Cell,
    seed: int,
    operator: Operator,
    k: int,
    test_data: Fields,
    results: Path,
) -> Run:
    """Test the k-th member of a trained operator and write its run into the ledger."""
    told, member = operator.provenance, operator.member(k)
    found = cell.errors(member, test_data, seed)
    curve = [
        {
            "step": row["step"],
            "seconds": row["seconds"],
            "loss": row.get("losses", [row["loss"]])[k],
            "error": (row.get("errors") or [row["error"]] * (k + 1))[k],
        }
        for row in told["curve"]
    ]
    run = Run(
        problem=cell.problem,
        model=cell.model,
        recipe=cell.recipe,
        protocol=cell.protocol,
        seed=seed,
        epochs=cell.epochs,
        steps=told["steps"],
        task=tasks.to_json(operator.task),
        hardware=told["hardware"],
        seconds=told["seconds"],
        parameters=member.parameters,
        data_hash=told["data"]["hash"],
        config={"model": asdict(member.model.config), "recipe": told["recipe"]},  # type: ignore[call-overload]
        metrics=found.metrics,
        members=told["members"],
        precision=told["precision"],
        compile_seconds=told["compile_seconds"],
        peak_memory_gb=told["peak_memory_gb"],
        commit=told.get("commit", ""),
        curve=curve,
        samples=found.samples,
        frames=found.frames,
    )
    run.save(results, cell.name(seed))
    if seed == 0:
        _keep_sample(member, test_data, found, cell.path(results, seed).with_suffix(".npz"))
    return run


def chosen(
    cells: Sequence[Cell],
    problems: Sequence[str] = (),
    models: Sequence[str] = (),
    recipes: Sequence[str] = (),
    epochs: int | None = None,
    precision: str | None = None,
) -> list[Cell]:
    """The cells that are asked for; `epochs` and `precision` replace those of the table.

    What is not trained has no epochs, and stays as it is.
    """
    for what, wanted, known in (
        ("problem", problems, {c.problem for c in cells}),
        ("model", models, {c.model for c in cells}),
        ("recipe", recipes, {c.recipe for c in cells}),
    ):
        for name in wanted:
            if name not in known:
                expected = ", ".join(sorted(known))
                raise ValueError(f"no {what} {name!r} in this table: expected one of {expected}")
    found = [
        c
        for c in cells
        if (not problems or c.problem in problems)
        and (not models or c.model in models)
        and (not recipes or c.recipe in recipes)
    ]
    if epochs is not None:
        found = [replace(c, epochs=epochs) if c.epochs else c for c in found]
    if precision is not None:
        pick_precision(precision, torch.device("cpu"))
        found = [replace(c, precision=precision) if c.epochs else c for c in found]
    return list(dict.fromkeys(found))


def _train(cell: Cell, group: Sequence[int], device: str, minutes: float | None) -> float:
    """Train an operator and keep it; returns the seconds of training that this call took."""
    chosen, folder = cell.preset, cell.folder(group)
    train_data, watched, _ = cell.samples(device)
    resume = any(folder.glob("checkpoint-*.safetensors"))
    before = _seconds(folder) if resume else 0.0
    operator = Operator.fit(
        chosen.training_data(train_data),
        task=chosen.task,
        model=cell.model,
        config=chosen.config,
        recipe=chosen.recipe,
        validation=watched,
        members=len(group),
        seed=group[0],
        device=device,
        precision=cell.precision,
        symmetries=symmetries_of(cell.problem) if chosen.symmetries else (),
        folder=folder,
        resume=resume,
        minutes=minutes,
    )
    operator.provenance["commit"] = commit()
    operator.save(folder / MODEL)
    return operator.provenance["seconds"] - before


def _seconds(folder: Path) -> float:
    """Of training so far, by the last point of the curve."""
    path = folder / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return json.loads(lines[-1])["seconds"] if lines else 0.0


def _groups(seeds: Sequence[int], together: bool) -> Iterator[list[int]]:
    """Consecutive seeds, which can be the members of one operator."""
    group: list[int] = []
    for seed in seeds:
        if group and (not together or seed != group[-1] + 1):
            yield group
            group = []
        group.append(seed)
    if group:
        yield group


def _keep_sample(operator: Operator, test: Fields, found: Errors, path: Path) -> None:
    """The sample with the median error, and what was predicted for it, for a picture."""
    errors = next(iter(found.samples.values()), [])
    if not errors:
        return
    chosen = test.subset([int(np.argsort(errors)[len(errors) // 2])])
    sample: Any = chosen[0]
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(
            file,
            x=np.asarray(sample.x, np.float32),
            u=np.asarray(sample.u, np.float32),
            y=np.asarray(sample.y, np.float32),
            prediction=np.asarray(operator.predict(chosen), np.float32)[0],
            grid=np.array(chosen.grid or ()),
            names_x=np.array(chosen.names["x"]),
            names_u=np.array(chosen.names["u"]),
            names_y=np.array(chosen.names["y"]),
        )
