"""What an operator shows in pictures and notebooks, and how it moves between devices."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import PathCollection

import lno
from lno import Fields, Operator
from lno.experiments.pictures import save_sample
from lno.report.samples import sample_fields

TINY = {"width": 8, "latents": 4, "blocks": 1, "heads": 2, "layers": 1}


def titled(figure):
    return {axis.get_title(): axis for axis in figure.axes if axis.get_title()}


def test_a_line_is_drawn_with_its_truth_prediction_and_error(operator, line_fields):
    shown = titled(figure := operator.plot(line_fields, 3))
    assert list(shown) == ["input: f", "truth: df", "prediction: df", "absolute error"]
    truth, predicted = line_fields[3].y[:, 0], operator.predict(line_fields.subset([3]))[0, :, 0]
    wanted = (line_fields[3].u[:, 0], truth, predicted, np.abs(predicted - truth))
    for axis, values in zip(shown.values(), wanted, strict=True):
        [line] = axis.lines
        np.testing.assert_allclose(line.get_xdata(), line_fields.x[:, 0])
        np.testing.assert_allclose(line.get_ydata(), values, rtol=1e-5, atol=1e-6)
    error = 100 * np.linalg.norm(predicted - truth) / np.linalg.norm(truth)
    assert figure.get_suptitle() == f"sample 3, relative L2 error {error:.3g} %"


def test_without_outputs_the_prediction_is_drawn(operator, line_fields):
    shown = titled(operator.plot(line_fields.replace(y=None), -1))
    assert list(shown) == ["input: f", "prediction: df"]


def test_a_reconstruction_shows_the_sensors_that_evaluate_would_draw():
    sides = np.meshgrid(np.linspace(0, 1, 8), np.linspace(0, 2, 9), indexing="ij")
    x = np.stack(sides, -1).reshape(72, 2)
    y = np.sin(3 * x[None, :, :1] + np.arange(8)[:, None, None])
    fields = Fields(x, y=y, grid=(8, 9), names={"x": ["y", "x"], "y": ["h"]})
    task = lno.Completion(lno.RandomRatio(0.25))
    op = Operator.fit(fields, task=task, epochs=1, config=TINY, progress=False)
    shown = titled(op.plot(fields, 2, channels=["h"]))
    [sensors] = shown["input: h"].collections
    assert isinstance(sensors, PathCollection) and len(sensors.get_offsets()) == 18
    places = np.asarray(sensors.get_offsets())[:, ::-1]  # x to the right
    nearest = np.linalg.norm(places[:, None] - x, axis=-1).argmin(1)
    np.testing.assert_allclose(sensors.get_array(), y[2, nearest, 0], rtol=1e-6)
    axis = shown["truth: h"]
    assert (axis.get_xlabel(), axis.get_xlim(), axis.get_ylim()) == ("x", (0, 2), (0, 1))
    np.testing.assert_allclose(axis.images[0].get_array(), y[2, :, 0].reshape(8, 9))


def test_nodes_of_a_deformed_mesh_are_where_they_are_and_no_input():
    sides = np.meshgrid(np.arange(5.0), np.arange(4.0), indexing="ij")
    x = np.stack(sides, -1).reshape(20, 2)
    nodes = x + np.random.default_rng(0).uniform(-0.2, 0.2, size=(6, 20, 2))
    names = {"u": ["X", "Y"], "y": ["p"]}
    fields = Fields(
        x, nodes, y=nodes[..., :1], grid=(5, 4), geometry={"u": ["X", "Y"]}, names=names
    )
    op = Operator.fit(fields, epochs=1, config=TINY, progress=False)
    shown = titled(op.plot(fields, 1))
    assert list(shown) == ["truth: p", "prediction: p", "absolute error"]
    surface = shown["truth: p"].collections[0]
    np.testing.assert_allclose(surface.get_coordinates().reshape(-1, 2), nodes[1])


def test_wrong_arguments_of_plot_are_clear(operator, line_fields):
    with pytest.raises(TypeError, match="data: expected samples like those of training"):
        operator.plot(line_fields.u)
    with pytest.raises(IndexError, match="no sample 40"):
        operator.plot(line_fields, 40)
    with pytest.raises(ValueError, match="channels: expected names among df, got"):
        operator.plot(line_fields, channels=["f"])
    with pytest.raises(ValueError, match="at: expected one of three coordinates"):
        operator.plot(line_fields, at={"x0": 1.0})


def test_a_notebook_shows_what_an_operator_maps_and_how_it_was_trained(operator):
    html = operator._repr_html_()
    for text in ("f", "df", "Steady()", "0 ≤ x0 ≤ 3", "CPU", "steps", "relative L2"):
        assert text in html
    hostile = {**operator.labels.names, "y": ["<script>"]}
    operator.labels.names.clear()
    operator.labels.names.update(hostile)
    assert "<script>" not in operator._repr_html_()


def test_moving_an_operator_returns_it(operator):
    assert operator.to("cpu") is operator and operator.device.type == "cpu"
    with pytest.raises(ValueError, match="device: cannot compute on 'warp'"):
        operator.to("warp")


@pytest.mark.gpu
def test_an_operator_predicts_the_same_after_a_move_to_the_gpu(operator, line_fields):
    before = operator.to("cpu").predict(line_fields)
    moved = operator.to("cuda")
    assert moved is operator and operator.device.type == "cuda"
    np.testing.assert_allclose(operator.predict(line_fields), before, rtol=1e-4, atol=1e-5)


def test_pictures_of_predictions_have_the_units_of_training(line_fields, tmp_path):
    units = {"x": ["m"], "u": ["K"], "y": ["K/m"]}
    known = Fields(
        line_fields.x, line_fields.u, y=line_fields.y, names=line_fields.names, units=units
    )
    operator = Operator.fit(known, config=TINY, epochs=1, progress=False)
    shown = titled(operator.plot(known, 0))
    assert list(shown) == [
        "input: f [K]",
        "truth: df [K/m]",
        "prediction: df [K/m]",
        "absolute error [K/m]",
    ]
    assert {axis.get_xlabel() for axis in shown.values()} == {"x0 [m]"}
    save_sample(tmp_path / "sample.npz", operator, known, 0, "")
    kept = titled(sample_fields(tmp_path / "sample.npz", "kept"))
    assert list(kept) == list(shown)
    assert {axis.get_xlabel() for axis in kept.values()} == {"x0 [m]"}
