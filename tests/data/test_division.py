"""The random split into training, validation and test samples."""

from __future__ import annotations

import numpy as np
import pytest

from lno import Fields
from lno.data.division import Division

X = np.linspace(0, 1, 3)[:, None]


def samples(count: int, **more: object) -> Fields:
    return Fields(X, y=np.arange(3.0 * count).reshape(count, 3, 1), **more)


def test_a_tenth_is_for_testing_and_a_tenth_of_the_rest_for_validation() -> None:
    parts = Division().parts(samples(500))
    assert [len(part) for part in parts] == [405, 45, 50]
    assert sorted(np.concatenate(parts).tolist()) == list(range(500))
    assert all(np.all(np.diff(part) > 0) for part in parts)
    assert parts[2].max() - parts[2].min() > 400  # not consecutive
    again, other = (Division(seed).parts(samples(500))[2] for seed in (0, 1))
    assert np.array_equal(again, parts[2]) and not np.array_equal(other, parts[2])


@pytest.mark.parametrize("count", [2, 3, 5])
def test_very_few_samples_still_train_and_test(count: int) -> None:
    train, validation, test = Division().parts(samples(count))
    assert len(train) >= 1 and len(test) == 1
    assert len(train) + len(validation) + len(test) == count


@pytest.mark.parametrize(("count", "expected"), [(40, 4), (48, 4), (49, 9), (99, 9), (110, 10)])
def test_small_sets_keep_enough_samples_for_bounds(count: int, expected: int) -> None:
    """Nine, if these are at most a fifth of what is left after testing."""
    train, validation, test = Division().parts(samples(count))
    assert len(validation) == expected
    assert len(train) + len(validation) + len(test) == count


@pytest.mark.parametrize("where", ["parameter", "provenance"])
def test_samples_of_one_group_stay_together(where: str) -> None:
    group = np.repeat(np.arange(12), 5)
    more = {"provenance": {"geometry": [f"wing {g}" for g in group]}}
    if where == "parameter":
        more = {"parameters": group[:, None], "names": {"parameters": ["geometry"]}}
    parts = Division(groups="geometry").parts(samples(60, **more))
    groups = [set(group[part].tolist()) for part in parts]
    assert all(groups) and not (groups[0] & groups[1] or groups[0] & groups[2])
    assert sum(map(len, groups)) == 12


def test_groups_that_cannot_be_split_are_errors() -> None:
    data = samples(4, parameters=np.ones((4, 1)), names={"parameters": ["geometry"]})
    with pytest.raises(ValueError, match="all 4 samples have the same 'geometry'"):
        Division(groups="geometry").parts(data)
    with pytest.raises(ValueError, match=r"no parameter 'geometri' \(did you mean 'geometry'\?\)"):
        Division(groups="geometri").parts(data)
    with pytest.raises(ValueError, match="at least two samples"):
        Division().parts(samples(1))
