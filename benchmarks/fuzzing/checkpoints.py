"""Attacks on the checkpoints of a training run, which is then resumed.

It must end bit-for-bit like a run that was never disturbed (from the older checkpoint, if need be),
or refuse to go on.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from fuzzing import models, mutate
from fuzzing.engine import CHANGED, SAME, Attack, Attacks, Section, names_the_file
from fuzzing.models import Tensors, fit, open_base, waves
from fuzzing.mutate import Random, pick
from lno import Operator, Recipe
from lno.files import UNSEALED, seal
from lno.training.state import METADATA_KEY

RECIPE = Recipe(epochs=4, batch=3, ema=0.9, optimizer="muon", clip=1.0)
SETTINGS: dict[str, Any] = {"recipe": RECIPE, "epochs": None, "members": 2, "validation": 0.34}
FREE = {"seconds", "compile_seconds", "peak_memory", "compiled"}  # of no influence on a CPU


def train(folder: Path | None, **more: Any) -> Operator:
    """The run."""
    return fit(waves(), folder=folder, **SETTINGS, **more)


def weights(operator: Operator) -> torch.Tensor:
    """All weights in one row."""
    found = [w.flatten() for m in operator.members for w in m.state_dict().values()]
    return torch.cat([w.double() for w in found])


def curve(operator: Operator) -> Any:
    """The learning curve without its times."""
    return [[row["losses"], row["errors"]] for row in operator.provenance["curve"]]


def prepare(folder: Path) -> None:
    """The run, undisturbed, and the folder of one that was paused."""
    whole = train(None)
    np.save(folder / "weights.npy", weights(whole).numpy())
    (folder / "curve.json").write_text(json.dumps(curve(whole)))
    for k in range(3):
        train(folder / "run", pause_after=1e-9, resume=k > 0)
    assert len(list((folder / "run").glob("checkpoint-*.safetensors"))) == 2


def forged(path: Path, record: Any, tensors: Tensors) -> None:
    """A checkpoint with a digest that fits."""
    if isinstance(record, dict):
        record = {"digest": UNSEALED, **{k: v for k, v in record.items() if k != "digest"}}
    save_file(tensors, path, {METADATA_KEY: mutate.dumps(record)})
    if isinstance(record, dict):
        seal(path)


def other_record(record: Any, random: Random) -> Any:
    """A record with one change, of what decides how the run goes on."""
    while True:
        changed = mutate.change(record, random)
        left = {k for k in {*record, *changed} if record.get(k) != changed.get(k)}
        if left and not left <= FREE and not _is_valid(left, record, changed):
            return changed


def _is_valid(left: set[str], record: Any, changed: Any) -> bool:
    """Whether the changed record is that of another run which would be as valid.

    Losses and times of the curve may have any values, if they are numbers; so may the number of
    steps. Only a digest tells then, and this one is made to fit.
    """
    if left == {"total_steps"}:
        return isinstance(changed["total_steps"], int) and changed["total_steps"] > 0
    if not left <= {"curve", "recent"}:
        return False

    def kinds(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: kinds(v) if k != "step" else v for k, v in value.items()}
        if isinstance(value, list):
            return [kinds(v) for v in value]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return "number" if number and np.isfinite(value) else repr(value)

    return all(kinds(record.get(k)) == kinds(changed.get(k)) for k in left)


def _sizes(tensors: Tensors) -> Any:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


def attacks(folder: Path) -> Attacks:
    """The function that makes attack k on a folder with two checkpoints."""
    expected = torch.from_numpy(np.load(folder / "weights.npy"))
    expected_curve = json.loads((folder / "curve.json").read_text())
    older, newest = sorted((folder / "run").glob("checkpoint-*.safetensors"))
    base, second = (open_base(path, METADATA_KEY) for path in (newest, older))

    def attack(k: int, random: Random, work: Path) -> Attack:
        run, kind = work / "run", KINDS[k % len(KINDS)]
        shutil.copytree(folder / "run", run)
        path = run / newest.name
        if kind == "bit flip in the tensors":
            path.write_bytes(mutate.flip(base.data, random, base.header))
        elif kind == "bit flip in the header":
            path.write_bytes(mutate.flip(base.data, random, 0, base.header))
        elif kind == "damaged":
            path.write_bytes(mutate.damage(base.data, random))
        elif kind == "sizes claimed":
            path.write_bytes(models.claim(base, random))
        elif kind == "forged record":
            forged(path, other_record(base.content, random), base.tensors)
        elif kind == "forged tensors":
            while True:
                record, tensors = models.other_tensors(base.content, base.tensors, random)
                if _sizes(tensors) != _sizes(base.tensors):  # else another run's, as valid
                    break
            forged(path, record, tensors)
        elif kind == "forged, not finite":
            forged(path, *models.not_finite(base.content, base.tensors, random))
        elif kind == "older one renamed":
            path.write_bytes((run / older.name).read_bytes())
        elif kind == "another program's":
            path.write_bytes(models.foreign(random))
        elif kind == "both damaged":
            path.write_bytes(mutate.flip(base.data, random))
            (run / older.name).write_bytes(mutate.damage(second.data, random))
        elif kind == "older one damaged":
            (run / older.name).write_bytes(mutate.damage(second.data, random))
        elif kind == "others in the folder":
            names = (
                "checkpoint-999999999.safetensors",
                "checkpoint-x.safetensors",
                "metrics.jsonl",
            )
            (run / pick(random, names)).write_bytes(random.bytes(int(random.integers(200))))

        def act() -> str:
            done = train(run, resume=True)
            same = torch.equal(weights(done), expected)
            return SAME if same and curve(done) == expected_curve else CHANGED

        def clear(error: BaseException, _: Path | None) -> bool:
            return names_the_file(error, run)

        return Attack(kind, act, path, clear)

    return attack


KINDS = (
    "bit flip in the tensors",
    "bit flip in the tensors",
    "bit flip in the header",
    "damaged",
    "sizes claimed",
    "forged record",
    "forged record",
    "forged tensors",
    "forged, not finite",
    "older one renamed",
    "another program's",
    "both damaged",
    "older one damaged",
    "others in the folder",
)
SECTION = Section("checkpoints", 560, prepare, attacks)
