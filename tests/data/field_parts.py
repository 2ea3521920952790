"""Fields for tests, with the samples that they hold."""

import numpy as np
from hypothesis import HealthCheck, settings

from lno.data import Fields
from lno.data.columns import is_shared

KINDS = ("uniform", "shared", "ragged")
prove = settings(
    derandomize=True,
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
)


def parts_of(kind, s=6, d=2, i=2, o=1, seed=0, dtype=np.float64):
    """Arguments of Fields and the samples (x, u, x_query, y) that they hold."""
    rng = np.random.default_rng(seed)
    n, q = np.full(s, 5), np.full(s, 4)
    if kind == "ragged":
        n, q = rng.integers(1, 9, s), rng.integers(1, 9, s)
        n[:2], q[:2] = (3, 5), (7, 2)  # different sizes for certain

    def draw(size, c):
        return rng.standard_normal((size, c)).astype(dtype)

    u, y = [draw(k, i) for k in n], [draw(k, o) for k in q]
    if kind == "shared":
        x, x_query = draw(5, d), draw(4, d)
        samples = [(x, a, x_query, b) for a, b in zip(u, y, strict=True)]
        return {"x": x, "u": np.stack(u), "x_query": x_query, "y": np.stack(y)}, samples
    x, x_query = [draw(k, d) for k in n], [draw(k, d) for k in q]
    samples = list(zip(x, u, x_query, y, strict=True))
    given = dict(zip(("x", "u", "x_query", "y"), (x, u, x_query, y), strict=True))
    if kind == "uniform":
        given = {name: np.stack(arrays) for name, arrays in given.items()}
    return given, samples


def assert_samples(fields, samples):
    assert len(fields) == len(samples)
    for got, expected in zip(fields, samples, strict=True):
        for a, b in zip(got[:4], expected, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def tagged(kind, s=8):
    """Fields whose every number names its sample, to see whether samples stay together."""
    sizes = np.arange(s) % 3 + 2 if kind == "ragged" else np.full(s, 4)
    place = [np.arange(n)[:, None] / 100.0 for n in sizes]

    def values(offset):
        return [k + offset + p for k, p in enumerate(place)]

    if kind == "shared":
        return Fields(place[0], values(0.1), place[0] + 0.5, values(0.2))
    return Fields(values(0.0), values(0.1), values(0.5), values(0.2))


def owner(fields):
    """The sample that each sample of `tagged` was, checked in all its columns."""
    found = []
    for x, u, x_query, y, *_ in fields:
        k = int(u[0, 0])
        np.testing.assert_allclose(y - u, 0.1)
        if not is_shared(fields.x):
            np.testing.assert_allclose(u - x, 0.1)
            np.testing.assert_allclose(x_query - x, 0.5)
        found.append(k)
    return found
