"""Batches of fields: their samples, and padding that is marked."""

import numpy as np
import pytest
import torch
from field_parts import KINDS, parts_of, prove, tagged
from hypothesis import given
from hypothesis import strategies as st

from lno.data import Fields


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
def test_outputs_at_the_observed_points_share_their_tensor(kind):
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
