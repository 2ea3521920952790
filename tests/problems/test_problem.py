"""What every description must fulfil, whatever it describes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from lno.data import Fields
from lno.data.grids import grid_points
from lno.data.normalize import Normalizers
from lno.data.published import Layout
from lno.data.symmetry import RandomSymmetry
from lno.problems import PROBLEMS, Darcy, Elasticity, Pipe, Problem, make, read_published


@pytest.mark.parametrize(("name", "problem"), PROBLEMS.items())
def test_a_description_is_consistent(name: str, problem: type[Problem]) -> None:
    assert problem.name == name and problem.title and "\n" not in problem.equation
    for protocol in problem.protocols.values():
        made = problem(**protocol.parameters)  # valid parameters, and no unknown ones
        assert all(getattr(made, key) == value for key, value in protocol.parameters.items())
    assert {"standard", "reference"} <= set(problem.protocols)
    assert set(problem.published) <= set(problem.protocols)
    if problem.symmetries:
        w = np.random.default_rng(0).standard_normal((16, 16, 2))
        images = [g(w, w[..., :1])[0] for g in problem.symmetries]
        assert any(np.array_equal(image, w) for image in images), "the identity is missing"


@dataclass(frozen=True)
class Unsolved(Problem):
    """A problem whose published files are known, and that nobody has solved here."""

    name: ClassVar[str] = "unsolved"
    title: ClassVar[str] = "Unsolved"
    equation: ClassVar[str] = "y = ?"
    published: ClassVar[Mapping[str, Layout]] = {"standard": Pipe.published["standard"]}


def test_a_problem_without_a_generator_points_to_its_published_files() -> None:
    problem = Unsolved()
    assert not problem.can_make()
    with pytest.raises(NotImplementedError, match="no generator yet") as caught:
        make.make(problem, 2)
    files = " ".join(problem.published["standard"].files)
    assert f"lno data read unsolved {files} --out unsolved.h5" in str(caught.value)
    with pytest.raises(NotImplementedError, match="lno data read"):
        problem.solve([], torch.device("cpu"))
    with pytest.raises(NotImplementedError, match="lno data read"):
        problem.fields([], [], {})


def test_a_problem_without_published_files_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Mine(Problem):
        name: ClassVar[str] = "mine"
        title: ClassVar[str] = "Mine"
        equation: ClassVar[str] = "y = 0"

    assert Darcy.can_make() and not Mine.can_make()
    monkeypatch.setitem(PROBLEMS, "mine", Mine)
    with pytest.raises(ValueError, match=r"expected a problem among darcy, .*, got 'mine'"):
        read_published("mine", [])
    with pytest.raises(NotImplementedError, match="no published files of it are known"):
        make.make(Mine(), 1)


@pytest.mark.parametrize("name", ["airfoil", "elasticity", "pipe", "plasticity"])
def test_pictures_show_channels_that_the_data_have(name: str) -> None:
    problem = PROBLEMS[name]
    layout = problem.published["standard"]
    shapes = [[3 if n == -1 else n for n in array.shape] for array in layout.arrays]
    parts = [
        np.moveaxis(np.zeros(shape, np.float32), array.shape.index(-1), 0)
        for array, shape in zip(layout.arrays, shapes, strict=True)
    ]
    parts = [part[:, *array.part] for part, array in zip(parts, layout.arrays, strict=True)]
    names = layout.build(*parts)["names"]
    for key, channels in problem.picture.items():
        assert set(channels) <= set(names[key])


def test_the_mirror_image_of_a_pipe_is_a_pipe_with_the_mirrored_flow() -> None:
    """Nodes between two walls: still from the lower wall to the upper, where −y was."""
    n = 17
    xi, eta = grid_points(np.linspace(0, 1, n), np.linspace(0, 1, n)).T.reshape(2, n, n)
    centre, across = np.sin(3 * xi) + 0.4 * xi, eta - 0.5
    nodes = np.stack([10 * xi, centre + across], axis=-1)
    velocity = (0.25 - across**2 + 0.1 * xi * across)[..., None]
    _, reflect = Pipe.symmetries
    mirrored, flow = reflect(nodes, velocity)
    np.testing.assert_allclose(mirrored, np.stack([10 * xi, across - centre], axis=-1), atol=1e-14)
    np.testing.assert_allclose(flow[..., 0], 0.25 - across**2 - 0.1 * xi * across, atol=1e-14)
    again, back = reflect(mirrored, flow)
    assert np.array_equal(again, nodes) and np.array_equal(back, velocity)


def test_the_mirror_image_of_a_unit_cell_has_its_points_mirrored() -> None:
    random = np.random.default_rng(0)
    x, y = random.uniform(size=(6, 30, 2)) ** 2, random.standard_normal((6, 30, 1))
    data, mirrored = (
        Fields(points, y=y) for points in (x, np.stack([1 - x[..., 0], x[..., 1]], -1))
    )
    normalizers = Normalizers.fit(data)
    same, other = (normalizers.encode(f.batch(np.arange(6))) for f in (data, mirrored))
    images = RandomSymmetry(Elasticity.symmetries, data, normalizers).draw(
        same, torch.Generator().manual_seed(0)
    )
    torch.testing.assert_close(images.y, same.y)
    kept, moved = (torch.isclose(images.x, b.x, atol=1e-5).all(2).all(1) for b in (same, other))
    assert (kept ^ moved).all() and kept.any() and moved.any()
