"""Bad data are named when fields are made of them."""

import numpy as np
import pytest
from field_parts import KINDS, parts_of, prove
from hypothesis import given
from hypothesis import strategies as st

from lno.data import Fields


def bad(given, name, sample, value):
    given[name][sample][1, 0] = value
    return given


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["x", "u", "x_query", "y"])
@pytest.mark.parametrize("kind", ["uniform", "ragged"])
def test_numbers_that_are_not_finite(kind, name, value):
    given, _ = parts_of(kind, seed=3)
    with pytest.raises(ValueError, match=rf"^{name}, sample 1, point 1, channel .*{value}"):
        Fields(**bad(given, name, 1, value))


def test_numbers_that_are_not_finite_in_shared_points():
    with pytest.raises(ValueError, match=r"^x, point 2, channel 'depth'.*nan"):
        Fields(np.array([[0.0], [1.0], [np.nan]]), names={"x": ["depth"]})


def test_infinities_that_cancel_and_sums_that_overflow():
    x = np.arange(2.0)[:, None]
    with pytest.raises(ValueError, match="sample 0, point 0"):
        Fields(x, np.array([[[np.inf], [-np.inf]]]))
    huge = np.full((1, 2, 1), 1e308)
    np.testing.assert_array_equal(Fields(x, huge).u, huge)


@pytest.mark.parametrize("kind", ["uniform", "ragged"])
@pytest.mark.parametrize(("name", "of"), [("u", "x"), ("y", "x_query")])
def test_points_and_values_must_match(kind, name, of):
    given, samples = parts_of(kind)
    given[name] = list(given[name])
    given[name][3] = np.concatenate((given[name][3], given[name][3]))
    n = len(samples[3][0 if name == "u" else 2])
    with pytest.raises(ValueError, match=f"^{name}, sample 3: expected {n} points as in {of}"):
        Fields(**given)


@pytest.mark.parametrize("name", ["x", "u", "x_query", "y"])
def test_sample_counts_must_match(name):
    given, _ = parts_of("ragged")
    given[name] = given[name][:-1]
    with pytest.raises(ValueError, match=rf"same number of samples.*\b{name} has 5"):
        Fields(**given)


@pytest.mark.parametrize("name", ["x", "u", "x_query", "y"])
@pytest.mark.parametrize(
    "values", [np.array([["a"]]), np.array([[None]]), np.array([[1j]]), np.array([["2026"]], "M8")]
)
def test_only_real_numbers(name, values):
    given = {"x": np.zeros((1, 1, 1)), name: [values]}
    with pytest.raises(ValueError, match=f"^{name}, sample 0: expected real numbers"):
        Fields(**given)
    given = {"x": np.zeros((1, 1, 1)), name: values[None]}
    with pytest.raises(ValueError, match=f"^{name}: expected real numbers"):
        Fields(**given)


@pytest.mark.parametrize("name", ["x", "u", "x_query", "y"])
def test_a_missing_channel_axis(name):
    given = {"x": np.arange(3.0)[None, :, None]}
    flat = np.zeros(3) if name in ("x", "x_query") else np.zeros((1, 3))
    with pytest.raises(ValueError, match=rf"^{name}: expected an array .*None\]"):
        Fields(**{**given, name: flat})
    with pytest.raises(ValueError, match=rf"^{name}, sample 0: expected an array .*None\]"):
        Fields(**{**given, name: [np.zeros(3)]})
    with pytest.raises(ValueError, match=rf"^{name}: .*\(1, 1, 3, 1\)"):
        Fields(**{**given, name: np.zeros((1, 1, 3, 1))})


@pytest.mark.parametrize("name", ["x", "u", "x_query", "y"])
def test_other_channels_in_a_later_sample(name):
    given, _ = parts_of("ragged")
    given[name][2] = np.zeros((len(given[name][2]), 7))
    with pytest.raises(ValueError, match=f"^{name}, sample 2: expected . channels .*got 7"):
        Fields(**given)


@pytest.mark.parametrize("name", ["x", "u", "x_query", "y"])
def test_no_samples(name):
    given = {"x": np.zeros((2, 1)), name: []}
    with pytest.raises(ValueError, match=f"^{name} is an empty list"):
        Fields(**given)
    if name != "x":
        with pytest.raises(ValueError, match="no samples"):
            Fields(**{**given, name: np.zeros((0, 2, 1))})
    else:
        with pytest.raises(ValueError, match="no samples"):
            Fields(np.zeros((0, 2, 1)))


def test_no_points():
    with pytest.raises(ValueError, match="x, sample 1 has no points"):
        Fields([np.ones((2, 1)), np.ones((0, 1))])
    with pytest.raises(ValueError, match="x, sample 0 has no points"):
        Fields(np.ones((0, 1)))
    with pytest.raises(ValueError, match="x_query, sample 1 has no points"):
        Fields(np.ones((1, 1)), None, [np.ones((2, 1)), np.ones((0, 1))],
               [np.ones((2, 1)), np.ones((0, 1))])  # fmt: skip


@pytest.mark.parametrize("query", [np.ones((0, 1)), [np.ones((0, 1)), np.ones((2, 1))]])
def test_no_query_points_without_outputs(query):
    with pytest.raises(ValueError, match="x_query, sample 0 has no points"):
        Fields(np.ones((2, 1, 1)), x_query=query)


def test_coordinates_must_match():
    with pytest.raises(ValueError, match="no coordinates"):
        Fields(np.zeros((2, 0)))
    with pytest.raises(ValueError, match="x_query has 3 coordinates, x has 2"):
        Fields(np.zeros((2, 2)), x_query=np.zeros((1, 3)))


def clashing(kind, of):
    """Two samples; in sample 1, points 0 and 2 are one position with two values."""
    place = np.array([[0.5, 0.5], [0.0, 1.0], [0.5, 0.5]])
    apart = np.array([[0.5, 0.5], [0.0, 1.0], [0.5, 0.6]])
    same, other = np.array([[1.0], [2.0], [1.0]]), np.array([[1.0], [2.0], [3.0]])
    x = {"shared": place, "uniform": np.stack((place, place)), "ragged": [apart[:2], place]}[kind]
    values = [same[:2] if kind == "ragged" else same, other]
    if of == "u":
        return {"x": x, "u": values}
    return {"x": np.zeros((1, 2)), "x_query": x, "y": values}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("of", ["u", "y"])
def test_one_position_with_two_values(kind, of):
    given = clashing(kind, of)
    points = "x" if of == "u" else "x_query"
    with pytest.raises(ValueError, match=f"^{points}, sample 1: points 0 and 2 .*different {of}"):
        Fields(**given)
    given[of][1] = given[of][1].copy()
    given[of][1][2] = given[of][1][0]
    assert len(Fields(**given)) == 2, "an identical repeat contradicts nothing"


def test_one_position_with_two_outputs_at_the_observed_points():
    x = np.array([[0.0], [0.0]])
    with pytest.raises(ValueError, match="different y"):
        Fields(x, np.ones((1, 2, 1)), y=np.array([[[1.0], [2.0]]]))


@prove
@given(st.integers(2, 30), st.integers(0, 999))
def test_a_clash_is_found_wherever_it_hides(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 3, (n, 2)).astype(float)
    u = (x[:, :1] * 3 + x[:, 1:]).copy()
    assert len(Fields(x, u[None])) == 1
    k = int(rng.integers(n))
    u[k] += 100
    if np.sum(np.all(x == x[k], axis=1)) > 1:
        with pytest.raises(ValueError, match=rf"\b{k}\b.*same position"):
            Fields(x, u[None])
    else:
        assert len(Fields(x, u[None])) == 1


@pytest.mark.parametrize("what", ["names", "units"])
@pytest.mark.parametrize(
    ("value", "word"),
    [
        ({"z": ["a"]}, "'z'"),
        ({"x_query": ["a"]}, "'x_query'"),
        ({"x": ["a"]}, r"\['x'\]: expected 2"),
        ({"x": "ab"}, r"\['x'\]: expected 2"),
        ({"u": ["a", "b"]}, r"\['u'\]: expected 1"),
        ({"y": ["a"]}, r"\['y'\]: expected 0"),
    ],
)
def test_wrong_labels(what, value, word):
    with pytest.raises(ValueError, match=f"^{what}.*{word}"):
        Fields(np.eye(2), np.zeros((1, 2, 1)), **{what: value})


@pytest.mark.parametrize("grid", [(2,), (2, 2), (4,), (0, 3), ()])
def test_a_grid_that_does_not_fit(grid):
    with pytest.raises(ValueError, match="grid"):
        Fields(np.arange(3.0)[:, None], grid=grid)


@pytest.mark.parametrize("grid", [(-2, -3), (2.9, 3), (-1, -6)])
def test_a_grid_of_no_counts(grid):
    with pytest.raises(ValueError, match="grid"):
        Fields(np.arange(6.0)[:, None], grid=grid)


def test_a_grid_is_of_the_query_points_and_of_every_sample():
    x = np.arange(6.0)[:, None]
    assert Fields(np.zeros((1, 1)), x_query=x, grid=(2, 3)).spec.grid == (2, 3)
    with pytest.raises(ValueError, match="grid"):
        Fields(x, x_query=np.zeros((1, 1)), grid=(2, 3))
    with pytest.raises(ValueError, match="grid"):
        Fields([x, x[:5]], grid=(2, 3))


@pytest.mark.parametrize("period", [(1.0,), (1.0, 0.0), (-1.0, None), (np.inf, 1), (np.nan, 1), ()])
def test_a_wrong_period(period):
    with pytest.raises(ValueError, match=r"^period"):
        Fields(np.eye(2), period=period)


def test_masked_values_are_not_read_as_if_they_were_real():
    """What stands behind a mask is a fill value, not a measurement."""
    u = np.ma.masked_array([[[1.0], [-9999.0]]], mask=[[[False], [True]]])
    with pytest.raises(ValueError, match=r"^u"):
        Fields(np.arange(2.0)[:, None], u)
