"""Ways out of an operator: another device, a picture, a table in a notebook, an ONNX file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from lno.data import Fields
from lno.data.checks import described, is_texts, require_instance, require_path
from lno.metrics import relative_l2
from lno.text import html_table, percent, with_unit
from lno.training.device import hardware, pick_device

if TYPE_CHECKING:
    from lno.drawing import Nodes, Panel
    from lno.operator import Operator


class OperatorOutput:
    """What `Operator` shows, and gives to other devices and programs."""

    def to(self, device: str | torch.device) -> Operator:
        """Move the models to a device, "cpu", "cuda" or "mps", and return this operator.

        As in PyTorch, the models themselves are moved, so operators that share them with this one
        (`member`, `on_grid`) move with it.
        """
        operator, where = cast("Operator", self), pick_device(device)
        for model in operator.members:
            model.to(where)
        return operator

    def export(self, path: str | Path) -> float:
        """Write an ONNX file, for programs without PyTorch; needs the extra `export`.

        It maps `x` (samples, points, d), `u`, `x_query` (samples, queries, d) and, where the
        operator has them, `parameters` and `weights`, to `y`, for any numbers of samples, points
        and queries, in physical units. Names, units and the box of training are its metadata. Of a
        rollout it is one step. The graph is compared with PyTorch before anything is written.

        Args:
            path: the file, which ends in .onnx.

        Returns:
            The largest difference to PyTorch, in standard deviations of a channel.
        """
        from lno.export import export_onnx

        require_path("path", path)
        return export_onnx(cast("Operator", self), path)

    def plot(
        self,
        data: Fields,
        k: int = 0,
        *,
        channels: Sequence[str] | None = None,
        at: Mapping[str, float] | None = None,
    ) -> Any:
        """A matplotlib figure of the prediction for sample k, where its nodes lie in space.

        Where the data have outputs: the input, the truth, the prediction and its error, from what
        `evaluate` would observe. Otherwise the input and the prediction.

        Args:
            data: samples.
            k: the number of the sample.
            channels: names of outputs to draw, a row for each; None: the last one.
            at: which slice of three dimensions, like `{"z": 0.5}`; None: the last one.
        """
        require_instance("data", data, Fields, "samples like those of training, Fields(x, u, ...)")
        return _picture(cast("Operator", self), data, k, channels, at)

    def _repr_html_(self) -> str:
        operator = cast("Operator", self)
        labels, origin = operator.labels, operator.provenance
        period = operator.normalizers.x.period
        sides = zip(labels.names["x"], labels.low, labels.high, period, strict=True)
        rows = [
            ["reads", _listed(labels.names, labels.units, "u", "parameters") or "positions"],
            ["at", _listed(labels.names, labels.units, "x")],
            ["predicts", _listed(labels.names, labels.units, "y")],
            ["task", str(operator.task)],
            [
                "trained in",
                ", ".join(
                    f"{low:.4g} ≤ {name} ≤ {high:.4g}" + (f" (period {p:g})" if p else "")
                    for name, low, high, p in sides
                ),
            ],
            ["device", hardware(operator.device)],
        ]
        if "steps" in origin and "seconds" in origin:
            ended = "" if operator.finished else ", not finished"
            rows.append(["training", f"{origin['steps']:,} steps, {origin['seconds']} s{ended}"])
        curve = origin.get("curve") or [{}]
        if curve[-1].get("error") is not None:
            rows.append(["validation", f"relative L2 {percent(curve[-1]['error'])}"])
        return html_table(repr(self), rows)


def _listed(names: Mapping[str, list[str]], units: Mapping[str, list[str]], *keys: str) -> str:
    pairs = [p for key in keys for p in zip(names.get(key, []), units.get(key, []), strict=True)]
    return ", ".join(with_unit(name, unit) for name, unit in pairs)


def _picture(
    operator: Operator,
    data: Fields,
    k: int,
    channels: Sequence[str] | None,
    at: Mapping[str, float] | None,
) -> Any:
    from lno.data.pictures import nodes_of_sample, slice_title
    from lno.drawing import Panel, connected, error_scale, figure_of, scale_of

    data[k]  # raises where there is no such sample
    one, task = data.subset([k]), operator.task
    if one.y is not None:
        one = task.prepare(one)
        generator = torch.Generator().manual_seed(0)
        batch = task.observe(one.batch([0]), one.spec.grid, generator)
        predicted = operator.predict_batch(batch).mean()
        x, u, truth = batch.x[0].numpy(), batch.u[0].numpy(), batch.y
    else:
        predicted = torch.as_tensor(np.asarray(operator.predict(one)[0]))[None]
        x, u, truth = one[0].x, one[0].u, None
    nodes = connected(nodes_of_sample(one, 0, at=at))
    first = _input_panels(operator, one, nodes, x, u)
    rows, title = [], f"sample {k % len(data)}"
    for c in _drawn_channels(operator, one, channels):
        unit = operator.labels.units["y"][c]
        name = with_unit(operator.labels.names["y"][c], unit)
        values = predicted[0, :, c].numpy()
        if truth is None:
            rows.append([*first, Panel(f"prediction: {name}", nodes, values)])
            continue
        known = truth[0, :, c].numpy()
        wrong, scale = np.abs(values - known), scale_of(nodes.shown(known))
        rows.append(
            [
                *first,
                Panel(f"truth: {name}", nodes, known, scale),
                Panel(f"prediction: {name}", nodes, values, scale),
                Panel(
                    with_unit("absolute error", unit), nodes, wrong, error_scale(nodes.shown(wrong))
                ),
            ]
        )
    if truth is not None:
        title += f", relative L2 error {100 * float(relative_l2(predicted, truth.float())):.3g} %"
    return figure_of(rows, slice_title(title, nodes))


def _input_panels(
    operator: Operator, one: Fields, nodes: Nodes, x: np.ndarray, u: np.ndarray
) -> list[Panel]:
    """The last channel of what is observed, at the nodes or where it is observed."""
    from lno.data.pictures import observed_nodes
    from lno.drawing import Panel

    positions = (one.geometry or {}).get("u", ())
    names = operator.labels.names["u"]
    others = [c for c, name in enumerate(names) if name not in positions]
    if not others:
        return []
    last, unit = others[-1], operator.labels.units["u"][others[-1]]
    title, values = f"input: {with_unit(names[last], unit)}", u[:, last]
    if one.same_points and len(x) == len(one[0].x_query):
        return [Panel(title, nodes, values)]
    if one.geometry is not None or len(nodes.names) != one.space:
        return []  # observed points are not known where the picture is
    return [Panel(title, observed_nodes(one, x), values, domain=nodes)]


def _drawn_channels(operator: Operator, one: Fields, channels: Sequence[str] | None) -> list[int]:
    """Which output channels to draw."""
    names = operator.labels.names["y"]
    if channels is not None and not (is_texts(channels) and set(channels) <= set(names)):
        raise ValueError(
            f"channels: expected names among {', '.join(names)}, got {described(channels)}"
        )
    positions = (one.geometry or {}).get("y", ())
    wanted = channels or [name for name in names if name not in positions][-1:] or names[-1:]
    return [names.index(name) for name in wanted]
