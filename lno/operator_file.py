"""An `Operator` in one safetensors file: weights as tensors, all else as JSON in its metadata.

With the weights go the statistics that a model keeps (`Model.keeps_statistics`). Tensors of several
members are stacked along a leading axis. The metadata hold one JSON object; its first key is the
SHA-256 of the file (`lno.files.seal`). When a file is loaded, the digest and every value are
checked: against each other, against the weights and against `lno.limits`.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save_file
from torch import Tensor

from lno import limits, tasks
from lno.config import from_dict, require_count, require_type, to_dict
from lno.data import Spec
from lno.data.climatology import read_background, stored_background
from lno.data.labels import Labels, require_grid
from lno.data.normalize import Normalizers
from lno.files import UNSEALED, parse_json, read_sealed, replacing, seal, system_error
from lno.kernel_methods.covariance import read_covariance, stored_covariance
from lno.models import MODELS, Model
from lno.operator import Operator
from lno.tasks import Completion, Propagation, Rollout, Task
from lno.training.device import pick_device
from lno.trust import Trust

KEY, VERSION = "lno.operator", 3  # one key: a second one would make the bytes of a file random
KIND = "a model file (safetensors) written by lno"
DAMAGED = "its content does not match its digest: the file was changed or damaged"

# What is known of a training run, where the provenance has it. `Operator.fit` writes all of these
# but the last ones.
TRAINED: dict[str, Any] = {
    "lno": str,
    "torch": str,
    "hardware": str,
    "precision": str,
    "data": dict[str, Any],
    "recipe": dict[str, Any],
    "symmetries": list[str],
    "seed": int,
    "finished": bool,
    "seconds": float,
    "compile_seconds": float,
    "peak_memory_gb": float | None,
    "members": int,
    "steps": int,
    "total_steps": int,
    "epochs": float,
    "curve": list[dict[str, Any]],
}
OPTIONAL: dict[str, Any] = {
    "commit": str,
    "run": dict[str, Any],
    "runs": list[str],
    "init": dict[str, Any],
}
RUN: dict[str, Any] = {
    "problem": str,
    "protocol": str,
    "recipe": str,
    "data": str | None,
    "test_digest": str,
}
POINT: dict[str, Any] = {"step": int, "seconds": float, "loss": float, "error": float | None}


@dataclass(frozen=True)
class Content:
    """Everything in a file but the weights."""

    digest: str
    version: int
    model: str
    members: int
    spec: dict[str, Any]
    config: dict[str, Any]
    task: dict[str, Any]
    normalizers: dict[str, dict[str, Any] | None]
    labels: Any
    conditional: bool
    weighted: bool
    query_set: int | None
    provenance: dict[str, Any]
    trust: dict[str, Any] = field(default_factory=Trust().to_json)  # earlier versions have none
    background: dict[str, Any] | None = None
    covariance: dict[str, Any] | None = None


def save(operator: Operator, path: str | Path, half: bool = False) -> None:
    """Write `operator`; `path` keeps its old content until the new one is whole."""
    members = len(operator.members)
    background, background_arrays = stored_background(operator.background)
    covariance, covariance_arrays = stored_covariance(operator.covariance)
    content = {
        "digest": UNSEALED,
        "version": VERSION,
        "model": operator.kind,
        "members": members,
        "spec": to_dict(operator.model.spec),
        "config": to_dict(operator.model.config),
        "task": tasks.to_json(operator.task),
        "normalizers": operator.normalizers.to_dict(),
        "labels": to_dict(operator.labels),
        "conditional": operator.conditional,
        "weighted": operator.weighted,
        "query_set": operator.query_set,
        "provenance": operator.provenance,
        "trust": operator.trust.to_json(),
        **covariance,
        **background,
    }
    text = json.dumps(content)
    _require_provenance(_content({KEY: text}).provenance)  # what is saved can be loaded
    states = [{n: w.detach().cpu() for n, w in m.state_dict().items()} for m in operator.members]
    weights = {
        name: torch.stack([s[name] for s in states]) if members > 1 else first.contiguous()
        for name, first in states[0].items()
    }
    for name, weight in weights.items():
        _require_finite(name, weight)
    if half:  # statistics are few, and may be too small or too large for it
        trained = dict(operator.model.named_parameters())
        weights = {n: _half(n, weight) if n in trained else weight for n, weight in weights.items()}
    weights |= background_arrays | covariance_arrays
    with replacing(path) as temporary:
        try:
            save_file(weights, temporary, {KEY: text})
            seal(temporary)
        except SafetensorError as error:
            raise system_error(error) from error


def load(path: str | Path, device: str = "auto") -> Operator:
    """Read a file of `save` onto a device; nothing in it is ever executed."""
    file = read_sealed(path, KIND)
    where = pick_device(device)
    note = "" if file.intact else f" ({DAMAGED})"
    try:
        content = _content(file.metadata)
        weights = {name: _whole(w) for name, w in load_tensors(file.data).items()}
        background = read_background(content.background, weights)
        covariance = read_covariance(content.covariance, weights)
        operator = _build(content, weights, where)
        if covariance is not None:
            covariance.require_fit(operator.normalizers.x.distance_axes)
        operator = replace(operator, background=background, covariance=covariance)
    except (SafetensorError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"{path} is damaged or not {KIND}: {type(error).__name__}: {error}{note}"
        ) from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}{note}") from error
    if not file.intact:
        raise ValueError(f"{path}: {DAMAGED}")
    return operator


def _half(name: str, weight: Tensor) -> Tensor:
    rounded = weight.half() if weight.dtype == torch.float32 else weight
    if not torch.equal(rounded.isfinite(), weight.isfinite()):
        raise ValueError(f"{name} has weights that are too large for float16: save in full")
    return rounded


def _whole(weight: Tensor) -> Tensor:
    """Weights that were stored in half precision, to compute with in single."""
    return weight.float() if weight.dtype == torch.float16 else weight


def _require_finite(name: str, weight: Tensor) -> None:
    # The sum is finite in all but the rarest cases, and far cheaper.
    if weight.is_floating_point() and not weight.sum().isfinite():
        bad = int((~weight.isfinite()).sum())
        if bad:
            raise ValueError(f"weight {name}: {bad} of {weight.numel()} values are not finite")


def _content(metadata: dict[str, str]) -> Content:
    if KEY not in metadata:
        raise ValueError(f"not {KIND}: its metadata lack the key {KEY!r}")
    try:
        found = parse_json(metadata[KEY], finite=False)
        if not isinstance(found, dict):
            raise ValueError(f"expected an object, got {str(found)[:40]}")
    except ValueError as error:
        raise ValueError(f"damaged or not {KIND}: {error}") from error
    version: Any = found.get("version")
    require_count("format version", version, 10**6)
    if version > VERSION:
        raise ValueError(
            f"written in format version {version}, this lno reads up to {VERSION}: "
            "update with 'pip install -U latent-neural-operator'"
        )
    if version < VERSION:
        raise ValueError(
            f"written in format version {version} by an older lno; this one reads version "
            f"{VERSION}. Train the model again, or use the version of lno that wrote it"
        )
    return from_dict(Content, found)


def _build(content: Content, weights: dict[str, Tensor], where: torch.device) -> Operator:
    """The operator, once everything is checked."""
    if content.model not in MODELS:
        raise ValueError(f"a model of kind {content.model!r}, which this lno does not have")
    model_class, config_class = MODELS[content.model]
    config, spec = from_dict(config_class, content.config), from_dict(Spec, content.spec)
    require_grid("spec.grid", spec.grid)
    require_count("members", content.members, limits.MEMBERS)
    if content.query_set is not None:
        require_count("query_set", content.query_set, limits.QUERY_SET)
    task, scale = tasks.from_json(content.task), _normalizers(content.normalizers)
    labels = from_dict(Labels, content.labels)
    _require_fit(spec, task, scale, labels)
    _require_provenance(content.provenance)
    # On "meta", sizes that a hostile file claims cost nothing before they are checked.
    with torch.device("meta"):
        model = model_class(spec, config)
    expected = model.state_dict()
    lead = (content.members,) if content.members > 1 else ()
    for name, one in expected.items():
        got, shape = weights.get(name), (*lead, *one.shape)
        if got is None or got.shape != shape or got.dtype != one.dtype:
            found = "nothing" if got is None else f"{tuple(got.shape)} {got.dtype}"
            raise ValueError(f"weight {name}: expected {shape} {one.dtype}, got {found}")
    unknown = sorted(set(weights) - set(expected))
    if unknown:
        raise ValueError(f"weight {unknown[0]} does not belong to this model")
    for name, weight in weights.items():
        _require_finite(name, weight)
    members: list[Model] = []
    for k in range(content.members):
        last = k == content.members - 1
        member = model if last else copy.deepcopy(model)  # a copy takes longer than the digest
        member.load_state_dict({n: w[k] if lead else w for n, w in weights.items()}, assign=True)
        members.append(member.requires_grad_(True).eval().to(where))
    return Operator(
        members,
        content.model,
        task,
        scale,
        labels,
        content.conditional,
        content.weighted,
        content.query_set,
        content.provenance,
        Trust.from_json(content.trust),
    )


def _normalizers(found: dict[str, dict[str, Any] | None]) -> Normalizers:
    numbers = {"mean": list[float], "std": list[float]}
    places = {**numbers, "period": list[float | None], "space": int | None}
    for key in ("x", "u", "y", "parameters"):
        if key not in found:
            raise ValueError(f"damaged or not {KIND}: normalizers lack {key}")
        inner = found[key]
        if inner is None and key == "parameters":
            continue
        for name, kind in (places if key == "x" else numbers).items():
            require_type(f"normalizers.{key}.{name}", (inner or {}).get(name), kind)
        if key == "x" and "space" not in (inner or {}):
            raise ValueError("normalizers.x needs the key 'space', which is missing")
    pair = (found["x"] or {}).get("sphere")
    require_type("normalizers.x.sphere", pair, list[int] | None)
    if pair is not None and len(pair) != 2:
        raise ValueError(f"normalizers.x.sphere: expected two coordinates, got {pair}")
    return Normalizers.from_dict(found)


def _require_fit(spec: Spec, task: Task, scale: Normalizers, labels: Labels) -> None:
    """Raise unless the parts of an operator have the same numbers of coordinates and channels."""
    sizes = (scale.x.features, scale.in_channels, len(scale.y.mean))
    read = task.model_spec(Spec(*sizes))
    if spec.of_points != read:
        raise ValueError(f"normalisers for {sizes} do not fit the model's {spec}")
    frames = task.frames if isinstance(task, Rollout) else 1
    if isinstance(task, Rollout) and task.channels != spec.out_channels:
        raise ValueError(f"{task} does not fit the {spec.out_channels} channels of the model")
    parameters = 0 if scale.parameters is None else len(scale.parameters.mean)
    for key, count in (
        ("x", len(scale.x.period)),
        ("u", len(scale.u.mean)),
        ("y", len(scale.y.mean) * frames),
        ("parameters", parameters),
    ):
        if len(labels.names.get(key, [])) != count:
            raise ValueError(f"labels.names: expected {count} of {key}")
    window = task.window if isinstance(task, Completion | Propagation) else None
    if window is not None and window.coordinate not in labels.names["x"]:
        raise ValueError(f"{window}: the coordinates are {', '.join(labels.names['x'])}")


def _require_provenance(found: dict[str, Any]) -> None:
    """Raise unless a provenance has what is read of it elsewhere; each `init` is one too."""
    at: dict[str, Any] | None = found
    while at is not None:
        for key, kind in {**TRAINED, **OPTIONAL}.items():
            if key in at or (key in TRAINED and "finished" in at):
                _require_key("provenance", at, key, kind)
        for key, kind in RUN.items() if "run" in at else ():
            _require_key("provenance.run", at["run"], key, kind)
        for row in at.get("curve", []):
            for key, kind in POINT.items():
                _require_key("provenance.curve", row, key, kind)
        if "data" in at:
            _require_key("provenance.data", at["data"], "digest", str)
        at = at.get("init")


def _require_key(name: str, values: dict[str, Any], key: str, kind: Any) -> None:
    if key not in values:
        raise ValueError(f"{name} needs the key {key!r}, which is missing")
    require_type(f"{name}.{key}", values[key], kind)
