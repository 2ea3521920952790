"""The three layouts of a column: uniform, shared by all samples, and ragged.

A column holds one quantity (positions, values, weights, cells) for every sample:

- an array (s, n, c): every sample has n rows of its own;
- an array (n, c): the same n rows in every sample, stored once;
- `Ragged`: sample k has its own number of rows.

Columns that stay in a file are `Rows` (uniform) or `Ragged` over a dataset of the file: both hold
indices and read a sample when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

Index = NDArray[np.int64]


class Ragged(Sequence[np.ndarray]):
    """Arrays (n_k, c) of different lengths, kept as one flat array (Σ n_k, c).

    >>> r = Ragged.pack([np.zeros((2, 1)), np.ones((3, 1))])
    >>> len(r), r[1].shape, r.take([1]).sizes.tolist()
    (2, (3, 1), [3])
    """

    def __init__(self, flat: Any, starts: Index, stops: Index) -> None:
        self.flat, self.starts, self.stops = flat, starts, stops

    @classmethod
    def pack(cls, arrays: Sequence[np.ndarray]) -> Ragged:
        """Concatenate arrays (n_k, c) into a ragged column."""
        lengths = np.array([len(a) for a in arrays], dtype=np.int64)
        ends = np.cumsum(lengths)
        return cls(np.concatenate(arrays), ends - lengths, ends)

    @property
    def sizes(self) -> Index:
        """(s,): the number of points of each sample."""
        return self.stops - self.starts

    @property
    def dtype(self) -> np.dtype:
        """The type of the values."""
        return self.flat.dtype

    def take(self, index: ArrayLike) -> Ragged:
        """The samples at `index`, without copying any values."""
        chosen = np.asarray(index, dtype=np.int64)
        return Ragged(self.flat, self.starts[chosen], self.stops[chosen])

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, k: Any) -> Any:
        if isinstance(k, slice):
            return self.take(np.arange(len(self))[k])
        return np.asarray(self.flat[int(self.starts[k]) : int(self.stops[k])])

    def __repr__(self) -> str:
        return f"Ragged({len(self)} arrays of {self.sizes.min()} to {self.sizes.max()} points)"


class Rows(Sequence[np.ndarray]):
    """Samples of a dataset (s, n, c) in a file, read when they are asked for."""

    def __init__(self, dataset: Any, index: Index) -> None:
        self.dataset, self.chosen = dataset, index

    @property
    def shape(self) -> tuple[int, ...]:
        """(s, n, c)."""
        return (len(self.chosen), *self.dataset.shape[1:])

    @property
    def dtype(self) -> np.dtype:
        """The type of the values."""
        return self.dataset.dtype

    def take(self, index: ArrayLike) -> Rows:
        """The samples at `index`, without reading any."""
        return Rows(self.dataset, self.chosen[np.asarray(index, dtype=np.int64)])

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, k: Any) -> Any:
        if isinstance(k, slice):
            return self.take(np.arange(len(self))[k])
        return np.asarray(self.dataset[int(self.chosen[k])])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        # HDF5 reads increasing indices only, so sort, read and put back in order.
        unique, place = np.unique(self.chosen, return_inverse=True)
        contiguous = len(unique) > 0 and unique[-1] - unique[0] + 1 == len(unique)
        values = self.dataset[slice(unique[0], unique[-1] + 1) if contiguous else unique]
        if len(unique) != len(self.chosen) or np.any(place != np.arange(len(place))):
            values = values[place]
        return values if dtype is None else values.astype(dtype, copy=False)

    def __repr__(self) -> str:
        return f"Rows{self.shape} of {self.dataset.file.filename}"


Column = np.ndarray | Ragged | Rows


def is_shared(column: Column) -> bool:
    """Whether all samples have the same rows, stored once."""
    return isinstance(column, np.ndarray) and column.ndim == 2


def in_memory(column: Column) -> bool:
    """Whether the values are in memory, not in a file."""
    return isinstance(column.flat if isinstance(column, Ragged) else column, np.ndarray)


def take(column: Column, index: Index) -> Column:
    """The samples of a column at `index`."""
    if is_shared(column):
        return column
    if isinstance(column, np.ndarray):
        step = np.diff(index)
        if len(index) and np.all(step == 1):  # consecutive samples are a view, not a copy
            return column[index[0] : index[-1] + 1]
        return column[index]
    return column.take(index)


def sample(column: Column, k: int) -> np.ndarray:
    """The array (n, c) of sample k."""
    return column if isinstance(column, np.ndarray) and column.ndim == 2 else column[k]


def samples(column: Column, count: int) -> Iterator[np.ndarray]:
    """The arrays (n, c) of all samples; a shared one comes once."""
    return iter([sample(column, 0)]) if is_shared(column) else (column[k] for k in range(count))


def sizes(column: Column, count: int) -> Index:
    """(s,): the number of points of each of `count` samples."""
    if isinstance(column, Ragged):
        return column.sizes
    return np.full(count, column.shape[-2], dtype=np.int64)


def channels(column: Column) -> int:
    """The number of channels or coordinates."""
    return (column.flat if isinstance(column, Ragged) else column).shape[-1]


def concatenate(columns: Sequence[Column], counts: Sequence[int]) -> Column:
    """The samples of several columns, one after the other; equal shared rows stay shared."""
    first = columns[0]
    if all(is_shared(c) and np.array_equal(c, first) for c in columns):
        return first
    uniform = [c for c in columns if isinstance(c, np.ndarray) and c.ndim == 3]
    if len(uniform) == len(columns) and len({c.shape[1:] for c in uniform}) == 1:
        return np.concatenate(uniform)
    arrays = [sample(c, k) for c, n in zip(columns, counts, strict=True) for k in range(n)]
    return stack(arrays)


def stack(arrays: Sequence[np.ndarray]) -> np.ndarray | Ragged:
    """One array (s, n, c) where all have the same number of points, `Ragged` otherwise."""
    if len({len(a) for a in arrays}) == 1:
        return np.stack(arrays)
    return Ragged.pack(arrays)


def as_column(name: str, values: Any, *, shareable: bool, integers: bool = False) -> Column:
    """Check and convert what a user passed as column `name`.

    Args:
        name: the name of the column, for errors.
        values: an array (s, n, c); an array (n, c) if `shareable`; or a list of arrays (n_k, c).
            NumPy or torch.
        shareable: whether one array (n, c) may stand for all samples.
        integers: expect whole numbers (indices) instead of real ones.
    """
    if isinstance(values, Ragged | Rows):
        return values
    convert = _as_int if integers else as_real
    if isinstance(values, list | tuple):
        if not values:
            raise ValueError(f"{name} is an empty list: expected at least one sample")
        arrays = [convert(f"{name}, sample {k}", a) for k, a in enumerate(values)]
        for k, array in enumerate(arrays):
            if array.ndim != 2:
                raise ValueError(
                    f"{name}, sample {k}: expected an array (points, channels), got shape "
                    f"{array.shape}. For one channel write values[:, None]."
                )
            if array.shape[1] != arrays[0].shape[1]:
                raise ValueError(
                    f"{name}, sample {k}: expected {arrays[0].shape[1]} channels as in sample 0, "
                    f"got {array.shape[1]}"
                )
        return stack(arrays)
    array = convert(name, values)
    if array.ndim == 3 or (shareable and array.ndim == 2):
        return array
    shapes = "(samples, points, channels)"
    shapes += ", or (points, channels) shared by all samples" if shareable else ""
    raise ValueError(
        f"{name}: expected an array {shapes}, or a list of arrays (points, channels); "
        f"got shape {array.shape}. For one channel write values[..., None]."
    )


def as_single_column(name: str, values: Any, points: Column, *, integers: bool = False) -> Column:
    """Like `as_column` for one number a point: (n,) shared, (s, n), or a list of arrays (n_k,).

    A column is taken as it is: (n, 1), (s, n, 1). The positions `points` tell a shared column from
    samples of one point.
    """
    if isinstance(values, Ragged | Rows):
        return values
    expected = (
        f"{name}: expected one number for each point, shape (points,), (samples, points) or a list "
        "of arrays (points,); got"
    )
    if isinstance(values, list | tuple):
        if values and as_array(f"{name}, sample 0", values[0]).ndim == 0:  # a list of numbers
            values = as_array(name, values)[..., None]
        else:
            arrays = [as_array(f"{name}, sample {k}", v) for k, v in enumerate(values)]
            values = [array[:, None] if array.ndim == 1 else array for array in arrays]
    else:
        values = as_array(name, values)
        if values.ndim == 0:
            raise ValueError(f"{expected} a single value")
        shared = values.shape[1:] == (1,) and (len(values) == 1 or _most_points(points) != 1)
        values = values if shared or values.ndim >= 3 else values[..., None]
    column = as_column(name, values, shareable=True, integers=integers)
    if channels(column) != 1:
        raise ValueError(f"{expected} {channels(column)} numbers a point")
    return column


def _most_points(column: Column) -> int:
    """The largest number of points of a sample."""
    return int(sizes(column, 1).max(initial=0))


def to_tensor(column: Column, index: Index) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The samples at `index` as one tensor (b, n, c), and the mask of real rows if it was padded.

    A shared column has a batch axis of one.
    """
    if is_shared(column):
        return torch.from_numpy(np.ascontiguousarray(column))[None], None
    if isinstance(column, Ragged):
        arrays = [column[k] for k in index]
        if len({len(a) for a in arrays}) > 1:
            longest = max(len(a) for a in arrays)
            first = torch.from_numpy(arrays[0])
            padded = first.new_zeros(len(arrays), longest, first.shape[1])
            mask = torch.zeros(len(arrays), longest, dtype=torch.bool)
            for row, real, array in zip(padded, mask, arrays, strict=True):
                row[: len(array)] = torch.from_numpy(np.ascontiguousarray(array))
                real[: len(array)] = True
            return padded, mask
        return torch.from_numpy(np.stack(arrays)), None
    return torch.from_numpy(np.ascontiguousarray(take(column, index))), None


def check_finite(name: str, column: Column, channel_names: Sequence[str]) -> None:
    """Raise if a column has NaN or infinity, naming the sample, point and channel."""
    flat = column.flat if isinstance(column, Ragged) else column
    # One pass without a temporary of the column's size: a sum is finite only if every term is,
    # barring overflow, and only then is the slow search worth it.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.sum(flat, dtype=np.float64)):
            return
    for k, values in enumerate(samples(column, 1 if is_shared(column) else len(column))):
        bad = np.argwhere(~np.isfinite(values))
        if len(bad):
            point, channel = bad[0]
            where = "" if is_shared(column) else f", sample {k}"
            raise ValueError(
                f"{name}{where}, point {point}, channel {channel_names[channel]!r}: expected a "
                f"finite number, got {values[point, channel]}. Leave out points without a value: "
                "samples may have different points (pass lists of arrays)."
            )


def as_array(name: str, values: Any) -> np.ndarray:
    """What a user passed as `name`, as an array of whatever type; nothing that hides values.

    NumPy, torch, or nested lists of numbers. A mask would be lost on the way, and what stands under
    it is no measurement: masked arrays are refused, even where nothing is masked.
    """
    if isinstance(values, torch.Tensor):
        return _from_torch(name, values)
    if _is_masked(values):
        raise ValueError(
            f"{name}: is or contains a NumPy masked array, and masks are not read. Leave out "
            "points without a value: samples may have different points (pass lists of arrays). If "
            "nothing is masked, pass its values, array.data"
        )
    try:
        return np.asarray(values)
    except Exception as error:  # nested lists of unequal lengths, objects that refuse
        raise ValueError(f"{name}: expected an array of numbers: {error}") from error


def _from_torch(name: str, tensor: torch.Tensor) -> np.ndarray:
    try:
        small = tensor.is_floating_point() and tensor.element_size() <= 2  # NumPy lacks bfloat16
        return (tensor.float() if small else tensor).detach().cpu().resolve_conj().numpy()
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise ValueError(
            f"{name}: expected a dense tensor of numbers, got {tensor.dtype}, {tensor.layout} on "
            f"{tensor.device}"
        ) from error


def _is_masked(values: Any, depth: int = 4) -> bool:
    if isinstance(values, list | tuple) and depth:
        return any(_is_masked(v, depth - 1) for v in values)
    return isinstance(values, np.ma.MaskedArray)


def as_real(name: str, values: Any) -> np.ndarray:
    """What a user passed as `name`, as an array of single or double precision."""
    array = as_array(name, values)
    if array.dtype in (np.float32, np.float64):  # in whatever byte order
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind in "biuf":
        return array.astype(np.float32 if array.dtype.itemsize <= 2 else np.float64)
    if isinstance(values, dict):
        raise ValueError(f"{name}: expected an array of numbers, got a dict: pass its values")
    advice = {
        "c": "pass the real and the imaginary part as two channels",
        "O": "of a pandas table, drop or fill missing values (NA), then pass .to_numpy(float)",
    }.get(array.dtype.kind, "convert it to numbers first")
    raise ValueError(f"{name}: expected real numbers, got dtype {array.dtype}: {advice}")


def _as_int(name: str, values: Any) -> np.ndarray:
    array = as_array(name, values)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected whole numbers (indices), got dtype {array.dtype}")
    return array.astype(np.int64)
