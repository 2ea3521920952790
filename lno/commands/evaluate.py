"""`lno evaluate`: the errors of a trained operator, where they are, and simple baselines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lno.assessment import Assessment, assess
from lno.commands.console import new_app, say, show, show_errors, show_table
from lno.data import Fields
from lno.experiments.runs import model_file
from lno.experiments.sources import held_out_samples, samples_to_test, training_samples
from lno.files import require_folder, write_text
from lno.operator import Operator
from lno.problems import PROBLEMS
from lno.trust import Checked, check

app = new_app()


@app.command(epilog="Example: lno evaluate runs/a --data test.h5 --report page.html")
def evaluate(
    model: Annotated[
        Path, typer.Argument(help="A model file (.safetensors), or the folder of a run.")
    ],
    file: Annotated[
        Path | None, typer.Option("--data", help="A data file with the true outputs.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--report", help="Write a page that shows where the errors are (.html)."),
    ] = None,
    train: Annotated[
        Path | None,
        typer.Option(help="The samples that it was trained on, for the simple baselines."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Print the errors of a model on a data file, or on the test samples of its own problem.

    Of the file that it was trained on, only the test samples count. Of a calibrated model, also the
    share of points inside its bounds, and the share of samples that are out of distribution.

    With --report or --train, the operator is compared with simple baselines: mean and nearest of
    training samples, kernel ridge regression, and kriging where there are sensors.
    """
    path = model_file(model)
    if page is not None:
        require_folder(page.parent)  # before the work
    operator = Operator.load(path, device)
    if file is None:
        test = held_out_samples(operator, path, device)
    else:
        fields = Fields.load(file)
        test = samples_to_test(operator, path, file, fields)
        if test is not fields:
            say(f"{file} is what it was trained on: these are its {len(test)} test samples")
    if page is None and train is None:
        if operator.trust.bounds is not None:
            _show_trust(operator, check(operator, test))
        show_errors(operator.evaluate(test))
        return
    known, reason = training_samples(operator, path, train, file, device)
    assessed = assess(operator, test, known)
    _show(operator, assessed, reason)
    if page is not None:
        _write(page, assessed, f"Where is the error? {model.name} on {_name(file)}", reason)
    show_errors(assessed.errors.means())


def _show(operator: Operator, assessed: Assessment, reason: str) -> None:
    """The verdict, the table, bounds and scores."""
    from lno.report.assessment import comparison

    show(assessed.verdict())
    show_table(comparison(assessed, reason))
    if assessed.trusted is not None:
        _show_trust(operator, assessed.trusted)


def _show_trust(operator: Operator, checked: Checked) -> None:
    bounds = operator.trust.bounds
    assert bounds is not None
    shares = ", ".join(
        f"{name} {100 * share:.1f} %"
        for name, share in zip(operator.labels.names["y"], checked.contained, strict=True)
    )
    show(f"inside the bounds of {100 * bounds.level:g} %: {shares}")
    show(f"out of distribution: {100 * checked.flagged.mean():.1f} % of the samples")


def _write(path: Path, assessed: Assessment, title: str, reason: str) -> None:
    from lno.report.assessment import page

    problem = PROBLEMS.get(str(assessed.fields.provenance.get("problem")))
    write_text(path, page(assessed, title, reason, None if problem is None else problem.view))
    show(f"wrote {path}: look at it in a browser")


def _name(file: Path | None) -> str:
    return "the test samples of its problem" if file is None else file.name
