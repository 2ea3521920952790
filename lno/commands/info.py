"""`lno info`: what a file holds."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import torch

from lno import __version__
from lno.config import to_dict
from lno.data import Fields, columns
from lno.operator import Operator
from lno.tasks import to_json
from lno.training.device import hardware, pick_device


def describe_installation() -> dict[str, str]:
    """Versions and the device that would be used."""
    return {
        "lno": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": hardware(pick_device()),
    }


def describe_file(path: str | Path) -> dict[str, str]:
    """What a model or data file holds, as lines of key and value."""
    kind = Path(path).suffix
    if kind in (".h5", ".hdf5"):
        return describe_fields(Fields.load(path))
    if kind == ".safetensors":
        return _describe_operator(Operator.load(path, device="cpu"))
    raise ValueError(f"{path}: expected a model (.safetensors) or a data file (.h5)")


def describe_fields(fields: Fields) -> dict[str, str]:
    """What data hold, as lines of key and value."""
    lines = {"data": repr(fields)}
    for name in ("x", "u", "x_query", "y"):
        column = fields.column(name)
        if column is None or columns.channels(column) == 0:
            continue
        labels = fields.names["x" if name == "x_query" else name]
        units = fields.units["x" if name == "x_query" else name]
        flat = np.concatenate(list(columns.samples(column, len(fields))))
        for k, (label, unit) in enumerate(zip(labels, units, strict=True)):
            values = flat[:, k]
            lines[f"{name}: {label}"] = (
                f"{values.min():.6g} to {values.max():.6g}{unit and f' {unit}'}, "
                f"mean {values.mean():.4g}, std {values.std():.4g}"
            )
    lines["grid"] = "none" if fields.grid is None else "×".join(map(str, fields.grid))
    lines["period"] = str(fields.period)
    lines["frame"] = fields.frame or "not given"
    lines["provenance"] = str(fields.provenance)
    lines["hash"] = fields.hash
    return lines


def _describe_operator(operator: Operator) -> dict[str, str]:
    labels, origin = operator.labels, operator.provenance
    period = operator.normalizers.x.period
    box = ", ".join(
        f"{name} {low:.4g} to {high:.4g}" + (f" (period {p:g})" if p else "")
        for name, low, high, p in zip(
            labels.names["x"], labels.low, labels.high, period, strict=True
        )
    )
    inputs = ", ".join(labels.names["u"]) or "positions"
    count = len(operator.members)
    members = f" in {count} members" if count > 1 else ""
    lines = {
        "operator": f"{inputs} → {', '.join(labels.names['y'])}",
        "model": f"{operator.kind}, {operator.parameters:,} weights{members}",
        "config": str(to_dict(operator.model.config)),
        "task": str(to_json(operator.task)),
        "trained in": box,
        "frame": labels.frame or "not given",
    }
    if "data" in origin:
        data = {k: v for k, v in origin["data"].items() if k != "hash"}
        lines["data"] = f"{data}, sha256 {origin['data']['hash'][:16]}"
        lines["recipe"] = str(origin["recipe"])
        lines["training"] = f"{origin['seconds']} s on {origin['hardware']}, seed {origin['seed']}"
        lines["versions"] = f"lno {origin['lno']}, torch {origin['torch']}"
        last = origin["curve"][-1] if origin["curve"] else None
        if last and last["error"] is not None:
            lines["validation"] = f"relative L2 {100 * last['error']:.2f} %"
    return lines
