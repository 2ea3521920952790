"""Runs of the ledger: what decides one, training those that are missing, and recording them.

A cell of a table is one set-up, with a run for each seed. Seeds train together as members, which is
faster than one after the other. Nothing of the test samples decides anything: all of the training
split is trained on, and the last model is the one that is tested.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lno import tasks
from lno.data import Fields
from lno.experiments.datasets import PROTOCOLS, cache_folder, dataset
from lno.experiments.presets import preset
from lno.experiments.train import symmetries_of
from lno.files import replacing
from lno.ledger import Run, commit
from lno.metrics import METRICS
from lno.operator import Operator
from lno.report.tables import Table
from lno.tasks import Rollout

Test = Callable[[Operator, Fields], "Errors"]


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

    def name(self, seed: int) -> str:
        """What the run of a seed is called."""
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
    def steps(self) -> int:
        """Steps of one run."""
        batch = preset(self.problem, self.recipe, self.model).recipe.batch
        samples = PROTOCOLS[self.protocol][self.problem].train
        return self.epochs * -(-samples // batch)


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
    test: Test = errors_of,
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
        test: what is measured of a trained operator.
        say: hears what is done.

    Returns:
        whether nothing is missing any more.
    """
    left = minutes
    for cell in cells:
        for group in _groups(cell.missing(results, seeds), together):
            if left is not None and left <= 0:
                return False
            named = f"{cell.problem} {cell.model} {cell.recipe}, {cell.epochs} epochs"
            say(f"{named}, seed {', '.join(map(str, group))}")
            operator, used = _train(cell, group, device, left)
            left = None if left is None else left - used / 60
            if not operator.finished:
                return False
            _, samples = dataset(cell.problem, cell.protocol, device)
            for k, seed in enumerate(group):
                record(cell, seed, operator, k, samples, results, test)
    return True


def record(
    cell: Cell,
    seed: int,
    operator: Operator,
    k: int,
    test_data: Fields,
    results: Path,
    test: Test = errors_of,
) -> Run:
    """Test the k-th member of a trained operator and write its run into the ledger."""
    told, member = operator.provenance, operator.member(k)
    found = test(member, test_data)
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
        commit=commit(),
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
    """The cells that are asked for; `epochs` and `precision` replace those of the table."""
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
        found = [replace(c, epochs=epochs) for c in found]
    if precision is not None:
        found = [replace(c, precision=precision) for c in found]
    return list(dict.fromkeys(found))


def plan(cells: Sequence[Cell], seeds: Sequence[int], results: Path) -> Table:
    """The runs that are missing, and about how long they take."""
    rows, total = [], 0.0
    for cell in cells:
        missing = cell.missing(results, seeds)
        if not missing:
            continue
        minutes = estimate(cell, len(missing), results)
        total += minutes or 0.0
        shown = "unknown" if minutes is None else f"{minutes:.1f}"
        what = [cell.problem, cell.model, cell.recipe, cell.precision, str(cell.epochs)]
        rows.append([*what, ", ".join(map(str, missing)), shown])
    header = ["problem", "model", "recipe", "precision", "epochs", "seeds", "minutes"]
    note = f"about {total:.0f} minutes of training in all, where it is known"
    note = note if total else "how long they take is not known yet"
    return Table("Missing runs", header, rows, [note] if rows else ["nothing is missing"])


def estimate(cell: Cell, seeds: int, results: Path) -> float | None:
    """Minutes that runs of a cell will take, by what the ledger knows; None: nothing."""
    for path in sorted((results / cell.problem / cell.model).glob("*.json")):
        run = Run.load(path)
        if run.precision == cell.precision and run.protocol == cell.protocol and run.steps:
            return run.seconds / run.steps / run.members * cell.steps * seeds / 60
    if cell.protocol != "standard":
        return None
    for r in _rows(results, "efficiency"):
        if (r["problem"], r["model"]) == (cell.problem, cell.model):
            return r["seconds_per_epoch"] * cell.epochs * seeds / 60
    for r in _rows(results, "training_step"):
        if cell.model == "lno" and r["case"].split()[0] == cell.problem:
            return r[f"{cell.precision}_ms"] / 1e3 * cell.steps * seeds / 60
    return None


def _rows(results: Path, benchmark: str) -> list[dict[str, Any]]:
    path = results / "benchmarks" / f"{benchmark}.json"
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []


def _train(
    cell: Cell, group: Sequence[int], device: str, minutes: float | None
) -> tuple[Operator, float]:
    """The trained operator, and the seconds of training that this call took."""
    chosen = preset(cell.problem, cell.recipe, cell.model)
    train_data, test_data = dataset(cell.problem, cell.protocol, device)
    last = f"-to-{group[-1]}" if len(group) > 1 else ""
    folder = cache_folder() / "runs" / cell.problem / cell.model / f"{cell.name(group[0])}{last}"
    resume = any(folder.glob("checkpoint-*.safetensors"))
    before = _seconds(folder) if resume else 0.0
    operator = Operator.fit(
        chosen.training_data(train_data),
        task=chosen.task,
        model=cell.model,
        config=chosen.config,
        recipe=replace(chosen.recipe, epochs=cell.epochs),
        validation=test_data,  # watched for the learning curve, and nothing else
        members=len(group),
        seed=group[0],
        device=device,
        precision=cell.precision,
        symmetries=symmetries_of(cell.problem) if chosen.symmetries else (),
        folder=folder,
        resume=resume,
        minutes=minutes,
    )
    operator.save(folder / "model.safetensors")
    return operator, operator.provenance["seconds"] - before


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
