"""The paper's drawings of its model and of the inverse problem, made with real models and data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from lno.data import Fields, Spec
from lno.data.fields import Sample
from lno.data.observe import Intervals, Pattern, RandomRatio
from lno.experiments.datasets import protocol_of
from lno.experiments.inverse import observed
from lno.experiments.presets import PAPER_CONFIGS, WINDOW
from lno.models import LNO
from lno.problems import Burgers
from lno.problems.make import make
from lno.reconstruct import Reconstruction, Reconstructor
from lno.report.fields import ERROR, FIELD, INK
from lno.report.plots import Plane, draw_field

GEOMETRIC, LATENT, EDGE = "#e8f1fb", "#fdf0e3", "#8893a3"
SHOWN = 4  # latent positions
RATIO = 0.01  # of the points inside the window, which are observed
GAPS = ((4, 4), (16, 4), (4, 16), (16, 16))  # in t and x


def architecture() -> Figure:
    """The parts of LNO with the weights of each, for the paper's sizes on Darcy flow."""
    config = PAPER_CONFIGS["darcy"]
    with torch.device("meta"):  # sizes alone
        model = LNO(Spec(coordinates=2, in_channels=1, out_channels=1), config)
    count = {
        name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()
    }
    figure = Figure(figsize=(8.4, 3.9), layout="constrained")
    axis = figure.subplots()
    axis.set(xlim=(0, 84), ylim=(0, 39))
    axis.set_axis_off()
    tokens = f"{config.blocks} blocks\non {config.latents} tokens\nof {config.width}"
    boxes = {
        "observed": ((1, 14), 11, 12, "observations\npositions x\nvalues u\n(any number)", None),
        "branch": ((17, 23), 12, 7, f"branch\n{count['branch']:,}", GEOMETRIC),
        "trunk": ((17, 10), 12, 7, f"trunk\n{count['trunk']:,}", GEOMETRIC),
        "projector": ((34, 2), 16, 7, f"attention-projector\n{count['encoder']:,}", GEOMETRIC),
        "encode": ((34, 23), 9, 7, "encode", LATENT),
        "blocks": ((47, 20), 11, 13, f"{tokens}\n{count['blocks']:,}", LATENT),
        "decode": ((62, 23), 9, 7, "decode", LATENT),
        "head": ((74, 23), 9, 7, f"MLP\n{count['head']:,}", GEOMETRIC),
        "queries": ((60, 2), 13, 7, "query positions\n(any number)", None),
        "answers": ((74, 10), 9, 7, "values\nthere", None),
    }  # fmt: skip
    for (x, y), w, h, text, colour in boxes.values():
        if colour is not None:
            style = "round,pad=0,rounding_size=1"
            axis.add_patch(FancyBboxPatch((x, y), w, h, style, fc=colour, ec=EDGE, lw=1))
        axis.text(x + w / 2, y + h / 2, text, ha="center", va="center", fontsize=9, color=INK)
    for path in (
        ((12, 22), (17, 26)),
        ((12, 18), (17, 14)),
        ((29, 26.5), (34, 26.5)),
        ((26, 10), (34, 6.5)),
        ((38.5, 9), (38.5, 23)),
        ((43, 26.5), (47, 26.5)),
        ((58, 26.5), (62, 26.5)),
        ((49, 9), (66.5, 23)),
        ((71, 26.5), (74, 26.5)),
        ((78.5, 23), (78.5, 17)),
        ((60, 5.5), (50, 5.5)),
    ):
        arrow = FancyArrowPatch(*path, arrowstyle="-|>", mutation_scale=10, color=EDGE, lw=1.2)
        axis.add_patch(arrow)
    axis.text(36, 16, "scores", fontsize=8, color=EDGE, rotation=90, va="center", ha="center")
    axis.text(61, 14.6, "scores", fontsize=8, color=EDGE, rotation=38, va="center", ha="center")
    axis.text(55.5, 7, "trunk", fontsize=8, color=EDGE, ha="center")
    total = sum(count.values())
    axis.text(
        1, 36.5, f"LNO for Darcy flow: {total:,} weights", fontsize=10.5, color=INK, weight="bold"
    )
    return figure


def attention() -> Figure:
    """Where latent positions of a trained completer read, and where they are read."""
    operator = _models().completer
    side = np.linspace(WINDOW.low, WINDOW.high, 64), np.arange(64) / 64
    points = np.stack(np.meshgrid(*side, indexing="ij"), -1).reshape(-1, 2).astype(np.float32)
    model = operator.members[0]
    assert isinstance(model, LNO)
    with torch.no_grad():
        features = model.trunk(operator.normalizers.x.encode(torch.from_numpy(points))[None])
        scores = model.encoder.scores(features)[0]
    encoded, decoded = (torch.softmax(scores, dim=k).numpy() for k in (0, 1))
    chosen = _apart(points, encoded, np.argsort(-decoded.max(0)))
    figure = Figure(figsize=(8.4, 4.4), layout="constrained")
    axes = figure.subplots(2, SHOWN, sharex=True, sharey=True)
    plane = Plane(("t", "x"), (WINDOW.low, 0.0), (WINDOW.high, 1.0))
    for row, weights in zip(axes, (encoded, decoded), strict=True):
        for axis, k in zip(row, chosen, strict=True):
            field = weights[:, k].reshape(64, 64)
            draw_field(axis, plane, field / field.max(), "Blues", 0.0, 1.0)
    for axis, k in zip(axes[0], chosen, strict=True):
        axis.set_title(f"latent position {k}", fontsize=10)
    for axis, name in zip(axes[:, 0], ("encoder: reads here", "decoder: read here"), strict=True):
        axis.set_ylabel(f"{name}\nt", fontsize=9)
    for axis in axes[1]:
        axis.set_xlabel("x")
    return figure


def _apart(points: np.ndarray, weights: np.ndarray, order: np.ndarray) -> list[int]:
    """Some latent positions that read far apart, of the half of them that are read most."""
    half = order[: len(order) // 2]
    places = points[weights[:, half].argmax(0)]
    chosen = [0]
    while len(chosen) < SHOWN:
        gaps = np.linalg.norm(places[:, None] - places[chosen], axis=-1).min(1)
        chosen.append(int(gaps.argmax()))
    return [int(half[k]) for k in chosen]


def two_stages() -> Figure:
    """Sensors, the field inside the window, the whole field, and its error."""
    truth = _truth()
    seen, found = _reconstructed(RandomRatio(RATIO))
    figure = Figure(figsize=(10.4, 3.1), layout="constrained")
    axes = figure.subplots(1, 4, sharex=True, sharey=True)
    plane, span = Plane(("t", "x"), (0.0, 0.0), (1.0, 1.0)), float(np.abs(truth).max())
    inside = (found.axes[0] >= WINDOW.low) & (found.axes[0] <= WINDOW.high)
    window = np.where(inside[:, None], found.mean, np.nan)
    error = np.abs(found.mean - truth)
    _sensors(axes[0], seen, span)
    draw_field(axes[1], plane, window, FIELD, -span, span)
    shown = draw_field(axes[2], plane, found.mean, FIELD, -span, span)
    wrong = draw_field(axes[3], plane, error, ERROR, 0.0, float(error.max()))
    titles = (f"{len(seen.u)} sensors", "completer", "completer, propagator", "absolute error")
    _finish(axes, titles)
    figure.colorbar(shown, ax=axes[:3].tolist(), pad=0.01)
    figure.colorbar(wrong, ax=axes[3], pad=0.02)
    return figure


def grids_of_sensors() -> Figure:
    """Sensors on coarser and coarser grids, and what is reconstructed from them."""
    truth = _truth()
    figure = Figure(figsize=(10.4, 5.3), layout="constrained")
    axes = figure.subplots(2, len(GAPS), sharex=True, sharey=True)
    plane, span = Plane(("t", "x"), (0.0, 0.0), (1.0, 1.0)), float(np.abs(truth).max())
    for k, gaps in enumerate(GAPS):
        seen, found = _reconstructed(Intervals(gaps))
        _sensors(axes[0, k], seen, span)
        shown = draw_field(axes[1, k], plane, found.mean, FIELD, -span, span)
        error = 100 * np.abs(found.mean - truth).mean() / np.abs(truth).mean()
        axes[1, k].set_title(f"error {error:.1f} %", fontsize=10)
    _finish(axes[0], [f"every {t}th time, {x}th place" for t, x in GAPS])
    _finish(axes[1], ())
    for axis in axes[0]:
        axis.set_xlabel("")
    figure.colorbar(shown, ax=axes.ravel().tolist(), pad=0.01, shrink=0.8)
    return figure


@lru_cache(maxsize=1)
def _sample() -> Fields:
    """The first test sample of Burgers' equation, which no model has seen."""
    protocol = protocol_of("burgers")
    first = protocol.train + protocol.test // 2
    return make(Burgers(**protocol.parameters), 1, 0, "cpu", first=first)


def _truth() -> np.ndarray:
    sample = _sample()
    assert sample.grid is not None
    return np.asarray(sample.y)[0, :, 0].reshape(sample.grid)


def _reconstructed(pattern: Pattern) -> tuple[Sample, Reconstruction]:
    """Sensors, and the field that the models of the package make of them."""
    seen = observed(_sample(), pattern)[0]
    return seen, _models()(seen.x, seen.u)


@lru_cache(maxsize=1)
def _models() -> Reconstructor:
    return Reconstructor.load(device="cpu")


def _sensors(axis: Axes, seen: Sample, span: float) -> None:
    size = float(np.clip(1200 / len(seen.u), 0.6, 14))
    axis.scatter(
        seen.x[:, 1], seen.x[:, 0], size, seen.u[:, 0], cmap=FIELD, vmin=-span, vmax=span, lw=0
    )
    for end in (WINDOW.low, WINDOW.high):
        axis.axhline(end, color=EDGE, lw=0.8, ls=(0, (4, 3)))
    axis.set(xlim=(0, 1), ylim=(0, 1))


def _finish(axes: Sequence[Axes], titles: Sequence[str]) -> None:
    for axis, title in zip(axes, titles, strict=False):
        axis.set_title(title, fontsize=10)
    for axis in axes:
        axis.set_xlabel("x")
    axes[0].set_ylabel("t")
