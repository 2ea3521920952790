"""From the description of a run to its result: train, test, and write the folder of the run.

The folder holds `model.safetensors`, checkpoints and `metrics.jsonl`; `run.json`, the run in the
form of the ledger (with several members, `run-<seed>.json` for each further one); `sample.npz` and
`worst.npz`, the test samples with the median and the largest error and what was predicted for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lno import tasks
from lno.config import to_dict
from lno.data import Fields, columns
from lno.data.domain import Domain
from lno.data.observe import RandomCount, RandomRatio
from lno.experiments.own import OwnRun
from lno.experiments.pictures import save_sample
from lno.experiments.runs import MODEL, RunSpec, Samples
from lno.files import owning, require_folder, write_json
from lno.ledger import Run, commit
from lno.operator import Operator
from lno.reconstruct import Reconstructor
from lno.tasks import Completion
from lno.training.device import one_thread
from lno.training.distributed import is_main
from lno.training.plan import Plan, plan
from lno.training.samples import split_validation
from lno.training.setup import set_up
from lno.training.verdict import verdict

SAMPLE, WORST = "sample.npz", "worst.npz"
LEVEL, HELD_OUT = 0.9, 9  # of bounds, and the fewest held-out samples that guarantee it
CALIBRATED = 4  # numbers of sensors that bounds of reconstructions are calibrated for


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Args:
        operator: the trained operator, with all members; it may not be finished.
        runs: the run of each seed, in the form of the ledger.
        errors: mean errors of the operator on the first test set; of an ensemble, those of its
            mean.
        verdict: whether a longer run or more samples would help, in words; empty if not known.
    """

    operator: Operator
    runs: list[Run]
    errors: dict[str, float]
    verdict: str = ""


def execute(
    spec: RunSpec, seeds: Sequence[int], out: Path, device: str = "auto", **options: Any
) -> Outcome:
    """Train consecutive seeds of a spec as members of one operator, test each, and write it all.

    Args:
        spec: what to run.
        seeds: consecutive ones.
        out: the folder of the run.
        device: as in `Operator.fit`.
        options: further arguments of `Operator.fit`: resume, pause_after, split, ...
    """
    samples = spec.samples(device)
    with owner(out):
        operator = fit(spec, seeds, samples, out, device, **options)
        test = spec.adapted(samples[-1])
        runs = [record(spec, operator, k, seed, test, out) for k, seed in enumerate(seeds)]
        alone = len(seeds) == 1
        errors = next(iter(runs[0].metrics.values())) if alone else operator.evaluate(test)
        return Outcome(operator, runs, errors, judged(spec, operator, samples))


def dry(spec: RunSpec, seeds: Sequence[int], device: str = "auto") -> Plan:
    """What a run would cost; nothing is trained and nothing is written."""
    train_data, validation, _ = spec.samples(device)
    arguments = _arguments(spec, seeds, validation, device)
    for name in ("conditional", "minutes"):
        del arguments[name]
    used = spec.preset.training_data(spec.adapted(train_data))
    return plan(set_up(used, **arguments), spec.minutes)


def judged(spec: RunSpec, operator: Operator, samples: Samples) -> str:
    """Whether a longer run or more samples would help, from the learning curve of a finished run.

    The training error is that of as many training samples as there are for validation.
    """
    if not operator.finished or not isinstance(spec, OwnRun):
        return ""
    train, validation, _ = samples
    errors: list[float | None] = [None, None]
    if isinstance(validation, Fields):
        some = train.subset(np.arange(len(train))[:: max(1, len(train) // len(validation))])
        errors = [operator.evaluate(spec.adapted(f))["relative_l2"] for f in (some, validation)]
    return verdict(operator.provenance["curve"], *errors)


def owner(out: Path) -> AbstractContextManager[None]:
    """Keep the folder of a run to this process until its last file is written."""
    return owning(require_folder(out)) if is_main() else nullcontext()


def fit(
    spec: RunSpec,
    seeds: Sequence[int],
    samples: Samples,
    out: Path,
    device: str = "auto",
    **options: Any,
) -> Operator:
    """The part of `execute` that trains: the operator, which is saved in the folder."""
    chosen = spec.preset
    train_data, validation, test = samples
    arguments = _arguments(spec, seeds, validation, device) | {"folder": out}
    used = chosen.training_data(spec.adapted(train_data))
    with one_thread() if spec.one_thread else nullcontext():
        operator = Operator.fit(used, **(arguments | options))
    operator.provenance["commit"] = commit()
    operator.provenance["run"] = {
        "problem": spec.problem,
        "protocol": spec.protocol,
        "recipe": spec.setup,
        "data": spec.data,
        "test_digest": test.digest,
        **spec.recorded(),
    }
    if is_main():
        operator.save(out / MODEL)  # whatever happens next
    with one_thread() if spec.one_thread else nullcontext():
        held_out = held_out_of(spec, used, arguments["validation"])
        found = calibrated(operator, held_out)
    if is_main() and found is not operator:
        found.save(out / MODEL)
    if is_main() and isinstance(spec, OwnRun) and isinstance(found.task, Completion):
        save_reconstructor(found, used, held_out, out)
    return found


def save_reconstructor(
    operator: Operator, used: Fields, held_out: Fields | None, out: Path
) -> Reconstructor | None:
    """Make the folder of a run one that `lno reconstruct` reads; None: it cannot be one.

    Beside the model come the points of the fields and, where enough fields were held out, the
    calibration of bounds for some numbers of sensors.
    """
    where, several = Domain.of(used), len(operator.labels.names["y"]) > 1
    if where is None or several or isinstance(operator.background, str):
        return None
    made = Reconstructor(operator, where=where)
    where.save(out / "domain.h5")
    if operator.finished and held_out is not None and len(held_out) >= HELD_OUT:
        made = made.calibrated(held_out, sensor_counts(operator, held_out), LEVEL)
        assert made.calibration is not None
        made.calibration.save(out / "calibration.json")
    return made


def sensor_counts(operator: Operator, held_out: Fields) -> list[RandomCount]:
    """Numbers of sensors to calibrate bounds for, spread over those of training."""
    assert isinstance(operator.task, Completion)
    pattern, points = operator.task.pattern, columns.sizes(held_out.x_query, len(held_out)).min()
    assert isinstance(pattern, RandomRatio)
    ratios = np.geomspace(pattern.low, pattern.high or pattern.low, CALIBRATED)
    counts = {min(int(points), max(1, round(float(r) * int(points)))) for r in ratios}
    return [RandomCount(count) for count in sorted(counts)]


def _arguments(
    spec: RunSpec, seeds: Sequence[int], validation: float | Fields, device: str
) -> dict[str, Any]:
    """The arguments of `Operator.fit` that a spec decides."""
    chosen = spec.preset
    return {
        "task": chosen.task,
        "model": spec.model,
        "config": chosen.config,
        "recipe": chosen.recipe,
        "conditional": chosen.conditional,
        "symmetries": spec.symmetries,
        "validation": spec.adapted(validation) if isinstance(validation, Fields) else validation,
        "members": len(seeds),
        "seed": seeds[0],
        "device": device,
        "precision": spec.precision,
        "minutes": spec.minutes,
        **spec.options(),
    }


def held_out_of(spec: RunSpec, used: Fields, validation: float | Fields) -> Fields | None:
    """The samples that a run held out of training, which may calibrate it; None: there are none.

    Test samples that a run validates on are for testing alone.
    """
    if isinstance(validation, Fields):
        return validation if spec.validates_on_its_own else None
    return split_validation(used, validation)[1]


def calibrated(operator: Operator, held_out: Fields | None) -> Operator:
    """The operator with bounds, where its run held out enough of the training samples."""
    if not operator.finished or held_out is None or len(held_out) < HELD_OUT:
        return operator
    return operator.calibrated(held_out, LEVEL)


def record(spec: RunSpec, operator: Operator, k: int, seed: int, test: Fields, out: Path) -> Run:
    """Test the k-th member of a trained operator and write its run into the folder of the run."""
    member, first = operator.member(k), seed == operator.provenance["seed"]
    found = spec.errors(member, test, seed)
    origin, length = operator.provenance, spec.preset.recipe.epochs
    exact = operator.finished and spec.minutes is None and spec.seconds is None
    exact = exact and origin["steps"] == origin["total_steps"]  # else it was stopped early
    run = Run(
        problem=spec.problem,
        model=spec.model,
        recipe=spec.setup,
        protocol=spec.protocol if spec.data is None else Path(spec.data).name,
        seed=seed,
        epochs=length if exact else round(origin["epochs"], 3),
        steps=origin["steps"],
        task=tasks.to_json(operator.task),
        hardware=origin["hardware"],
        seconds=origin["seconds"],
        parameters=member.parameters,
        data_hash=origin["data"]["digest"],
        config={
            "model": asdict(member.model.config),
            "recipe": origin["recipe"],
            **({"seconds": spec.seconds} if spec.seconds is not None else {}),
            **({"conditional": True} if operator.conditional else {}),
            **({"query_set": operator.query_set} if operator.query_set else {}),
        },
        metrics={name: errors.means() for name, errors in found.items()},
        members=origin["members"],
        precision=origin["precision"],
        compile_seconds=origin["compile_seconds"],
        peak_memory_gb=origin["peak_memory_gb"],
        commit=origin.get("commit", ""),
        curve=[_row(row, k) for row in origin["curve"]],
        samples={name: errors.samples["relative_l2"] for name, errors in found.items()},
        frames=next((errors.frames for errors in found.values() if errors.frames), []),
    )
    if is_main():
        write_json(out / ("run.json" if first else f"run-{seed}.json"), to_dict(run))
        order = np.argsort(next(iter(run.samples.values())))
        if first:
            save_sample(out / SAMPLE, member, test, int(order[len(order) // 2]), spec.problem)
            save_sample(out / WORST, member, test, int(order[-1]), spec.problem)
    return run


def _row(row: dict[str, Any], k: int) -> dict[str, Any]:
    """A point of the learning curve of the k-th member."""
    return {
        "step": row["step"],
        "seconds": row["seconds"],
        "loss": row.get("losses", [row["loss"]])[k],
        "error": (row.get("errors") or [row["error"]] * (k + 1))[k],
    }
