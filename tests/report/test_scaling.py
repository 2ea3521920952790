"""Curves of errors and cost against a size: what is drawn is what the runs say."""

from dataclasses import replace

import numpy as np

from lno.report.scaling import Curve, scaling_curves

DARCY = Curve(
    "darcy", {16: [2.0, 2.4], 64: [1.0], 256: [0.8, 1.0]}, {16: 1.0, 64: 2.0, 256: 9.0}, 64
)
PIPE = Curve("pipe", {16: [3.0], 256: [1.5]}, {16: 4.0, 256: 5.0}, 128, printed=0.26)
ALONE = Curve("elasticity", {256: [1.0]}, {256: 1.0}, 256, printed=0.5)


def test_a_panel_for_each_problem_and_one_for_the_cost():
    figure = scaling_curves([DARCY, ALONE, PIPE], "number of latent positions")
    darcy, pipe, cost = (axis for axis in figure.axes if axis.get_title(loc="left"))
    np.testing.assert_allclose(darcy.lines[0].get_xydata(), [[16, 2.2], [64, 1.0], [256, 0.9]])
    seeds = np.concatenate([line.get_xydata() for line in darcy.lines[1:4]])
    np.testing.assert_allclose(seeds, [[16, 2.0], [16, 2.4], [64, 1.0], [256, 0.8], [256, 1.0]])
    np.testing.assert_allclose(darcy.lines[4].get_xydata(), [[64, 1.0]])  # the paper's choice
    assert len(darcy.lines) == 5 and not darcy.texts  # the paper has no error of this one
    assert len(pipe.lines) == 1 + 2 + 1  # its choice was not measured; its error is a line
    assert pipe.lines[-1].get_ydata()[0] == 0.26 and "0.26" in pipe.texts[0].get_text()
    assert darcy.get_ylim()[0] == pipe.get_ylim()[0] == 0
    np.testing.assert_allclose(cost.lines[0].get_xydata(), [[16, 1], [64, 2], [256, 9]])
    np.testing.assert_allclose(cost.lines[1].get_xydata(), [[16, 4], [256, 5]])
    ticks = [label.get_text() for label in cost.get_xticklabels()]
    assert ticks == ["16", "64", "256"]


def test_there_is_no_panel_of_costs_where_none_is_known():
    figure = scaling_curves([replace(DARCY, milliseconds={}), PIPE], "width")
    assert [axis.get_title(loc="left") for axis in figure.axes] == [
        "darcy",
        "pipe",
        "milliseconds of a training step",
    ]
    figure = scaling_curves([replace(DARCY, milliseconds={})], "width")
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["darcy"]


def test_nothing_to_compare_is_no_figure():
    assert scaling_curves([ALONE, Curve("pipe", {}, {}, 8)], "width") is None
    assert scaling_curves([], "width") is None
