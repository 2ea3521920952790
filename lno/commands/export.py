"""`lno export`: a trained operator for programs without PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lno.commands.console import new_app, show, show_lines
from lno.experiments.runs import model_file
from lno.export import inputs
from lno.operator import Operator

app = new_app()


@app.command(epilog="Example: lno export model.safetensors --onnx model.onnx")
def export(
    model: Annotated[
        Path, typer.Argument(help="A model file (.safetensors), or the folder of a run.")
    ],
    onnx: Annotated[Path, typer.Option("--onnx", help="The ONNX file to write.")],
) -> None:
    """Write a trained operator as an ONNX file, for programs without PyTorch.

    It takes any numbers of samples, points and queries in physical units, and is compared with
    PyTorch at three sizes before it is written. Of a rollout it is one step. Needs the packages of
    the extra "export".
    """
    operator = Operator.load(model_file(model), "cpu")
    difference = operator.export(onnx)
    size = onnx.stat().st_size / 1e6
    show(f"wrote {onnx}: {size:.1f} MB, at most {difference:.1g} standard deviations from PyTorch")
    show_lines({name: " × ".join(map(str, shape)) for name, shape in inputs(operator).items()})
