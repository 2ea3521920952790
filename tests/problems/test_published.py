"""Published files: small ones in exactly the published layouts, read back point by point."""

import hashlib
import tracemalloc

import numpy as np
import pytest
from published_files import (
    MATLAB,
    PROTOCOLS,
    airfoil,
    burgers,
    darcy,
    elasticity,
    mapped,
    mat73,
    ns2d,
    plasticity,
    single,
    value,
)

from lno.data import Fields
from lno.problems import PROBLEMS, Burgers, Darcy, NS2d
from lno.problems import read_published as read


@pytest.mark.parametrize("write", MATLAB.values(), ids=MATLAB)
def test_darcy_is_as_generated(tmp_path, write):
    paths, a, u = darcy(tmp_path, write)
    fields = read("darcy", paths, counts=(3, 2))
    chosen = [0, 1, 2, 4, 5]
    same = Darcy().fields(list(a[chosen] == 12), list(single(u[chosen, ::5, ::5])), {})
    assert fields.digest == same.digest
    assert fields.grid == (85, 85)
    np.testing.assert_array_equal(fields.x[86], [1 / 84, 1 / 84])
    np.testing.assert_array_equal(fields.x[2 * 85 + 7], [2 / 84, 7 / 84])
    assert fields.y[4, 2 * 85 + 7, 0] == single(value(5, 10, 35))


@pytest.mark.parametrize("write", MATLAB.values(), ids=MATLAB)
def test_darcy_of_the_reference(tmp_path, write):
    paths, a, u = darcy(tmp_path, write, n=241, samples=(2, 2))
    fields = read("darcy", paths, "reference", counts=(2, 2))
    same = Darcy(grid=241, every=1).fields(list(a == 12), list(single(u)), {})
    assert fields.digest == same.digest


@pytest.mark.parametrize("write", MATLAB.values(), ids=MATLAB)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_ns2d_is_as_generated(tmp_path, write, protocol):
    paths, w = ns2d(tmp_path, write)
    fields = read("ns2d", paths, protocol, counts=(3, 2))
    chosen = [0, 1, 2, 4, 5]
    assert fields.digest == NS2d().fields(list(w[:5]), list(single(w[chosen])), {}).digest
    assert fields.period == (1.0, 1.0)
    np.testing.assert_array_equal(fields.x[3 * 64 + 5], [3 / 64, 5 / 64])
    assert fields.u[4, 3 * 64 + 5, 9] == single(value(5, 3, 5, 9))
    assert fields.y[4, 3 * 64 + 5, 2] == single(value(5, 3, 5, 12))


@pytest.mark.parametrize("write", MATLAB.values(), ids=MATLAB)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_plasticity(tmp_path, write, protocol):
    paths, die, out = plasticity(tmp_path, write)
    fields = read("plasticity", paths, protocol, counts=(3, 1))
    chosen = [0, 1, 2, 4]
    np.testing.assert_array_equal(fields.y, single(out[chosen]).reshape(4, -1, 4))
    u = fields.u.reshape(4, 101, 31, 20)
    np.testing.assert_array_equal(u.min((2, 3)), single(die[chosen]))
    np.testing.assert_array_equal(u.max((2, 3)), single(die[chosen]))
    point = (7 * 31 + 5) * 20 + 3
    np.testing.assert_allclose(fields.x[point], [7 / 100, 5 / 30, 3 / 19], rtol=1e-15)
    assert fields.y[3, point, 2] == single(value(4, 7, 5, 3, 2))
    assert fields.grid == (101, 31, 20)
    assert fields.names["y"] == ["x", "y", "u_x", "u_y"]
    np.testing.assert_array_equal(fields.geometry_of(3), fields.y[3, :, :2])
    corners = fields.x[fields.cells]  # one quadrilateral between the nodes, at the last time
    assert len(fields.cells) == 100 * 30 and set(corners[..., 2].flat) == {1.0}
    np.testing.assert_allclose(np.ptp(corners, axis=1), [[1 / 100, 1 / 30, 0]] * 3000, rtol=1e-9)


def test_both_versions_of_matlab_give_the_same(tmp_path):
    for name, make in {"darcy": darcy, "ns2d": ns2d, "plasticity": plasticity}.items():
        digests = []
        for version, write in MATLAB.items():
            folder = tmp_path / f"{name}{version}"
            folder.mkdir()
            digests.append(read(name, make(folder, write)[0], counts=(2, 1)).digest)
        assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("problem", "stem", "shape", "target", "name"),
    [
        ("airfoil", "NACA_Cylinder", (221, 51, 5), 4, "Mach"),
        ("pipe", "Pipe", (129, 129, 3), 0, "u"),
    ],
)
@pytest.mark.parametrize(("protocol", "test"), [("standard", [3, 4]), ("reference", [5, 6])])
def test_airfoil_and_pipe(tmp_path, problem, stem, shape, target, name, protocol, test):
    paths, x, y, q = mapped(tmp_path, stem, *shape)
    fields = read(problem, paths, protocol, counts=(3, 2))
    chosen, (n1, n2) = [0, 1, 2, *test], shape[:2]
    np.testing.assert_array_equal(fields.u[..., 0], single(x[chosen]).reshape(5, -1))
    np.testing.assert_array_equal(fields.u[..., 1], single(y[chosen]).reshape(5, -1))
    np.testing.assert_array_equal(fields.y[..., 0], single(q[chosen, target]).reshape(5, -1))
    point = 9 * n2 + 4
    np.testing.assert_allclose(fields.x[point], [9 / (n1 - 1), 4 / (n2 - 1)], rtol=1e-15)
    assert fields.y[4, point, 0] == single(value(test[1], target, 9, 4))
    assert fields.names == {"x": ["xi", "eta"], "u": ["x", "y"], "y": [name]}
    assert fields.grid == (n1, n2)
    nodes = np.stack([x[test[1]], y[test[1]]], axis=-1).reshape(-1, 2)
    np.testing.assert_array_equal(fields.geometry_of(4), single(nodes))
    steps = np.ptp(fields.x[fields.cells], axis=1)  # one cell of the grid
    assert len(fields.cells) == (n1 - 1) * (n2 - 1)
    np.testing.assert_allclose(steps, [[1 / (n1 - 1), 1 / (n2 - 1)]] * len(steps), rtol=1e-9)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_elasticity(tmp_path, protocol):
    paths, xy, sigma = elasticity(tmp_path)
    fields = read("elasticity", paths, protocol, counts=(3, 2))
    chosen = [0, 1, 2, 6, 7]
    np.testing.assert_array_equal(fields.x, single(xy[chosen]))
    np.testing.assert_array_equal(fields.y[..., 0], single(sigma[chosen]))
    assert fields.spec == Fields(np.zeros((972, 2)), y=np.zeros((1, 972, 1))).spec
    assert fields.x[4, 100, 1] == single(value(7, 100, 1))
    np.testing.assert_array_equal(fields.geometry_of(4), fields.x[4])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_burgers(tmp_path, protocol):
    paths, times, y = burgers(tmp_path)
    fields = read("burgers", paths, protocol, counts=(3, 2))
    np.testing.assert_array_equal(fields.y[..., 0], single(y[[0, 1, 2, 4, 5]]).reshape(5, -1))
    np.testing.assert_array_equal(fields.x[3 * 32 + 5], [times[3], 5 / 32])
    assert fields.y[4, 3 * 32 + 5, 0] == single(value(5, 3, 5))
    assert fields.spec.in_channels == 0
    generated = Burgers(grid=32).fields([], list(single(y[..., 0])), {})
    assert fields.meaning() == generated.meaning()
    np.testing.assert_array_equal(fields.x[:, 1], generated.x[:, 1])


def test_provenance_and_round_trip(tmp_path):
    paths, *_ = airfoil(tmp_path)
    fields = read("airfoil", [str(p) for p in paths], counts=(3, 2))
    assert fields.provenance == {
        "problem": "airfoil",
        "protocol": "standard",
        "files": ["NACA_Cylinder_X.npy", "NACA_Cylinder_Y.npy", "NACA_Cylinder_Q.npy"],
        "split": [3, 2],
        "sha256": [hashlib.sha256(p.read_bytes()).hexdigest() for p in paths],
    }
    fields.save(tmp_path / "a.h5")
    loaded = Fields.load(tmp_path / "a.h5")
    assert loaded.digest == fields.digest
    assert [len(part) for part in loaded.split(*loaded.provenance["split"])] == [3, 2]


def test_splits_of_the_protocols():
    splits = {}
    for name, problem in PROBLEMS.items():
        for protocol in PROTOCOLS:
            layout, counts = problem.published[protocol], problem.protocols[protocol]
            splits.setdefault(name, []).append(layout.split or (counts.train, counts.test))
    assert {name: tuple(pair) for name, pair in splits.items()} == {
        "darcy": ((1000, 200), (1024, 1024)),
        "ns2d": ((1000, 200), (1000, 200)),
        "airfoil": ((1000, 200), (1000, 200)),
        "elasticity": ((1000, 200), (1000, 1000)),
        "plasticity": ((900, 80), (900, 87)),
        "pipe": ((1000, 200), (1000, 200)),
        "burgers": ((4096, 128), (4096, 128)),
    }


def test_a_whole_set_without_counts(tmp_path):
    """The numbers of the protocol itself: Elasticity is small enough."""
    paths, xy, sigma = elasticity(tmp_path, samples=2000)
    standard, reference = (read("elasticity", paths, p) for p in PROTOCOLS)
    assert standard.provenance["split"] == [1000, 200]
    np.testing.assert_array_equal(standard.x[[999, 1000, -1]], single(xy[[999, 1800, -1]]))
    np.testing.assert_array_equal(reference.y[..., 0], single(sigma))


def test_only_what_is_wanted_is_held(tmp_path):
    """Besides the result: one slice of HDF5; of .npy files nothing that is not wanted."""
    cases = {
        "plasticity": plasticity(tmp_path, mat73, samples=12)[0],
        "darcy": darcy(tmp_path, mat73)[0],
        "airfoil": airfoil(tmp_path)[0],
    }
    for problem, paths in cases.items():
        tracemalloc.start()
        fields = read(problem, paths, counts=(3, 1))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        kept = (fields.x, fields.u, fields.y, fields.cells)
        result = sum(column.nbytes for column in kept if column is not None)
        assert peak < 2 * result + 500_000, (problem, peak, result)
