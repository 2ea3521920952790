"""`lno info`: what a file holds."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from lno.commands.console import new_app, show_lines
from lno.config import to_dict
from lno.data import Fields, columns
from lno.experiments.runs import model_file
from lno.operator import Operator
from lno.training.device import hardware, pick_device
from lno.trust import Trust
from lno.version import __version__

app = new_app()


@app.command(epilog="Example: lno info quickstart/model.safetensors")
def info(
    file: Annotated[
        Path | None,
        typer.Argument(help="A model, the folder of a run, or a data file; none: this machine."),
    ] = None,
) -> None:
    """Describe a model, a data file, or this installation."""
    show_lines(describe_installation() if file is None else describe_file(file))


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
    path = model_file(Path(path))
    kind = path.suffix
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
        key = "x" if name == "x_query" else name
        flat = np.concatenate(list(columns.samples(column, len(fields))))
        lines |= _ranges(name, flat, fields.names[key], fields.units[key])
    if fields.parameters is not None:
        labels = fields.names["parameters"], fields.units["parameters"]
        lines |= _ranges("parameters", np.asarray(fields.parameters), *labels)
    lines["grid"] = "none" if fields.grid is None else "×".join(map(str, fields.grid))
    sizes = {len(sample.x_query) for sample in fields} if fields.is_ragged else set()
    if sizes:
        lines["points"] = f"{min(sizes)} to {max(sizes)} in a sample"
    if (cells := fields[0].cells) is not None:
        lines["cells"] = f"{len(cells)} of {cells.shape[-1]} nodes in the first sample"
    if fields.geometry is not None:
        lines["geometry"] = str(dict(fields.geometry))
    if fields.space < fields.spec.coordinates:
        lines["covariates"] = ", ".join(fields.names["x"][fields.space :])
    given = [
        k for k in ("weights", "query_weights", "background") if getattr(fields, k) is not None
    ]
    if given:
        lines["also"] = ", ".join(given)
    period = fields.period or ()
    some = any(p is not None for p in period)
    shown = ("none" if p is None else f"{p:g}" for p in period)
    lines["period"] = ", ".join(shown) if some else "none"
    lines["frame"] = fields.frame or "not given"
    lines["provenance"] = _listed(fields.provenance)
    lines["digest"] = fields.digest
    return lines


def _ranges(name: str, values: np.ndarray, labels: list[str], units: list[str]) -> dict[str, str]:
    """The range of each column of values (n, c)."""
    found = {}
    for k, (label, unit) in enumerate(zip(labels, units, strict=True)):
        v = values[:, k]
        found[f"{name}: {label}"] = (
            f"{v.min():.6g} to {v.max():.6g}{unit and f' {unit}'}, "
            f"mean {v.mean():.4g}, std {v.std():.4g}"
        )
    return found


def _describe_operator(operator: Operator) -> dict[str, str]:
    labels, origin = operator.labels, operator.provenance
    period = operator.normalizers.x.period
    box = ", ".join(
        f"{name} {low:.4g} to {high:.4g}" + (f" (period {p:g})" if p else "")
        for name, low, high, p in zip(
            labels.names["x"], labels.low, labels.high, period, strict=True
        )
    )
    names = [*labels.names["u"], *labels.names.get("parameters", [])]
    inputs = ", ".join(names) or "positions"
    count = len(operator.members)
    members = f" in {count} members" if count > 1 else ""
    lines = {
        "operator": f"{inputs} → {', '.join(labels.names['y'])}",
        "model": f"{operator.kind}, {operator.parameters:,} weights{members}",
        "config": _listed(to_dict(operator.model.config)),
        "task": str(operator.task),
        "trained in": box,
        "frame": labels.frame or "not given",
        "bounds": _describe_bounds(operator.trust),
    }
    try:
        lines |= _describe_training(origin)
    except (LookupError, TypeError, ValueError, AttributeError):  # not what `fit` writes
        lines["provenance"] = _listed(origin)
    return lines


def _listed(values: Mapping[str, Any]) -> str:
    """Keys and their values, as `--set` takes them."""
    return ", ".join(f"{key}={value}" for key, value in values.items()) or "none"


def _describe_bounds(trust: Trust) -> str:
    bounds = trust.bounds
    if bounds is None:
        return "none: not calibrated"
    return f"{100 * bounds.level:g} %, calibrated on {bounds.samples} held-out samples"


def _describe_training(origin: dict[str, Any]) -> dict[str, str]:
    """How an operator was trained, as far as its file says."""
    if not isinstance(origin.get("data"), dict):
        return {}
    data = {k: v for k, v in origin["data"].items() if k != "digest"}
    lines = {"data": f"{_listed(data)}, digest {str(origin['data']['digest'])[:16]}"}
    lines["recipe"] = _listed(origin["recipe"])
    ended = "" if origin["finished"] else f" of {origin['total_steps']:,}, not finished"
    lines["training"] = (
        f"{origin['steps']:,} steps{ended} ({origin['epochs']:.4g} epochs) in {origin['seconds']} "
        f"s on {origin['hardware']}, seed {origin['seed']}"
    )
    lines["versions"] = f"lno {origin['lno']}, torch {origin['torch']}"
    last = origin["curve"][-1] if origin["curve"] else None
    if last and last["error"] is not None:
        lines["validation"] = f"relative L2 {100 * last['error']:.2f} %"
    return lines
