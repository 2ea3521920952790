"""Small files in exactly the published layouts, written for the tests of the reader."""

import h5py
import numpy as np
from scipy.io import savemat

PROTOCOLS = ("standard", "reference")


def value(*index):
    """A number for each (sample, i, j, …), which tells all axes apart."""
    rates = (1.0, 0.11, 0.023, 0.0037, 0.00041)
    return np.sin(sum(r * np.asarray(k, float) for r, k in zip(rates, index, strict=False))) + 2


def field(*shape):
    return value(*np.indices(shape, sparse=True))


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
