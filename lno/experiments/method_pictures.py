"""The paper's drawings of its model, made with a real one."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from lno.data import Spec
from lno.drawing import INK
from lno.experiments.presets import PAPER_CONFIGS, WINDOW
from lno.models import LNO
from lno.reconstruct import Reconstructor
from lno.report.plots import Plane, draw_field

GEOMETRIC, LATENT, EDGE = "#e8f1fb", "#fdf0e3", "#8893a3"
SHOWN = 4  # latent positions
RATIO = 0.01  # of the points inside the window, which are observed


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
        "predictions": ((74, 10), 9, 7, "values\nthere", None),
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
    model, x = operator.model, operator.normalizers.x.encode(torch.from_numpy(points))[None]
    values = torch.zeros(
        1, len(points), model.spec.in_channels
    )  # the weights do not depend on them
    with torch.no_grad():
        encoded, decoded = (w[0].numpy() for w in model.latent_weights(x, values, x))
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
    for axis, name in zip(axes[:, 0], ("encoder: attends to", "decoder: attended by"), strict=True):
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


@lru_cache(maxsize=1)
def _models() -> Reconstructor:
    return Reconstructor.load(device="cpu")
