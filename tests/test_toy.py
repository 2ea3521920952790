"""A new problem and a new model, each in one place: a class and an entry in a table.

The problem has a varying number of nodes, triangles and two parameters. Nothing else in the package
knows of either, and every command works with both.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from matplotlib.layout_engine import ConstrainedLayoutEngine
from scipy.spatial import Delaunay
from torch import Tensor, nn

from lno import Fields, Operator, Spec, cli
from lno.ledger import Run
from lno.models import MODELS, Model, ModelConfig
from lno.problems import PROBLEMS, Problem, Protocol


@dataclass(frozen=True)
class Plate(Problem):
    """The deflection load · (source + stiffness) at the random nodes of a triangulated plate."""

    nodes: int = 24

    name: ClassVar[str] = "plate"
    title: ClassVar[str] = "Plate"
    equation: ClassVar[str] = "w = load · (f + stiffness)"
    protocols: ClassVar[Mapping[str, Protocol]] = {"standard": Protocol(16, 4)}
    picture: ClassVar[Mapping[str, tuple[str, ...]]] = {"u": ("f",), "y": ("w",)}

    def draw(self, random: np.random.Generator) -> np.ndarray:
        """Two parameters, then the positions of a random number of nodes."""
        corners = [[0, 0], [0, 2], [1, 0], [1, 2]]
        inside = random.uniform(0, (1, 2), (self.nodes + random.integers(8), 2))
        return np.concatenate((random.uniform(1, 2, (1, 2)), corners, inside))

    def solve(self, inputs: list[np.ndarray], device: torch.device) -> Sequence[np.ndarray]:
        """The deflection of every node."""
        return [drawn[0, 0] * (self.source(drawn[1:]) + drawn[0, 1]) for drawn in inputs]

    def source(self, x: np.ndarray) -> np.ndarray:
        """A smooth field (n, 1)."""
        return np.sin(3 * x[:, :1]) * x[:, 1:]

    def fields(
        self, inputs: Sequence[Any], solutions: Sequence[Any], provenance: Mapping[str, Any]
    ) -> Fields:
        """Meshes that differ in every sample."""
        x = [drawn[1:] for drawn in inputs]
        return Fields(
            x,
            [self.source(nodes) for nodes in x],
            y=list(solutions),
            parameters=np.stack([drawn[0] for drawn in inputs]),
            cells=[Delaunay(nodes).simplices for nodes in x],
            names={"x": ["x", "y"], "u": ["f"], "y": ["w"], "parameters": ["load", "stiffness"]},
            provenance=provenance,
        )


@dataclass(frozen=True)
class MeanConfig(ModelConfig):
    """The size of `Mean`."""

    width: int = 16


class Mean(Model):
    """The mean of features of all observations, decoded at every query point."""

    def __init__(self, spec: Spec, config: MeanConfig | None = None) -> None:
        super().__init__(spec, config)
        d, c = spec.coordinates, self.config.width  # type: ignore[attr-defined]
        self.encode = nn.Linear(d + spec.in_channels, c)
        self.head = nn.Sequential(nn.Linear(c + d, c), nn.GELU(), nn.Linear(c, spec.out_channels))

    @classmethod
    def default_config(cls, spec: Spec) -> MeanConfig:
        """The same for all data."""
        return MeanConfig()

    def forward(self, x: Tensor, u: Tensor, x_query: Tensor, mask: Tensor | None = None) -> Tensor:
        """Predict at x_query."""
        real = torch.ones_like(u[..., 0]) if mask is None else mask.to(u)
        features = self.encode(torch.cat((x.expand(len(u), -1, -1), u), -1)).tanh()
        mean = torch.einsum("bnc,bn->bc", features, real) / real.sum(1, keepdim=True)
        at = x_query.expand(len(u), -1, -1)
        return self.head(torch.cat((mean[:, None].expand(-1, at.shape[1], -1), at), -1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Both are registered, each in one table."""
    path = tmp_path_factory.mktemp("toy")
    # Commands write the tables into their help when they are imported, once for all tests: so they
    # are imported before the tables change.
    for command in cli.COMMANDS:
        import_module(f"lno.commands.{command}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROBLEMS, "plate", Plate)
        patch.setitem(MODELS, "mean", (Mean, MeanConfig))
        patch.setenv("LNO_DATA", str(path / "cache"))
        # Half of the time of drawing is that of arranging: nobody looks at these figures.
        patch.setattr(ConstrainedLayoutEngine, "execute", lambda engine, figure: None)
        patch.chdir(path)
        yield path


def lno(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    """What a command prints."""
    left = cli.run([str(word) for word in words])
    printed = capsys.readouterr()
    assert left == code, printed.err
    return printed.out if code == 0 else printed.err


def test_they_go_through_every_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lno(capsys, "data", "make", "plate", "--samples", 20, "--out", "plate.h5", "--device", "cpu")
    data = Fields.load("plate.h5")
    assert data.is_ragged and len({len(sample.x) for sample in data}) > 2
    shown = lno(capsys, "data", "info", "plate.h5", "--plot", "plate.png")
    assert "parameters: stiffness" in shown and "cells" in shown
    assert Path("plate.png").read_bytes().startswith(b"\x89PNG")

    how = ("--model", "mean", "--epochs", 25, "--device", "cpu")
    trained = lno(capsys, "train", "plate.h5", *how, "--out", "whole")
    run = Run.load("whole/run.json")
    assert (run.problem, run.model, run.recipe) == ("plate", "mean", "small")
    assert len(run.samples["test"]) == 4  # the split of the protocol, not one tenth of 20
    assert run.metrics["test"]["relative_l2"] < 0.7 * run.curve[0]["error"]
    # The same data and split come from the problem itself, hence the same model.
    assert lno(capsys, "train", "plate", *how, "--out", "same").splitlines()[-1] in trained

    cut = ("train", "plate.h5", *how, "--out", "cut")
    assert "--resume" in lno(capsys, *cut, "--pause-after", 1e-9)
    lno(capsys, *cut, "--resume")
    assert Run.load("cut/run.json").metrics == run.metrics

    evaluated = lno(capsys, "evaluate", "whole/model.safetensors", "--data", "plate.h5")
    assert evaluated.splitlines()[-1] == trained.splitlines()[-1]
    lno(
        capsys, "predict", "whole/model.safetensors", "plate.h5", "--out", "p.h5", "--plot", "p.png"
    )
    operator, predicted = Operator.load("whole/model.safetensors", "cpu"), Fields.load("p.h5")
    for sample, expected in zip(predicted, operator.predict(data), strict=True):
        np.testing.assert_array_equal(sample.y, expected)
    assert np.array_equal(predicted[3].cells, data[3].cells)

    lno(capsys, "report", "whole", "cut", "--out", "report.html")
    page = Path("report.html").read_text()
    for text in ("whole", "cut", "Worst test samples", "Mean"):
        assert text in page
    pictures = re.findall(r'base64,([^"]+)"', page)
    assert len(pictures) == 3 + 2 * 2  # curves, time, histogram; median and worst sample of each
    assert all(base64.b64decode(p).startswith(b"\x89PNG") for p in pictures)


def test_parameters_of_a_sample_come_from_a_table(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lno(capsys, "data", "make", "plate", "--samples", 12, "--out", "few.h5", "--device", "cpu")
    words = ("--model", "mean", "--epochs", 1, "--device", "cpu")
    lno(capsys, "train", "few.h5", *words, "--out", "few")
    sample = Fields.load("few.h5")[0]
    rows = np.column_stack((sample.x, sample.u, np.tile(sample.parameters, (len(sample.x), 1))))
    text = "\n".join(",".join(map(repr, row)) for row in rows.tolist())
    Path("sensors.csv").write_text(f"x,y,f,load,stiffness\n{text}\n")
    lno(capsys, "predict", "few/model.safetensors", "sensors.csv", "--out", "field.csv")
    found = np.loadtxt("field.csv", delimiter=",", skiprows=1)
    operator = Operator.load("few/model.safetensors", "cpu")
    expected = operator.predict(sample.x, sample.u, parameters=sample.parameters)
    np.testing.assert_allclose(found[:, 2:], expected, rtol=1e-5)
    Path("bad.csv").write_text("x,y,f,load,stiffness\n0,0,1,1,1\n1,0,1,2,1\n")
    said = lno(capsys, "predict", "few/model.safetensors", "bad.csv", "--out", "a.csv", code=1)
    assert "column 'load': a parameter of the sample has one value, got 1 to 2" in said


def test_all_models_take_the_problem_and_those_that_cannot_name_the_new_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lno(capsys, "data", "make", "plate", "--samples", 6, "--out", "some.h5", "--device", "cpu")
    some = Fields.load("some.h5")
    x_query, y = ([values[:5] for values in column] for column in (some.x, some.y))
    some.replace(x_query=x_query, y=y, cells=None).save("elsewhere.h5")
    refused = []
    for data, models in (("some", MODELS), ("elsewhere", ("mean", "gnot", "transolver"))):
        for model in models:
            words = ("train", f"{data}.h5", "--model", model, "--epochs", 1, "--device", "cpu")
            left = cli.run([*map(str, words), "--out", f"{data}-{model}"])
            said = capsys.readouterr().err
            if left:
                refused.append((model, data))
                assert "use lno or " in said and said.endswith(" or mean\n")
            else:
                assert Run.load(f"{data}-{model}/run.json").model == model
    on_grids = [(name, "some") for name, (model, _) in MODELS.items() if model.needs_grid]
    assert refused == [*on_grids, ("gnot", "elsewhere"), ("transolver", "elsewhere")]
    said = lno(capsys, "train", "some.h5", "--model", "men", "--out", "none", code=1)
    assert f"no model 'men': expected one of {', '.join(MODELS)}" in said and "mean" in MODELS
    said = lno(capsys, "train", "plat", "--out", "none", code=1)
    assert "expected a data file (.h5) or one of darcy" in said and "plate" in said
