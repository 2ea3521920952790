"""Fields: what goes in comes out, samples stay whole, and bad data are named."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lno.data import Fields, Spec
from lno.data.columns import Ragged, is_shared

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


# -- shapes and types ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_samples_come_back(kind, dtype):
    given, samples = parts_of(kind, dtype=dtype)
    fields = Fields(**given)
    assert_samples(fields, samples)
    assert fields.spec == Spec(2, 2, 1)
    assert_samples([fields[-1]], [samples[-1]])
    with pytest.raises(IndexError):
        fields[len(samples)]


@pytest.mark.parametrize("kind", KINDS)
def test_torch_and_numpy_are_the_same_data(kind):
    given, _ = parts_of(kind)

    def tensor(v):
        return (
            [tensor(a) for a in v] if isinstance(v, list) else torch.tensor(v, requires_grad=True)
        )

    tensors = {name: tensor(v) for name, v in given.items()}
    assert Fields(**tensors).digest == Fields(**given).digest


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (np.int64, np.float64),
        (np.int32, np.float64),
        (np.uint8, np.float32),
        (np.int16, np.float32),
        (np.bool_, np.float32),
        (np.float16, np.float32),
        (np.float32, np.float32),
        (">f8", np.float64),
    ],
)
@pytest.mark.parametrize("as_list", [False, True])
def test_every_real_type_becomes_a_float_without_loss(dtype, expected, as_list):
    values = np.array([[0, 1, 1, 0], [1, 0, 1, 1]]).astype(dtype)[..., None]
    fields = Fields(np.arange(4.0)[:, None], list(values) if as_list else values)
    assert fields.u.dtype == expected
    np.testing.assert_array_equal(fields.u, values.astype(np.float64))
    assert fields.batch([0]).u.numpy().dtype == expected


def test_integers_beyond_single_precision_keep_their_digits():
    u = np.array([[[16_777_217], [-16_777_219]]], dtype=np.int32)
    np.testing.assert_array_equal(Fields(np.arange(2)[:, None], u).u, u)


def test_bfloat16_tensors_become_floats():
    u = torch.tensor([[[0.5], [2.0]]], dtype=torch.bfloat16)
    np.testing.assert_array_equal(Fields(np.arange(2.0)[:, None], u).u, [[[0.5], [2.0]]])


def test_reversed_and_transposed_arrays_are_read_by_value():
    base = np.random.default_rng(0).standard_normal((2, 5, 3))
    x = np.arange(5.0)[::-1, None]
    u = base.transpose(0, 2, 1)[:, ::-1].transpose(0, 2, 1)
    fields = Fields(x, u)
    np.testing.assert_array_equal(fields.batch([1, 0]).u.numpy(), u[[1, 0]])
    np.testing.assert_array_equal(fields.batch([0]).x.numpy()[0], x)
    assert fields.digest == Fields(x.copy(), u.copy()).digest


def test_no_values_and_no_answers():
    ragged = Fields([np.zeros((1, 2)), np.eye(2)])
    assert ragged.spec == Spec(2, 0, 0)
    assert [s.u.shape for s in ragged] == [(1, 0), (2, 0)]
    assert ragged.subset([1])[0].u.shape == (2, 0)
    assert Fields(np.eye(2)).spec == Spec(2, 0, 0)
    assert all(s.y is None for s in ragged)


# -- arranging -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_samples_stay_together(kind):
    fields = tagged(kind)
    assert owner(fields) == list(range(8))
    first, second, third = fields.split(3, 1, 2)
    assert [owner(part) for part in (first, second, third)] == [[0, 1, 2], [3], [4, 5]]
    assert owner(fields.subset([5, 0, 5, -1])) == [5, 0, 5, 7]
    assert owner(fields.subset(np.arange(8) % 2 == 1)) == [1, 3, 5, 7]
    assert owner(fields.subset(np.array([6, 3, 0]))) == [6, 3, 0]
    assert owner(Fields.concatenate([third, first.subset([2, 1])])) == [4, 5, 2, 1]
    whole = Fields.concatenate(fields.split(3, 5))
    assert whole.digest == fields.digest


@pytest.mark.parametrize("kind", KINDS)
def test_shuffle_is_a_seeded_permutation(kind):
    fields = tagged(kind)
    one, again, other = (owner(fields.shuffle(seed)) for seed in (1, 1, 2))
    assert one == again
    assert one != other
    assert sorted(one) == list(range(8)) != one


def test_concatenating_different_points():
    first = Fields(np.arange(3.0)[:, None], np.zeros((2, 3, 1)))
    longer = Fields(np.arange(4.0)[:, None], np.ones((1, 4, 1)))
    moved = Fields(np.arange(3.0)[:, None] + 1, np.ones((1, 3, 1)))
    joined = Fields.concatenate([first, longer])
    assert isinstance(joined.x, Ragged)
    assert [len(s.x) for s in joined] == [3, 3, 4]
    joined = Fields.concatenate([first, moved])
    np.testing.assert_array_equal(joined[2].x, moved[0].x)
    np.testing.assert_array_equal(joined[1].x, first[1].x)
    assert Fields.concatenate([first, first]).x.ndim == 2, "equal shared points stay shared"


@pytest.mark.parametrize("kind", KINDS)
def test_consecutive_parts_are_views(kind):
    fields = tagged(kind)
    for part in fields.split(3, 5):
        for name in ("x", "u", "x_query", "y"):
            mine, whole = part.column(name), fields.column(name)
            if isinstance(mine, Ragged):
                assert mine.flat is whole.flat
            else:
                assert np.shares_memory(mine, whole)


@pytest.mark.parametrize("counts", [(5, 4), (0, 3), (-1, 3), (9,)])
def test_impossible_splits(counts):
    with pytest.raises(ValueError, match="cannot split 8 samples"):
        tagged("uniform").split(*counts)


def test_no_samples_left():
    fields = tagged("ragged")
    with pytest.raises(ValueError, match="no samples"):
        fields.subset(np.zeros(8, dtype=bool))
    with pytest.raises(IndexError):
        fields.subset([8])


def test_an_empty_list_of_samples_says_so():
    with pytest.raises(ValueError, match="no samples"):
        tagged("uniform").subset([])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"names": {"u": ["other"]}}, "names"),
        ({"units": {"u": ["m"]}}, "units"),
        ({"frame": "moving"}, "frame"),
        ({"period": [1.0]}, "period"),
        ({"grid": [3]}, "grid"),
        ({"y": np.zeros((1, 3, 1))}, "part 1"),
        ({"x_query": np.arange(3.0)[:, None]}, "part 1"),
    ],
)
def test_only_data_of_one_kind_are_concatenated(change, word):
    x, u = np.arange(3.0)[:, None], np.zeros((1, 3, 1))
    with pytest.raises(ValueError, match=word):
        Fields.concatenate([Fields(x, u), Fields(**{"x": x, "u": u, **change})])


def test_concatenating_nothing():
    with pytest.raises(ValueError, match="nothing to concatenate"):
        Fields.concatenate([])


# -- batches ---------------------------------------------------------------------------------------


@prove
@given(st.data())
def test_a_batch_is_its_samples_and_padding_is_marked(data):
    sizes = st.lists(st.integers(1, 7), min_size=1, max_size=6)
    n = data.draw(sizes)
    s = len(n)
    q = data.draw(st.lists(st.integers(1, 7), min_size=s, max_size=s))
    index = data.draw(st.lists(st.integers(0, s - 1), min_size=1, max_size=8))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x, u = ([rng.standard_normal((k, c)) for k in n] for c in (2, 3))
    x_query, y = ([rng.standard_normal((k, c)) for k in q] for c in (2, 1))
    batch = Fields(x, u, x_query, y).batch(index)
    assert len(batch) == len(index)
    for mask, count, pairs in (
        (batch.mask, n, ((batch.x, x), (batch.u, u))),
        (batch.query_mask, q, ((batch.x_query, x_query), (batch.y, y))),
    ):
        assert (mask is None) == (len({count[k] for k in index}) == 1)
        for row, k in enumerate(index):
            real = slice(None) if mask is None else mask[row]
            for got, expected in pairs:
                np.testing.assert_array_equal(got[row, real].numpy(), expected[k])
                if mask is not None:
                    assert torch.all(got[row, ~mask[row]] == 0)


def test_uniform_batches_have_no_mask_and_shared_points_one_row():
    given, _ = parts_of("uniform")
    batch = Fields(**given).batch([4, 1])
    assert batch.mask is None
    assert batch.query_mask is None
    assert torch.equal(batch.x, torch.tensor(given["x"][[4, 1]]))
    given, _ = parts_of("shared")
    batch = Fields(**given).batch([4, 1, 1])
    assert torch.equal(batch.x, torch.tensor(given["x"])[None])
    assert torch.equal(batch.x_query, torch.tensor(given["x_query"])[None])
    assert torch.equal(batch.u, torch.tensor(given["u"][[4, 1, 1]]))


@pytest.mark.parametrize("kind", KINDS)
def test_answers_at_the_observed_points_share_their_tensor(kind):
    given, _ = parts_of(kind)
    same = Fields(given["x"], given["u"], y=given["u"])
    assert same.same_points
    batch = same.batch([0, 1, 2])
    assert batch.x_query is batch.x
    assert batch.query_mask is batch.mask
    moved = batch.each(lambda v: v + 1, ("x", "x_query"))
    assert moved.x_query is moved.x
    other = Fields(**given).batch([0, 1])
    assert other.x_query is not other.x


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_counts_from_the_end_like_a_sample(kind):
    fields = tagged(kind)
    for index in ([-1], [-2, -1], [-1, 0]):
        batch = fields.batch(index)
        assert len(batch) == len(index)
        assert [int(u) for u in batch.u[:, 0, 0]] == [k % 8 for k in index]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", [[8], [6, 7, 8], [0, 99]])
def test_a_batch_of_missing_samples_is_an_error(kind, index):
    with pytest.raises(IndexError):
        tagged(kind).batch(index)


def test_some_queries_of_a_batch():
    given, samples = parts_of("ragged")
    batch = Fields(**given).batch([0, 1])
    part = batch.at_queries(torch.tensor([1, 4]))
    assert part.query_mask.tolist() == [[True, True], [True, False]]
    np.testing.assert_array_equal(part.y[0].numpy(), samples[0][3][[1, 4]])
    assert torch.equal(part.u, batch.u)


# -- hash ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_hash_sees_every_change(kind):
    def make(change=None, **meaning):
        given, _ = parts_of(kind, s=3)
        if change is not None:
            change(given)
        return Fields(**given, **meaning)

    def nudge(name):
        def change(given):
            last = given[name][-1]
            last[..., -1:] = np.nextafter(last[..., -1:], np.inf)

        return change

    def single(given):
        given["u"] = [np.asarray(a, np.float32) for a in given["u"]]

    base = make()
    assert base.digest == make().digest
    assert base.digest == make(provenance={"solver": "any", "made": [1, 2]}).digest
    others = [
        *(make(nudge(name)) for name in ("x", "u", "x_query", "y")),
        make(single),
        make(lambda given: given.pop("y")),
        make(names={"x": ["t", "z"]}),
        make(names={"u": ["p", "q"]}),
        make(names={"y": ["p"]}),
        make(units={"x": ["m", "s"]}),
        make(units={"y": ["Pa"]}),
        make(frame="moving"),
        make(period=[1.0, None]),
        make(period=[None, 1.0]),
        base.subset([1, 0, 2]),
        base.subset([0, 1]),
    ]
    if kind != "ragged":
        others += [make(grid=(2, 2)), make(grid=(4,)), make(grid=(1, 4))]
    hashes = [base.digest, *(other.digest for other in others)]
    assert len(set(hashes)) == len(hashes)


def test_the_hash_knows_where_samples_end():
    a, b, c = np.array([[1.0]]), np.array([[2.0]]), np.array([[3.0]])
    one = Fields([np.concatenate((a, b)), c])
    other = Fields([a, np.concatenate((b, c))])
    assert one.digest != other.digest


def test_the_hash_is_of_content_not_of_memory():
    given, _ = parts_of("ragged", s=4)
    fields = Fields(**given)
    once = Fields(**{name: [arrays[k] for k in (2, 0)] for name, arrays in given.items()})
    assert fields.subset([2, 0]).digest == once.digest


# -- errors ----------------------------------------------------------------------------------------


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
def test_no_query_points_without_answers(query):
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


def test_one_position_with_two_answers_at_the_observed_points():
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


def test_labels_are_kept_and_have_defaults():
    fields = Fields(np.eye(2), np.zeros((1, 2, 1)), names={"x": ("a", "b")}, units={"u": ["m"]})
    assert fields.names == {"x": ["a", "b"], "u": ["u0"], "y": []}
    assert fields.units == {"x": ["", ""], "u": ["m"], "y": []}
    assert fields.subset([0]).names == fields.names


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


def test_the_period_may_be_an_array():
    assert Fields(np.eye(2), period=np.array([1.0, 2.0])).period == (1.0, 2.0)


def test_masked_values_are_not_read_as_if_they_were_real():
    """What stands behind a mask is a fill value, not a measurement."""
    u = np.ma.masked_array([[[1.0], [-9999.0]]], mask=[[[False], [True]]])
    with pytest.raises(ValueError, match=r"^u"):
        Fields(np.arange(2.0)[:, None], u)


def test_the_caller_keeps_the_data_unchanged():
    given, samples = parts_of("ragged")
    copies = {name: [a.copy() for a in arrays] for name, arrays in given.items()}
    fields = Fields(**given)
    batch = fields.batch([0, 1])
    batch.u.zero_()
    for name, arrays in given.items():
        for a, b in zip(arrays, copies[name], strict=True):
            np.testing.assert_array_equal(a, b)
    assert_samples(fields, samples)


def test_without_period_changes_nothing_else() -> None:
    x, y = np.linspace(0, 0.9, 10)[:, None], np.random.default_rng(0).normal(size=(2, 10, 1))
    given = Fields(x, y=y, period=(1.0,), names={"x": ["phase"]})
    plain = given.without_period()
    assert plain.period is None
    assert given.period == (1.0,)
    assert plain.names == given.names
    assert np.array_equal(plain.y, given.y)
    assert plain.digest != given.digest
