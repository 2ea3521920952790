"""Published files: small files in exactly the published layouts, read back point by point."""

import hashlib
import pickle
import tracemalloc
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.io import savemat

from lno.data import Fields
from lno.problems import PROBLEMS, Burgers, Darcy, NS2d
from lno.problems import read_published as read

PROTOCOLS = ("standard", "reference")


def value(*index):
    """A number for each (sample, i, j, …), which tells all axes apart."""
    rates = (1.0, 0.11, 0.023, 0.0037, 0.00041)
    return np.sin(sum(r * np.asarray(k, float) for r, k in zip(rates, index, strict=False))) + 2


def field(*shape):
    return value(*np.indices(shape, sparse=True))


# -- writing as published --------------------------------------------------------------------------


def mat5(path, **arrays):
    savemat(path, {"extra": np.ones((2, 2)), **arrays}, do_compression=path.name.startswith("z"))


def mat73(path, **arrays):
    """As MATLAB does: axes reversed, chunked, and 512 bytes of its own before HDF5."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for key, array in arrays.items():
            chunks = tuple(min(n, 50) for n in array.T.shape)
            dataset = file.create_dataset(
                key, data=array.T, chunks=chunks, compression="gzip", compression_opts=1
            )
            dataset.attrs["MATLAB_class"] = np.bytes_("double")
        file.create_group("#refs#")
    header = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"
    with path.open("r+b") as raw:
        raw.write(header)


MATLAB = {"v5": mat5, "v7.3": mat73}


def darcy(folder, write, n=421, samples=(4, 3)):
    """Coefficients of 3 and 12, kept as bytes; test samples go on where training samples end."""
    a, u = (field(sum(samples), n, n) > 2).astype(np.uint8) * 9 + 3, field(sum(samples), n, n)
    paths = [folder / f"piececonst_r{n}_N1024_smooth{k}.mat" for k in (1, 2)]
    for path, part in zip(paths, np.split(np.arange(sum(samples)), [samples[0]]), strict=True):
        write(path, coeff=a[part], sol=u[part])
    return paths, a, u


def ns2d(folder, write, samples=6):
    w = field(samples, 64, 64, 20)
    path = folder / "NavierStokes_V1e-5_N1200_T20.mat"
    write(path, u=w, a=w[..., 0], t=np.arange(1.0, 21)[None])
    return [path], w


def plasticity(folder, write, samples=5):
    die, out = field(samples, 101), field(samples, 101, 31, 20, 4)
    write(folder / "plas_N987_T20.mat", input=die, output=out)
    return [folder / "plas_N987_T20.mat"], die, out


def save(folder, **arrays):
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return [folder / f"{name}.npy" for name in arrays]


def mapped(folder, stem, n1, n2, quantities, samples=7):
    x, y, q = field(samples, n1, n2), -field(samples, n1, n2), field(samples, quantities, n1, n2)
    return save(folder, **{f"{stem}_X": x, f"{stem}_Y": y, f"{stem}_Q": q}), x, y, q


def airfoil(folder):
    return mapped(folder, "NACA_Cylinder", 221, 51, 5)


def elasticity(folder, samples=8):
    xy, sigma = field(samples, 972, 2), field(samples, 972)
    files = {"Random_UnitCell_XY_10": xy.transpose(1, 2, 0), "Random_UnitCell_sigma_10": sigma.T}
    return save(folder, **files), xy, sigma


def burgers(folder, n=32, samples=(4, 2)):
    """What the advice in the error message makes of the published pickles: n points of 4 n."""
    side = np.linspace(0, 1, 4 * n)[::4]
    x, y = np.stack(np.meshgrid(side, side), axis=-1), field(sum(samples), n, n, 1)
    for name, part in (("train", y[: samples[0]]), ("test", y[samples[0] :])):
        np.savez(folder / f"{name}.npz", x=x, y=part, f=0 * part)
    return [folder / "train.npz", folder / "test.npz"], side, y


def single(array):
    return np.asarray(array, np.float32)


# -- what was written is read ----------------------------------------------------------------------


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


def test_the_advice_for_burgers_is_right(tmp_path):
    """The lines of the message, run on a file as published, give a file that is read."""
    side = np.linspace(0, 1, 16)
    for name, k in (("train", 3), ("test", 2)):
        x = np.repeat(np.stack(np.meshgrid(side, side), axis=-1)[None], k, axis=0)
        y = field(k, 16, 16, 1) + (name == "test")
        np.save(tmp_path / f"Burgers_IC_std_{name}.npy", {"x": x, "y": y, "f": 0 * y})
        message = refuse("burgers", [tmp_path / f"Burgers_IC_std_{name}.npy"] * 2)
        lines = "\n".join(line.strip() for line in message.splitlines() if line[:4] == "    ")
        assert lines.count("\n") == 1
        for word in ("Burgers_IC_std_train.npy", "train.npz"):
            lines = lines.replace(word, f"{tmp_path}/{word.replace('train', name)}")
        exec(lines, {"np": np})
    fields = read("burgers", [tmp_path / "train.npz", tmp_path / "test.npz"], counts=(3, 2))
    np.testing.assert_array_equal(
        fields.y[:3, :, 0], single(field(3, 16, 16))[:, ::4, ::4].reshape(3, -1)
    )


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


# -- errors ----------------------------------------------------------------------------------------


def refuse(problem, paths, protocol="standard", counts=(2, 1), kinds=ValueError):
    """The message of the error that reading raises."""
    with pytest.raises(kinds) as caught:
        read(problem, paths, protocol, counts=counts)
    message = str(caught.value)
    assert len(message) >= 20
    return message


def test_names_and_numbers(tmp_path):
    message = refuse("Darcy", [])
    assert all(name in message for name in PROBLEMS)
    assert "standard, reference" in refuse("darcy", [], "paper")
    message = refuse("airfoil", [tmp_path / "a.npy"])
    assert "3 files" in message
    assert "NACA_Cylinder_X.npy, NACA_Cylinder_Y.npy, NACA_Cylinder_Q.npy" in message
    assert "a.npy" in message
    assert "got 0: none" in refuse("ns2d", [])
    assert "train" in refuse("ns2d", ["a"], counts=(0, 1))
    assert "whole number" in refuse("ns2d", ["a"], counts=(1, 1.5))
    assert "two numbers" in refuse("ns2d", ["a"], counts=(1, 2, 3))


def test_too_few_samples(tmp_path):
    paths, *_ = elasticity(tmp_path)
    message = refuse("elasticity", paths, counts=None)
    assert "1000 + 200 samples" in message
    assert "found 8" in message
    assert "counts=" in message
    paths, *_ = darcy(tmp_path, mat73, n=241, samples=(3, 2))
    assert "at least 1024 samples, found 3" in refuse("darcy", paths, "reference", counts=None)
    message = refuse("darcy", paths, "reference", counts=(3, 3))
    assert "smooth2.mat, coeff" in message
    assert "found 2" in message


@pytest.mark.parametrize("write", MATLAB.values(), ids=MATLAB)
def test_missing_keys_and_wrong_shapes(tmp_path, write):
    path = tmp_path / "a.mat"
    write(path, w=field(4, 64, 64, 20), t=field(1, 20))
    message = refuse("ns2d", path)
    assert f"{path}: expected an array named 'u', found " in message
    assert "t, w" in message
    write(path, u=field(4, 64, 64, 20).T)
    message = refuse("ns2d", [path])
    assert f"{path}, u: expected the shape (samples, 64, 64, 20), got (20, 64, 64, 4)" in message
    write(path, u=field(4, 64, 64))
    assert "got (4, 64, 64)" in refuse("ns2d", [path])
    paths, *_ = darcy(tmp_path, write, n=241, samples=(3, 2))
    message = refuse("darcy", [p.rename(p.with_name(f"{k}.mat")) for k, p in enumerate(paths)])
    assert "(samples, 421, 421), got (3, 241, 241)" in message
    assert "protocol" in message


def test_files_in_the_wrong_order(tmp_path):
    (x, y, q), *_ = airfoil(tmp_path)
    assert "order NACA_Cylinder_X.npy, NACA" in refuse("airfoil", [y, x, q])
    renamed = [p.rename(tmp_path / name) for p, name in ((x, "1"), (y, "2"), (q, "3"))]
    for order in ([0, 2, 1], [2, 0, 1], [1, 2, 0]):
        message = refuse("airfoil", [renamed[k] for k in order])
        assert "1 (7, 221, 51) as NACA_Cylinder" in message
        assert "3 (7, 5, 221, 51) as NACA_Cylinder" in message
        assert "order" in message
    paths, *_ = elasticity(tmp_path)
    assert "(972, 8) as Random_UnitCell_XY" in refuse(
        "elasticity", [p.rename(tmp_path / f"e{k}") for k, p in enumerate(paths)][::-1]
    )


def test_files_that_do_not_belong_together(tmp_path):
    paths, x, _, _ = airfoil(tmp_path)
    np.save(paths[1], x[:6])
    message = refuse("airfoil", paths)
    assert "NACA_Cylinder_Y.npy has [6] samples" in message
    assert "NACA_Cylinder_X.npy has [7]" in message
    np.save(paths[1], x)
    assert "equal" in refuse("airfoil", paths)
    paths, *_ = darcy(tmp_path, mat5, n=241, samples=(3, 3))
    other = tmp_path / "other.mat"
    other.write_bytes(paths[0].read_bytes())
    assert "equal" in refuse("darcy", [paths[0], other], "reference")


@pytest.mark.parametrize("bad", [np.nan, -np.inf, 1e300])
def test_numbers_that_are_not_finite(tmp_path, bad):
    for name, write in MATLAB.items():
        w = field(6, 64, 64, 20)
        w[4, 1, 2, 3] = bad
        write(tmp_path / name, u=w)
        assert f"{tmp_path / name}, u, sample 4" in refuse("ns2d", [tmp_path / name], counts=(1, 2))
        assert len(read("ns2d", [tmp_path / name], counts=(3, 1))) == 4  # 4 is not read
    paths, _, sigma = elasticity(tmp_path)
    sigma[7, 5] = bad
    np.save(paths[1], sigma.T)
    assert "sigma_10.npy, sample 7" in refuse("elasticity", paths)


@pytest.mark.parametrize("write", MATLAB.values(), ids=MATLAB)
def test_arrays_that_are_not_real_numbers(tmp_path, write):
    write(tmp_path / "a.mat", u=field(3, 64, 64, 20) * 1j)
    assert "u: expected real numbers" in refuse("ns2d", [tmp_path / "a.mat"])
    if write is mat5:
        write(tmp_path / "a.mat", u=np.array([1, "two"], object))
        assert "u: expected real numbers" in refuse("ns2d", [tmp_path / "a.mat"])


def test_links_are_not_followed(tmp_path):
    (whole,), w = ns2d(tmp_path, mat73)
    path = tmp_path / "a.mat"
    raw = tmp_path / "raw"
    raw.write_bytes(w.T.tobytes())
    layout = h5py.VirtualLayout(w.T.shape, "f8")
    layout[...] = h5py.VirtualSource(whole, "u", w.T.shape)
    for make in (
        lambda file: file.__setitem__("u", h5py.ExternalLink(str(whole), "u")),
        lambda file: file.__setitem__("u", h5py.SoftLink("/elsewhere")),
        lambda file: file.create_dataset("u", w.T.shape, "f8", external=[(str(raw), 0, w.nbytes)]),
        lambda file: file.create_virtual_dataset("u", layout),
        lambda file: file.create_group("u"),
    ):
        with h5py.File(path, "w") as file:
            make(file)
        assert "links" in refuse("ns2d", [path])


def test_wrong_kinds_of_files(tmp_path):
    paths, *_ = airfoil(tmp_path)
    (mat,), _ = ns2d(tmp_path, mat5)
    assert f"{paths[0]} is not a MATLAB file" in refuse("ns2d", paths[:1])
    assert f"{mat} is not a .npy file" in refuse("airfoil", [mat] * 3)
    np.savez(tmp_path / "a.npz", u=1)
    assert "zip" in refuse("ns2d", [tmp_path / "a.npz"])
    (tmp_path / "empty").write_bytes(b"")
    refuse("ns2d", ["missing.mat"], kinds=FileNotFoundError)
    refuse("ns2d", [tmp_path], kinds=IsADirectoryError)
    assert "empty" in refuse("ns2d", [tmp_path / "empty"])
    assert "empty" in refuse("airfoil", [tmp_path / "empty"] * 3)
    assert "convert" in refuse("burgers", [tmp_path / "empty"] * 2)
    refuse("burgers", ["missing.npz"] * 2, kinds=FileNotFoundError)


@pytest.mark.parametrize("kind", ["v5", "z5", "v7.3", "npy", "npz"])
def test_damaged_files(tmp_path, kind):
    """Cut or scrambled anywhere: an error that names the file, or harmless."""
    if kind == "npy":
        problem, (path, *more) = "elasticity", elasticity(tmp_path)[0]
    elif kind == "npz":
        problem, (path, *more) = "burgers", burgers(tmp_path)[0]
    else:
        problem, path, more = "ns2d", tmp_path / f"{kind[0]}.mat", []
        (mat73 if kind == "v7.3" else mat5)(path, u=field(3, 64, 64, 20))
    whole = path.read_bytes()
    read(problem, [path, *more], counts=(2, 1))
    broken = tmp_path / "broken"
    lengths = {len(whole) * k // 12 for k in range(12)} | {1, 7, 100, 127, 128, 129, 140, 200, 600}
    for length in sorted(lengths):
        broken.write_bytes(whole[:length])
        message = refuse(problem, [broken, *more])
        assert str(broken) in message
    random = np.random.default_rng(0)
    for place in (*range(0, 400, 9), *random.integers(0, len(whole), 40).tolist()):
        broken.unlink()  # HDF5 may still know the old file
        scrambled = bytearray(whole)
        scrambled[place] ^= 255
        broken.write_bytes(scrambled)
        try:
            read(problem, [broken, *more], counts=(2, 1))
        except ValueError as error:
            assert str(broken) in str(error)


class Bomb:
    def __init__(self, flag):
        self.flag = flag

    def __reduce__(self):
        return (Path.touch, (self.flag,))


@pytest.mark.parametrize("problem", PROBLEMS)
def test_pickles_are_never_run(tmp_path, problem):
    flag, raw, array = tmp_path / "ran", tmp_path / "raw", tmp_path / "array.npy"
    archive = tmp_path / "archive.npz"
    raw.write_bytes(pickle.dumps(Bomb(flag)))
    np.save(array, np.array({"x": Bomb(flag)}, object), allow_pickle=True)
    np.savez(archive, **dict.fromkeys("xyf", np.array([Bomb(flag)], object)))
    for path in (raw, array, archive):
        message = refuse(problem, [path] * len(PROBLEMS[problem].published["standard"].files))
        assert str(path) in message
        assert "pickle" in message or "MATLAB" in message
    assert not flag.exists()


def test_burgers_that_are_not_burgers(tmp_path):
    paths, times, y = burgers(tmp_path)
    x = np.stack(np.meshgrid(times, times), axis=-1)
    good = {"x": x, "y": y, "f": 0 * y}
    for changes, words in (
        ({"f": y}, "force"),
        ({"x": x[..., ::-1]}, "rows being times"),
        ({"x": np.stack(np.meshgrid(times**2, times), axis=-1)}, "regular"),
        ({"x": x[1:]}, "test.npz, x: expected the same as in"),
        ({"y": y[:, 1:], "f": 0 * y[:, 1:]}, "(31, 32, 1)"),
        ({"y": y[:, :0], "f": 0 * y[:, :0]}, "got (6, 0, 32, 1)"),
        ({"f": 0 * y[1:]}, "do not belong together"),
    ):
        np.savez(paths[0], **good)
        if "x:" in words or "31" in words:
            np.savez(paths[1], **{**good, **changes})
        else:
            np.savez(paths[0], **{**good, **changes})
            np.savez(
                paths[1], **{**good, "y": y + 1, **{k: changes[k] for k in changes if k == "x"}}
            )
        assert words in refuse("burgers", paths)
    del good["f"]
    np.savez(paths[0], **good)
    assert "named 'f', found x, y" in refuse("burgers", paths)
