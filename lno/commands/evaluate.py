"""`lno evaluate`: the errors of a trained operator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lno.commands.console import new_app, say, show, show_errors
from lno.data import Fields
from lno.experiments.sources import held_out_samples, samples_to_test
from lno.operator import Operator
from lno.trust import check

app = new_app()


@app.command(epilog="Example: lno evaluate runs/darcy/model.safetensors")
def evaluate(
    model: Annotated[Path, typer.Argument(help="A model file (.safetensors).")],
    file: Annotated[Path | None, typer.Option("--data", help="A data file with answers.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Print the errors of a model on a data file, or on the test samples of its own problem.

    Of the file that it was trained on, only the test samples count. Of a calibrated model, also the
    share of points inside its bounds, and the share of samples that are out of distribution.
    """
    operator = Operator.load(model, device)
    if file is None:
        test = held_out_samples(operator, model, device)
    else:
        fields = Fields.load(file)
        test = samples_to_test(operator, model, file, fields)
        if test is not fields:
            say(f"{file} is what it was trained on: these are its {len(test)} test samples")
    bounds = operator.trust.bounds
    if bounds is not None:
        found = check(operator, test)
        shares = ", ".join(
            f"{name} {100 * share:.1f} %"
            for name, share in zip(operator.labels.names["y"], found.contained, strict=True)
        )
        show(f"inside the bounds of {100 * bounds.level:g} %: {shares}")
        show(f"out of distribution: {100 * found.flagged:.1f} % of the samples")
    show_errors(operator.evaluate(test))
