"""Operators as ONNX graphs, for programs without PyTorch.

A graph maps what `Operator.predict` reads to what it returns, in physical units: normalisation,
periodic encoding, parameters and the mean over members are inside. The numbers of samples, of
observed points and of query points are free. Before a file is written, the graph is compared with
PyTorch at several sizes.
"""

from __future__ import annotations

import copy
import io
import json
import logging
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from lno.data import Batch
from lno.data.normalize import Standardizer
from lno.files import replacing
from lno.models import MODELS, Model, apply_model
from lno.prediction import predictions_at
from lno.tasks import Rollout, Snapshots, to_json
from lno.text import visible
from lno.training.precision import matmul_precision
from lno.version import __version__

if TYPE_CHECKING:
    from lno.operator import Operator

OPSET = 20  # of ONNX; runtimes from 2024 on have it
TRACED = (2, 7, 5)  # samples, points and queries; none is one, which would count as fixed
SIZES = ((1, 3, 1), (2, 64, 33), (3, 257, 129))  # that are compared
TOLERANCE = 1e-4  # of the standard deviation of a channel, between the graph and PyTorch
FAR = 1e3  # standard deviations from zero: beyond, single precision would lose digits
# What models compute that ONNX has no operator for.
NO_OPERATOR = {
    **dict.fromkeys(("fno", "geofno", "ffno", "ufno"), "complex Fourier transforms"),
    "ono": "Cholesky factorisations",
}
INSTALL = "pip install 'latent-neural-operator[export]'"


class Graph(nn.Module):
    """What `Operator.predict` computes for samples without padding, in physical units."""

    def __init__(self, operator: Operator) -> None:
        super().__init__()
        self.scale, self.task, self.weighted = (
            operator.normalizers,
            operator.task,
            operator.weighted,
        )
        self.models = nn.ModuleList(operator.members)

    def forward(
        self,
        x: Tensor,
        u: Tensor | None = None,
        x_query: Tensor | None = None,
        parameters: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Predictions (b, q, o) at x_query, or at x if the model predicts nowhere else."""
        values = x.new_zeros(*x.shape[:2], 0) if u is None else u
        where = x if x_query is None else x_query
        batch = Batch(x, values, where, parameters=parameters, weights=weights)
        ready = self.task.model_input(self.scale.encode(batch))
        models = cast("Iterable[Model]", self.models)
        each = [self.task.model_output(apply_model(m, ready, self.weighted), ready) for m in models]
        return self.scale.decode(each[0] if len(each) == 1 else torch.stack(each).mean(0))


def export_onnx(operator: Operator, path: str | Path) -> float:
    """Write an operator as an ONNX file, atomically, unless it differs from PyTorch.

    Args:
        operator: a trained operator.
        path: the file, which ends in .onnx.

    Returns:
        The largest difference to PyTorch, in standard deviations of a channel.
    """
    if Path(path).suffix != ".onnx":
        raise ValueError(f"cannot write {path}: expected a name ending in .onnx")
    require_exportable(operator)
    onnx, runtime = _libraries()
    used = _on_cpu(operator)
    proto = _convert(used)
    _describe(proto, used, onnx)
    try:
        content = proto.SerializeToString()
    except ValueError as error:  # of protobuf
        raise ValueError(f"the model is too large for one ONNX file: {error}") from error
    found = _difference(content, used, runtime)
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return found


def require_exportable(operator: Operator) -> None:
    """Raise unless the prediction of an operator is one graph."""
    if operator.kind in NO_OPERATOR:
        *others, last = (kind for kind in MODELS if kind not in NO_OPERATOR)
        raise ValueError(
            f"{operator.kind} cannot be exported: ONNX has no operator for its "
            f"{NO_OPERATOR[operator.kind]}. Train one of {', '.join(others)} or {last}"
        )
    if operator.conditional:
        raise ValueError(
            "the operator is conditional: its predictions are corrected by kriging, which is no "
            "graph. Export its models alone, dataclasses.replace(op, conditional=False)"
        )
    if operator.query_set is not None:
        raise ValueError(
            f"{operator.kind} predicts in random sets of {operator.query_set} queries, which is no "
            "graph: train it without Recipe.queries, or use lno"
        )


def inputs(operator: Operator) -> dict[str, tuple[Any, ...]]:
    """The inputs of a graph: their shapes, where a text is a free size."""
    model, labels = operator.model, operator.labels
    grid = model.spec.grid if model.needs_grid else None
    points: int | str = "points" if grid is None else prod(grid)
    found: dict[str, tuple[Any, ...]] = {"x": ("samples", points, len(labels.names["x"]))}
    if labels.names["u"]:
        found["u"] = ("samples", points, len(labels.names["u"]))
    if model.predicts_anywhere:
        found["x_query"] = ("samples", "queries", len(labels.names["x"]))
    if operator.normalizers.parameters is not None:
        found["parameters"] = ("samples", len(labels.names["parameters"]))
    if operator.weighted and model.reads_weights:
        found["weights"] = ("samples", points)
    return found


def examples(operator: Operator, sizes: tuple[int, int, int], seed: int) -> dict[str, Tensor]:
    """Random inputs like those of training, with `sizes` samples, points and queries."""
    scale, labels = operator.normalizers, operator.labels
    generator = torch.Generator().manual_seed(seed)
    free = dict(zip(("samples", "points", "queries"), sizes, strict=True))
    found = {}
    for name, shape in inputs(operator).items():
        size = tuple(free.get(n, n) for n in shape)
        if name in ("x", "x_query"):
            low, high = (torch.tensor(v, dtype=torch.float64) for v in (labels.low, labels.high))
            random = torch.rand(size, generator=generator, dtype=torch.float64)
            found[name] = _rounded(low + (high - low) * random, scale.x.scale)
        elif name == "weights":
            found[name] = torch.rand(size, generator=generator) + 0.5
        else:
            own = scale.u if name == "u" else scale.parameters
            assert own is not None
            random = torch.randn(size, generator=generator, dtype=torch.float64)
            found[name] = _rounded(own.decode(random), own)
    return found


def _rounded(values: Tensor, scale: Standardizer) -> Tensor:
    """In single precision, unless that would lose digits of values far from zero."""
    far = any(abs(m) > FAR * s for m, s in zip(scale.mean, scale.std, strict=True))
    return values if far else values.float()


def _on_cpu(operator: Operator) -> Operator:
    """A copy that computes on the CPU."""
    return replace(operator, members=[copy.deepcopy(m).cpu().eval() for m in operator.members])


def capture(operator: Operator) -> torch.export.ExportedProgram:
    """The graph of an operator on the CPU, with free numbers of samples, points and queries."""
    free = {name: torch.export.Dim(name) for name in ("samples", "points", "queries")}
    shapes = {
        name: {k: free[n] for k, n in enumerate(shape) if isinstance(n, str)}
        for name, shape in inputs(operator).items()
    }
    given = examples(operator, TRACED, seed=0)
    with torch.no_grad():
        return torch.export.export(Graph(operator).eval(), (), given, dynamic_shapes=shapes)


def _convert(operator: Operator) -> Any:
    """The graph as an ONNX model in memory."""
    try:
        with _quietly():
            program = torch.onnx.export(
                capture(operator),
                input_names=list(inputs(operator)),
                output_names=["y"],
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
            assert program is not None
            return program.model_proto
    except Exception as error:  # whatever a model does that has no counterpart in ONNX
        first: BaseException = error
        while first.__cause__ is not None:  # PyTorch's own message is advice to its developers
            first = first.__cause__
        reason = str(first).strip().splitlines() or [type(first).__name__]
        raise ValueError(
            f"{operator.kind} cannot be exported to ONNX: {visible(reason[0])[:200]}"
        ) from error


def _describe(proto: Any, operator: Operator, onnx: Any) -> None:
    """Names, units and the box of training as metadata; free sizes by name."""
    labels, task, shapes = operator.labels, operator.task, inputs(operator)
    names, units = dict(labels.names), dict(labels.units)
    what = "one prediction"
    if isinstance(task, Rollout):
        what = "one step of a rollout: the next frame"
        names["y"], units["y"] = names["y"][: task.channels], units["y"][: task.channels]
    elif isinstance(task, Snapshots):
        what = "one snapshot: all points of x have the same time, its last coordinate"
    content = {
        "lno": __version__,
        "model": operator.kind,
        "graph": what,
        "task": to_json(task),
        "names": names,
        "units": units,
        "frame": labels.frame,
        "low": labels.low,
        "high": labels.high,
        "period": operator.normalizers.x.period,
    }
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in content.items()}
    onnx.helper.set_model_props(proto, texts)
    points = "points" if "x_query" not in shapes else "queries"
    shapes["y"] = ("samples", shapes["x"][1] if points == "points" else points, len(names["y"]))
    for value in (*proto.graph.input, *proto.graph.output):
        key = "x" if value.name == "x_query" else value.name
        pairs = zip(names.get(key, []), units.get(key, []), strict=True)
        value.doc_string = ", ".join(f"{name} [{unit}]" if unit else name for name, unit in pairs)
        for size, known in zip(value.type.tensor_type.shape.dim, shapes[value.name], strict=True):
            if isinstance(known, str):
                size.dim_param = known


def _difference(content: bytes, operator: Operator, runtime: Any) -> float:
    """The largest difference between the graph and PyTorch; raises where it is too large."""
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors
    try:
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        reason = str(error).splitlines()[0][:200]
        raise ValueError(
            f"onnxruntime cannot read the graph of {operator.kind}: {reason}"
        ) from error
    largest = 0.0
    for seed, sizes in enumerate(SIZES):
        given = examples(operator, sizes, seed)
        expected = predicted(operator, given)
        got = session.run(None, {name: values.numpy() for name, values in given.items()})[0]
        std = np.array(operator.normalizers.y.std)
        rounding = 4 * np.finfo(np.float32).eps * np.abs(expected)  # of values far from zero
        wrong = np.maximum(np.abs(got - expected) - rounding, 0) / std
        largest = max(largest, float(wrong.max()))
        if not largest <= TOLERANCE:  # NaN is no number below
            raise ValueError(
                f"the ONNX graph of {operator.kind} differs from PyTorch by {largest:.2g} standard "
                f"deviations for {sizes[0]} samples, {sizes[1]} points and {sizes[2]} queries, "
                f"expected at most {TOLERANCE:g}: nothing was written"
            )
    return largest


@torch.inference_mode()
def predicted(operator: Operator, given: dict[str, Tensor]) -> np.ndarray:
    """What `lno.prediction` makes of the inputs of a graph."""
    values = given.get("u", given["x"].new_zeros(*given["x"].shape[:2], 0))
    others = {key: given.get(key) for key in ("parameters", "weights")}
    batch = Batch(given["x"], values, given.get("x_query", given["x"]), **others)
    with matmul_precision("fp32"):
        at = batch.x_query
        found = [predictions_at(operator, model, batch, at)[0] for model in operator.members]
    return operator.normalizers.decode(torch.stack(found).mean(0)).numpy()


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the notes of the exporter on what it tries."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _libraries() -> tuple[Any, Any]:
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  (PyTorch's exporter needs it)
    except ImportError as error:
        raise RuntimeError(f"{error.name} is not installed: {INSTALL}") from error
    return onnx, onnxruntime
