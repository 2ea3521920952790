"""`lno evaluate`: the errors of a trained operator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lno.commands.console import new_app, show_errors
from lno.data import Fields
from lno.experiments.sources import held_out_samples
from lno.operator import Operator

app = new_app()


@app.command(epilog="Example: lno evaluate runs/darcy/model.safetensors")
def evaluate(
    model: Annotated[Path, typer.Argument(help="A model file (.safetensors).")],
    file: Annotated[Path | None, typer.Option("--data", help="A data file with answers.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Print the errors of a model on a data file, or on the test samples of its own data set."""
    operator = Operator.load(model, device)
    test = Fields.load(file) if file is not None else held_out_samples(operator, model, device)
    show_errors(operator.evaluate(test))
