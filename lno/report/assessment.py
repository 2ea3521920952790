"""The page of an assessment: where the errors of an operator are, and simple baselines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
from matplotlib.figure import Figure

from lno.assessment import OPERATOR, Assessment, Rival
from lno.data.pictures import nodes_of_sample
from lno.drawing import Nodes, Panel, View, error_scale, figure_of, scale_of
from lno.report import error_figures as figures
from lno.report import html
from lno.report.tables import Table
from lno.text import amount, with_unit

CHANNELS = 3  # of a sample, at most, that are drawn: those with the largest errors
MARKS = 1000  # observed points that are marked, at most
PARAMETERS = 12  # that are drawn, at most
WHAT = (
    "Errors of samples are relative L2 errors. Pointwise errors are absolute, in standard "
    "deviations of the channel, averaged over channels. Distances are in standardised coordinates. "
    "Lines are medians of bins with about equally many samples or points; bands are the "
    "interquartile range."
)
NOTHING_SIMPLE = "No simple baselines: {}. Name the training samples: --train FILE."


def comparison(assessed: Assessment, reason: str = "") -> Table:
    """The errors of the operator and of simple baselines, the best first."""

    def mean(rival: Rival, name: str = "relative_l2") -> float:
        return float(np.nanmean(rival.errors[name]))

    own, rows, notes = assessed.rivals[0].errors["relative_l2"], [], []
    for rival in sorted(assessed.rivals, key=mean):
        errors = rival.errors["relative_l2"]
        known = ~np.isnan(errors)
        better = f"{int((own < errors)[known].sum())} of {int(known.sum())}"
        rows.append(
            [
                rival.name,
                *(f"{100 * mean(rival, key):.3f} %" for key in ("relative_l2", "relative_mae")),
                f"{mean(rival, 'mse'):.3e}",
                f"{100 * float(np.nanmax(errors)):.3g} %",
                "" if rival.name == OPERATOR else better,
            ]
        )
        notes += [f"{rival.name.capitalize()}: {rival.note}."] if rival.note else []
    notes += [f"No {name}: {why}." for name, why in assessed.left_out.items()]
    if assessed.seen:
        notes.append(
            f"{assessed.seen} of these {len(own)} samples are among the training samples: they are "
            "no test. Leave them out."
        )
    if len(assessed.rivals) == 1:
        why = reason or "the training samples are not known"
        notes.append(NOTHING_SIMPLE.format(why))
    header = ["method", "relative L2", "relative MAE", "MSE", "worst sample", "operator better on"]
    return Table("Comparison with simple baselines", header, rows, notes)


def page(assessed: Assessment, title: str, reason: str = "", view: View | None = None) -> str:
    """The whole page.

    Args:
        assessed: the errors.
        title: of the page: which operator on which samples.
        reason: why there are no training samples to compare with, if there are none.
        view: the part of the domain that pictures show; None: all.
    """
    body = [html.paragraph(assessed.verdict()), *_comparison(assessed, reason)]
    body += [*_samples(assessed, view), *_by_channel(assessed), *_by_frame(assessed)]
    body += [*_by_parameter(assessed), *_by_place(assessed), *_trust(assessed)]
    body += [html.heading("How to read this"), html.paragraph(WHAT, note=True)]
    return html.page(title, body)


# -- sections --------------------------------------------------------------------------------------


def _drawn(caption: str, figure: Figure) -> list[str]:
    return [html.paragraph(caption, note=True), html.picture(figure, caption)]


def _comparison(assessed: Assessment, reason: str) -> Iterator[str]:
    table = comparison(assessed, reason)
    yield html.heading(table.title)
    yield html.table(table.header, table.rows)
    for note in table.notes:
        yield html.paragraph(note, note=True)


def _samples(assessed: Assessment, view: View | None) -> Iterator[str]:
    """The histogram, and the worst, the median and the best sample."""
    errors = assessed.relative
    order = np.argsort(-errors)
    yield html.heading("Samples")
    if len(order) > 1:
        low, middle, high = (100 * np.quantile(errors, q) for q in (0.1, 0.5, 0.9))
        caption = f"Errors of {len(errors)} samples: one in ten is below {low:.3g} %, half are "
        caption += f"below {middle:.3g} %, nine in ten below {high:.3g} %."
        yield from _drawn(caption, figures.histogram(errors))
    ranks = {"worst": order[0], "median": order[len(order) // 2], "best": order[-1]}
    shown: set[int] = set()
    for rank, k in ranks.items():
        if int(k) in shown:
            continue
        shown.add(int(k))
        title = f"{rank.capitalize()} sample" if len(order) > 1 else "The sample"
        caption = f"{title}: number {k}, from 0 on, with an error of {100 * errors[k]:.3g} %"
        caption += f"{_parameters(assessed, int(k))}."
        try:
            yield from _drawn(caption, _picture(assessed, int(k), view))
        except ValueError as error:
            yield html.paragraph(f"{caption} No picture: {error}", note=True)


def _by_channel(assessed: Assessment) -> Iterator[str]:
    if len(assessed.channels) < 2:
        return
    yield html.heading("By channel")
    means = {name: float(errors.mean()) for name, errors in assessed.channels.items()}
    worst = max(means, key=lambda name: means[name])
    caption = "Mean relative L2 error of each output channel; the largest is that of "
    caption += f"{worst}, {100 * means[worst]:.3g} %."
    yield from _drawn(caption, figures.bars(assessed.channels))


def _by_frame(assessed: Assessment) -> Iterator[str]:
    frames = assessed.errors.frames
    if len(frames) < 2:
        return
    yield html.heading("By frame")
    caption = f"Mean relative L2 error of each frame of the rollout: {100 * frames[0]:.3g} % in "
    caption += f"the first, {100 * frames[-1]:.3g} % in the last."
    yield from _drawn(caption, figures.frames(frames))


def _by_parameter(assessed: Assessment) -> Iterator[str]:
    yield html.heading("By parameter")
    found = assessed.by_parameter()
    if not found:
        yield html.paragraph("The samples have no parameters.", note=True)
        return
    if len(assessed.samples) == 1:
        yield html.paragraph("One sample says nothing about parameters.", note=True)
        return
    for number, (name, (values, curve)) in zip(count(), found.items(), strict=False):
        if number == PARAMETERS:
            left = len(found) - PARAMETERS
            yield html.paragraph(f"{left} further parameters are not shown.", note=True)
            return
        trend = "" if curve is None else _trend(curve.median, 100, " %")
        caption = f"Error of each sample by {name}{trend}."
        label = with_unit(name, assessed.fields.units["parameters"][number])
        yield from _drawn(caption, figures.scatter(values, assessed.relative, curve, label))


def _by_place(assessed: Assessment) -> Iterator[str]:
    yield html.heading("By place")
    if assessed.distances is not None:
        caption = "Error at points by the distance from the nearest observation"
        caption += f"{_trend(assessed.distances.median)}."
        yield from _drawn(
            caption, figures.curve(assessed.distances, "distance from the nearest observation")
        )
    else:
        words = "No distances: predictions are at the observed points, or at very few others."
        yield html.paragraph(words, note=True)
    if assessed.spacings is not None:
        caption = "Error at points by the mean distance of the nearest points: dense to the left, "
        caption += f"sparse to the right{_trend(assessed.spacings.median)}."
        yield from _drawn(
            caption, figures.curve(assessed.spacings, "distance of the nearest points")
        )
    else:
        yield html.paragraph("Points are equally dense everywhere, or few.", note=True)


def _trust(assessed: Assessment) -> Iterator[str]:
    yield html.heading("Bounds and out-of-distribution scores")
    trusted = assessed.trusted
    if trusted is None:
        words = "The operator has neither: `Operator.calibrated` makes them from held-out samples."
        yield html.paragraph(words, note=True)
        return
    names = list(assessed.fields.names["y"])
    inside = ", ".join(
        f"{name} {100 * share:.1f} %"
        for name, share in list(zip(names, trusted.contained, strict=True))[:8]
    )
    more = f", and {len(names) - 8} more" if len(names) > 8 else ""
    yield html.paragraph(f"Inside the bounds of {100 * trusted.level:g} %: {inside}{more}.")
    if trusted.levels:
        caption = "Share of points inside bounds against their nominal level, a line for each "
        caption += "channel; the large mark is the operator's own bounds. For the other levels, "
        caption += (
            "half of these samples give the factor of the bounds, and the others are counted."
        )
        yield from _drawn(caption, figures.calibration(trusted, names))
    flagged = int(trusted.flagged.sum())
    total, each = len(trusted.worst), trusted.scores.items()
    counts = ", ".join(f"{name} {int((~(v <= 1)).sum())}" for name, v in each)
    yield html.paragraph(f"Out of distribution: {flagged} of {total} samples ({counts}).")
    if 0 < flagged < total:
        errors = assessed.relative
        pair = (100 * errors[part].mean() for part in (trusted.flagged, ~trusted.flagged))
        words = "Mean error of the flagged samples {:.3g} %, of the others {:.3g} %."
        yield html.paragraph(words.format(*pair))
    if total > 1:
        caption = "Error of each sample by its largest score, in units of the threshold; samples "
        caption += "to the right of the line are out of distribution."
        yield from _drawn(caption, figures.scores(trusted.worst, assessed.relative))


# -- parts -----------------------------------------------------------------------------------------


def _trend(medians: Sequence[float] | np.ndarray, factor: float = 1.0, unit: str = "") -> str:
    first, last = (factor * float(medians[k]) for k in (0, -1))
    return f": {first:.3g}{unit} at the left end, {last:.3g}{unit} at the right end"


def _parameters(assessed: Assessment, k: int) -> str:
    values = assessed.samples[k].parameters
    if values is None:
        return ""
    names, units = (v["parameters"] for v in (assessed.fields.names, assessed.fields.units))
    each = zip(names, values, units, strict=True)
    shown = [f"{name} = {amount(f'{value:.4g}', unit)}" for name, value, unit in each]
    return f", at {', '.join(shown[:PARAMETERS])}"


def _picture(assessed: Assessment, k: int, view: View | None) -> Figure:
    """Truth, prediction and error of a sample, in a row for each channel that is shown."""
    fields, one, found = assessed.fields, assessed.samples[k], assessed.predictions[k]
    assert one.y is not None
    nodes = nodes_of_sample(fields, k, view)
    names, units = fields.names["y"], fields.units["y"]
    shown = [(names[c], units[c], one.y[:, c], found[:, c]) for c in _shown(assessed, k)]
    if len(nodes.axes) == 1:
        elsewhere = fields.geometry is None and assessed.distances is not None
        return figures.lines(nodes, shown, one.x[:, 0] if elsewhere else None)
    rows = []
    for channel, unit, truth, predicted in shown:
        name = with_unit(channel, unit)
        scale, wrong = scale_of(nodes.shown(truth)), np.abs(predicted - truth)
        rows.append(
            [
                Panel(f"truth: {name}", nodes, truth, scale, _marks(assessed, k, nodes)),
                Panel(f"prediction: {name}", nodes, predicted, scale),
                Panel(
                    with_unit("absolute error", unit), nodes, wrong, error_scale(nodes.shown(wrong))
                ),
            ]
        )
    return figure_of(rows)


def _shown(assessed: Assessment, k: int) -> list[int]:
    """The channels of a sample to draw: those with the largest errors; of a rollout, frames."""
    truth, found = assessed.samples[k].y, assessed.predictions[k]
    assert truth is not None
    channels, frames = found.shape[1], len(assessed.errors.frames)
    if frames > 1:
        step = channels // frames
        return [int(f) * step + step - 1 for f in np.unique([0, frames // 2, frames - 1])]
    size = np.maximum(np.square(truth).mean(0), 1e-30)
    worst = np.argsort(-np.square(found - truth).mean(0) / size)[:CHANNELS]
    return sorted(worst.tolist())


def _marks(assessed: Assessment, k: int, nodes: Nodes) -> np.ndarray | None:
    """The observed points, where they are others than the query points and not too many."""
    one, space = assessed.samples[k], assessed.fields.space
    elsewhere = assessed.distances is not None and assessed.fields.geometry is None
    return one.x if elsewhere and len(one.x) <= MARKS and space == len(nodes.axes) else None
