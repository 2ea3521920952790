"""Fields are split, shuffled and joined: samples stay whole."""

import numpy as np
import pytest
from field_parts import KINDS, owner, tagged

from lno.data import Fields
from lno.data.columns import Ragged


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
