"""An `Operator` in one safetensors file: weights as tensors, all else as JSON in its metadata.

The weights of several members are stacked along a leading axis.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from lno import tasks
from lno.config import from_dict, require_count, to_dict
from lno.data import Spec
from lno.data.labels import Labels
from lno.data.normalize import Normalizers
from lno.files import replacing, require_signature
from lno.models import MODELS, Model
from lno.operator import Operator
from lno.training.device import pick_device

KEY, VERSION = "lno.operator", 2  # one key: a second one would make the bytes of a file random
KIND = "a model file (safetensors) written by lno"


def save(operator: Operator, path: str | Path, half: bool = False) -> None:
    """Write `operator`; `path` keeps its old content until the new one is whole."""
    members = len(operator.members)
    content = {
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
    }
    states = [{n: w.detach().cpu() for n, w in m.state_dict().items()} for m in operator.members]
    weights = {
        name: torch.stack([s[name] for s in states]) if members > 1 else first.contiguous()
        for name, first in states[0].items()
    }
    if half:
        weights = {name: _half(name, weight) for name, weight in weights.items()}
    with replacing(path) as temporary:
        try:
            save_file(weights, temporary, {KEY: json.dumps(content)})
        except SafetensorError as error:
            raise OSError(str(error)) from error


def load(path: str | Path, device: str = "auto") -> Operator:
    """Read a file of `save` onto a device; nothing in it is ever executed."""
    require_signature(path, b"{", 8, KIND)
    where = pick_device(device)
    try:
        with safe_open(path, framework="pt") as file:
            content = _content(file.metadata() or {})
            weights = {name: _whole(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
        return _build(content, weights, where)
    except (SafetensorError, KeyError, TypeError, AttributeError, OSError, RecursionError) as error:
        raise ValueError(
            f"{path} is damaged or not {KIND}: {type(error).__name__}: {error}"
        ) from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _half(name: str, weight: torch.Tensor) -> torch.Tensor:
    rounded = weight.half() if weight.dtype == torch.float32 else weight
    if not torch.equal(rounded.isfinite(), weight.isfinite()):
        raise ValueError(f"{name} has weights that are too large for float16: save in full")
    return rounded


def _whole(weight: torch.Tensor) -> torch.Tensor:
    """Weights that were stored in half precision, to compute with in single."""
    return weight.float() if weight.dtype == torch.float16 else weight


def _content(metadata: dict[str, str]) -> dict[str, Any]:
    if KEY not in metadata:
        raise ValueError(f"not {KIND}: its metadata lack the key {KEY!r}")
    content = json.loads(metadata[KEY])
    version = content["version"]
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
    return content


def _build(
    content: dict[str, Any], weights: dict[str, torch.Tensor], where: torch.device
) -> Operator:
    kind = content["model"]
    if kind not in MODELS:
        raise ValueError(f"a model of kind {kind!r}, which this lno does not have")
    model_class, config_class = MODELS[kind]
    config, spec = from_dict(config_class, content["config"]), from_dict(Spec, content["spec"])
    count = content.get("members", 1)
    require_count("members", count, 1024)
    # On "meta", sizes that a hostile file claims cost nothing before they are checked.
    with torch.device("meta"):
        model = model_class(spec, config)
    lead = (count,) if count > 1 else ()
    for name, one in model.state_dict().items():
        got, expected = weights.get(name), (*lead, *one.shape)
        if got is None or got.shape != expected or got.dtype != one.dtype:
            found = "nothing" if got is None else f"{tuple(got.shape)} {got.dtype}"
            raise ValueError(f"weight {name}: expected {expected} {one.dtype}, got {found}")
    unknown = sorted(set(weights) - set(model.state_dict()))
    if unknown:
        raise ValueError(f"weight {unknown[0]} does not belong to this model")
    members: list[Model] = []
    for k in range(count):
        member = copy.deepcopy(model)
        member.load_state_dict({n: w[k] if lead else w for n, w in weights.items()}, assign=True)
        members.append(member.requires_grad_(True).eval().to(where))
    scale = Normalizers.from_dict(content["normalizers"])
    sizes = (scale.x.features, scale.in_channels, len(scale.y.mean))
    if sizes != (spec.coordinates, spec.in_channels, spec.out_channels):
        raise ValueError(f"normalisers for {sizes} do not fit the model's {spec}")
    conditional, weighted = content["conditional"], content["weighted"]
    if not isinstance(conditional, bool) or not isinstance(weighted, bool):
        raise ValueError("conditional, weighted: expected true or false")
    query_set = content["query_set"]
    if query_set is not None:
        require_count("query_set", query_set, 10**9)
    return Operator(
        members,
        kind,
        tasks.from_json(content["task"]),
        scale,
        from_dict(Labels, content["labels"]),
        conditional,
        weighted,
        query_set,
        content["provenance"],
    )
