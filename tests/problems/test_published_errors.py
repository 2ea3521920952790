"""Published files that are wrong, damaged or dangerous: an error that says what and where."""

import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
from published_files import (
    MATLAB,
    airfoil,
    burgers,
    darcy,
    elasticity,
    field,
    mat5,
    mat73,
    ns2d,
    single,
)

from lno.problems import PROBLEMS
from lno.problems import read_published as read


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


# Of the scrambled files below, those that are certainly refused. What has a checksum (compressed
# data) is either refused or read without any change.
@pytest.mark.parametrize(
    ("kind", "least", "checked"),
    [
        ("v5", 5, False),
        ("z5", 60, True),
        ("v7.3", 30, True),
        ("npy", 10, False),
        ("npz", 70, True),
    ],
)
def test_damaged_files(tmp_path, kind, least, checked):
    """Cut or scrambled anywhere: an error that names the file, or no other number is affected."""
    if kind == "npy":
        problem, (path, *more) = "elasticity", elasticity(tmp_path)[0]
    elif kind == "npz":
        problem, (path, *more) = "burgers", burgers(tmp_path)[0]
    else:
        problem, path, more = "ns2d", tmp_path / f"{kind[0]}.mat", []
        (mat73 if kind == "v7.3" else mat5)(path, u=field(3, 64, 64, 20))
    whole = path.read_bytes()
    intact = read(problem, [path, *more], counts=(2, 1))
    broken = tmp_path / "broken"
    lengths = {len(whole) * k // 12 for k in range(12)} | {1, 7, 100, 127, 128, 129, 140, 200, 600}
    for length in sorted(lengths):
        broken.write_bytes(whole[:length])
        message = refuse(problem, [broken, *more])
        assert str(broken) in message
    random, refused = np.random.default_rng(0), 0
    for place in (*range(0, 400, 9), *random.integers(0, len(whole), 40).tolist()):
        broken.unlink()  # HDF5 may still know the old file
        scrambled = bytearray(whole)
        scrambled[place] ^= 255
        broken.write_bytes(scrambled)
        try:
            found = read(problem, [broken, *more], counts=(2, 1))
        except ValueError as error:
            assert str(broken) in str(error)
            refused += 1
            continue
        pairs = [(getattr(found, key), getattr(intact, key)) for key in ("x", "u", "y")]
        assert all(np.shape(ours) == np.shape(theirs) for ours, theirs in pairs), place
        changed = sum(np.not_equal(ours, theirs).sum() for ours, theirs in pairs)
        assert changed <= (0 if checked else 1), place
    assert refused >= least


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
        ({"x": x[:, :-2]}, "a point for each value of y, (32, 32), got (32, 30)"),
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
