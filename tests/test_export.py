"""ONNX files predict what PyTorch predicts, for any numbers of samples, points and queries."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import lno as command

import lno
from lno import Fields, Operator, cli, export
from lno.models import LNO

ROOT = Path(__file__).parents[1]
TINY = {"width": 8, "latents": 4, "blocks": 1, "heads": 2, "layers": 1}


def data(samples: int = 6, **changes: Any) -> Fields:
    """Two parameters and one channel on a grid that is periodic along x and far from zero in z."""
    random = np.random.default_rng(0)
    sides = np.meshgrid(np.arange(6) / 6, 5e6 + np.linspace(0, 30, 5), indexing="ij")
    given = {
        "u": random.normal(3, 2, size=(samples, 30, 1)),
        "y": random.normal(size=(samples, 30, 2)) * [10, 0.1] + [1e5, 0],
        "grid": (6, 5),
        "period": (1.0, None),
        "names": {"x": ["x", "z"], "u": ["a"], "y": ["p", "T"]},
        "units": {"x": ["m", "m"], "y": ["Pa", "K"]},
    }
    return Fields(np.stack(sides, -1).reshape(30, 2), **(given | changes))


def trained(fields: Fields, **how: Any) -> Operator:
    how = {"config": TINY, "epochs": 1, "progress": False, "validation": 0.0} | how
    return Operator.fit(fields, **how)


def in_eager(operator: Operator, **given: Any) -> np.ndarray:
    with torch.no_grad():
        tensors = {name: torch.as_tensor(v) for name, v in given.items()}
        return export.Graph(operator)(**tensors).numpy()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Operator, Path]:
    """An operator with parameters and its file, from the command line."""
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("onnx")
    op = trained(data(parameters=np.random.default_rng(1).uniform(size=(6, 2))))
    op.save(folder / "m.safetensors")
    words = ("export", folder / "m.safetensors", "--onnx", folder / "m.onnx")
    assert cli.run([str(word) for word in words]) == 0
    return op, folder / "m.onnx"


@pytest.mark.parametrize("sizes", [(1, 1, 1), (4, 100, 3), (2, 5, 600)])
def test_a_file_predicts_what_the_operator_predicts(
    exported: tuple[Operator, Path], sizes: tuple[int, int, int]
) -> None:
    import onnxruntime

    op, path = exported
    session = onnxruntime.InferenceSession(path)
    given = {k: v.numpy() for k, v in export.examples(op, sizes, seed=9).items()}
    assert given["x"].dtype == np.float64 and given["u"].dtype == np.float32
    (y,) = session.run(None, given)
    expected = op.predict(given["x"], given["u"], given["x_query"], parameters=given["parameters"])
    np.testing.assert_allclose(y[..., 0], expected[..., 0], atol=0.02)  # of 1e5 in float32
    np.testing.assert_allclose(y[..., 1], expected[..., 1], atol=1e-5)
    assert np.ptp(expected[..., 1]) > 1e-3 or sizes[2] == 1


def test_a_file_says_what_its_numbers_mean(exported: tuple[Operator, Path]) -> None:
    import onnx

    op, path = exported
    model = onnx.load(path)
    assert all(o.version < 23 for o in model.opset_import if o.domain in ("", "ai.onnx"))
    about = {p.key: p.value for p in model.metadata_props}
    assert json.loads(about["names"]) == op.labels.names
    assert json.loads(about["units"])["y"] == ["Pa", "K"] and about["lno"] == lno.__version__
    assert json.loads(about["low"]) == list(op.labels.low)
    shapes = {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in (*model.graph.input, *model.graph.output)
    }
    assert shapes == {
        "x": ["samples", "points", 2],
        "u": ["samples", "points", 1],
        "x_query": ["samples", "queries", 2],
        "parameters": ["samples", 2],
        "y": ["samples", "queries", 2],
    }
    assert [v.doc_string for v in model.graph.output] == ["p [Pa], T [K]"]


def test_the_example_needs_numpy_and_onnxruntime_alone(exported: tuple[Operator, Path]) -> None:
    script = ROOT / "examples" / "onnx_predict.py"
    nodes = ast.walk(ast.parse(script.read_text()))
    imported = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    assert imported == {"json", "sys", "numpy", "onnxruntime"}
    done = subprocess.run(
        [sys.executable, script, exported[1]], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("p, T at 20 points, the first: ")


def test_a_graph_that_differs_from_pytorch_is_not_written(
    exported: tuple[Operator, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnx

    op, path = exported
    monkeypatch.setattr(export, "_convert", lambda operator: onnx.load(path))
    (tmp_path / "a.onnx").write_text("old")
    other = trained(data(parameters=np.ones((6, 2))), seed=5)
    with pytest.raises(ValueError, match=r"differs from PyTorch by .* nothing was written"):
        other.export(tmp_path / "a.onnx")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]
    assert op.export(tmp_path / "a.onnx") < export.TOLERANCE


@pytest.mark.parametrize("kind", ["lno_plus", "transolver"])
def test_graphs_of_other_models_take_other_sizes(kind: str) -> None:
    """Transolver is for one grid and predicts there only; the number of samples is free."""
    config = {"lno_plus": {"width": 8, "latents": 4, "rounds": 1}}
    config["transolver"] = {"width": 8, "layers": 1, "heads": 2, "slices": 4, "reference": 2}
    op = trained(data(), model=kind, config=config[kind])
    given = export.examples(op, (5, 40, 9), seed=1)
    assert set(given) == {"x", "u"} | ({"x_query"} if kind == "lno_plus" else set())
    assert given["u"].shape == (5, 40 if kind == "lno_plus" else 30, 1)
    with export._quietly(), torch.no_grad():
        found = export.capture(op).module()(**given)
    expected = export.predicted(op, given)
    np.testing.assert_allclose(found[..., 1], expected[..., 1], atol=1e-5)


# -- what a graph means, without the exporter ------------------------------------------------------


@pytest.mark.parametrize("increments", [False, True])
def test_a_graph_of_a_rollout_is_one_step_of_the_mean_over_members(increments: bool) -> None:
    random = np.random.default_rng(2)
    channels = {"u": random.normal(size=(6, 30, 3)), "y": random.normal(size=(6, 30, 2))}
    frames = data(**channels, names=None, units=None)
    op = trained(frames, task=lno.Rollout(2, increments=increments), members=2)
    x, u = np.repeat(frames.x[None], 6, 0), np.asarray(frames.u)
    step = in_eager(op, x=x, u=u, x_query=x)
    np.testing.assert_allclose(step, op.predict(frames)[..., :1], atol=1e-5)
    one = in_eager(op.member(0), x=x, u=u, x_query=x)
    assert np.abs(step - one).max() > 1e-3


def test_a_graph_of_a_completion_reads_any_sensors() -> None:
    op = trained(data(u=None, names=None, units=None), task=lno.Completion(lno.RandomRatio(0.5)))
    given = export.examples(op, (2, 9, 4), seed=3)
    expected = op.predict(*(given[key].numpy() for key in ("x", "u", "x_query")))
    np.testing.assert_allclose(in_eager(op, **given)[..., 1], expected[..., 1], atol=1e-5)


def test_a_graph_of_snapshots_is_one_time() -> None:
    sides = np.meshgrid(np.arange(4.0), np.arange(3.0), np.arange(2.0), indexing="ij")
    x, u = np.stack(sides, -1).reshape(24, 3), np.random.default_rng(0).normal(size=(5, 24, 1))
    op = trained(Fields(x, u, y=u, grid=(4, 3, 2)), task=lno.Snapshots(2))
    first = in_eager(op, x=np.repeat(x[None, ::2], 5, 0), u=u[:, ::2], x_query=x[None, ::2])
    np.testing.assert_allclose(first, op.predict(x, u)[:, ::2], atol=1e-5)


def test_graphs_read_positions_alone_and_weights_of_points() -> None:
    random = np.random.default_rng(0)
    clouds = random.uniform(size=(6, 20, 2))
    shapes = trained(Fields(clouds, y=clouds[..., :1]))
    assert set(export.inputs(shapes)) == {"x", "x_query"}
    found = in_eager(shapes, x=clouds, x_query=clouds)
    np.testing.assert_allclose(found, shapes.predict(clouds), atol=1e-5)
    weights = random.uniform(0.1, 3, size=(6, 20))
    weighted = Fields(clouds, clouds[..., :1], y=clouds[..., 1:], weights=weights)
    op = trained(weighted, recipe={"weighted": True})
    found = in_eager(op, x=clouds, u=clouds[..., :1], x_query=clouds, weights=weights)
    np.testing.assert_allclose(found, op.predict(weighted), atol=1e-5)


# -- what cannot be exported -----------------------------------------------------------------------


def test_what_is_no_graph_is_refused_in_a_sentence(tmp_path: Path) -> None:
    fields = data(u=None, names=None, units=None)
    completer = trained(fields, task=lno.Completion(lno.RandomRatio(0.5)), conditional=True)
    with pytest.raises(ValueError, match=r"conditional: .* kriging, which is no graph. Export its"):
        completer.export(tmp_path / "a.onnx")
    sets = replace(trained(data()), kind="gnot", query_set=16)
    with pytest.raises(ValueError, match="gnot predicts in random sets of 16 queries"):
        sets.export(tmp_path / "a.onnx")
    with pytest.raises(ValueError, match=r"a\.txt: expected a name ending in \.onnx"):
        trained(data()).export(tmp_path / "a.txt")
    assert not list(tmp_path.iterdir())


def test_a_model_without_a_graph_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    op, forward = trained(data()), LNO.forward

    def through_numpy(self: LNO, x: Any, u: Any, *others: Any) -> Any:
        return forward(self, x, torch.from_numpy(np.sin(u.numpy())), *others)

    monkeypatch.setattr(LNO, "forward", through_numpy)
    with pytest.raises(ValueError, match=r"^lno cannot be exported to ONNX: .*numpy.*$"):
        op.export(tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir()) and capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("fno", {"width": 4, "modes": 2, "reference": None}),
        ("ono", {"width": 8, "layers": 1, "heads": 2, "modes": 4}),
    ],
)
def test_a_model_that_onnx_has_no_operators_for_names_others(
    kind: str, sizes: dict[str, Any], tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    op = trained(data(period=None), model=kind, config=sizes)
    with pytest.raises(
        ValueError, match=rf"^{kind} cannot be .* Train one of lno, .* or sliced_ln"
    ):
        op.export(tmp_path / "a.onnx")
    with pytest.raises(ValueError, match=r"^\w+ cannot be .* ONNX: No ONNX function [^\x1b]*$"):
        export._convert(export._on_cpu(op))  # or the table is out of date


def test_a_missing_package_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    trained(data()).save(tmp_path / "m.safetensors")
    words = ("export", tmp_path / "m.safetensors", "--onnx", tmp_path / "m.onnx")
    with pytest.raises(AssertionError, match="is not installed: pip install 'latent-neural-"):
        command(capsys, *words)
    assert not (tmp_path / "m.onnx").exists()
