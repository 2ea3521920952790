"""Configs: strict in, the same out."""

import dataclasses
import json

import pytest

from lno.config import from_dict, from_tagged, require_count, require_range, to_dict, to_tagged
from lno.data.observe import PATTERNS, Intervals, RandomRatio


@dataclasses.dataclass(frozen=True)
class Size:
    width: int
    depth: int = 2
    steps: tuple[int, ...] = (1,)
    extra: list[int] = dataclasses.field(default_factory=list)
    area: int = dataclasses.field(init=False, default=0)


@dataclasses.dataclass(frozen=True)
class Whole:
    """Every field is an argument, as in all configs that are written to files."""

    width: int
    depth: int = 2
    steps: tuple[int, ...] = (1,)
    extra: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Other:
    width: int = 1


TABLE = {"size": Size, "other": Other}


def test_unknown_keys_come_with_a_suggestion():
    with pytest.raises(ValueError, match=r"Size has no key 'widht' \(did you mean 'width'\?\)"):
        from_dict(Size, {"widht": 4})
    with pytest.raises(ValueError, match="its keys are: width, depth, steps") as caught:
        from_dict(Size, {"width": 1, "zzz": 4})
    assert "did you mean" not in str(caught.value)
    with pytest.raises(ValueError, match="has no key 3"):
        from_dict(Size, {"width": 1, 3: 4})
    with pytest.raises(ValueError, match="has no key 'area'"):
        from_dict(Size, {"width": 1, "area": 4})


def test_missing_keys_are_named_and_defaults_used():
    with pytest.raises(ValueError, match="Size needs the key 'width'"):
        from_dict(Size, {"depth": 1})
    assert from_dict(Size, {"width": 5}) == Size(5)


@pytest.mark.parametrize("values", [None, 3, "width", ["width"], [("width", 1)]])
def test_only_mappings(values):
    with pytest.raises(ValueError, match="Size expects a mapping"):
        from_dict(Size, values)
    with pytest.raises(ValueError, match="'kind' to be one of size, other"):
        from_tagged(values, TABLE)


@pytest.mark.parametrize(
    "value", [Whole(3), Whole(3, 4, (5, 6), [7]), Other(9)], ids=["defaults", "all", "other"]
)
def test_tagged_round_trip_through_json(value):
    table = {"whole": Whole, "other": Other}
    stored = json.loads(json.dumps(to_tagged(value, table)))
    assert set(stored) == {"kind", *(field.name for field in dataclasses.fields(value))}
    assert from_tagged(stored, table) == value


@pytest.mark.parametrize("value", [RandomRatio(0.1), RandomRatio(0.1, 0.5), Intervals((2, 3))])
def test_patterns_round_trip_through_json(value):
    assert from_tagged(json.loads(json.dumps(to_tagged(value, PATTERNS))), PATTERNS) == value


def test_the_kind_must_be_in_the_table():
    for kind in ("other ", None, 3, ""):
        with pytest.raises(ValueError, match="'kind' to be one of size, other"):
            from_tagged({"kind": kind}, TABLE)
    with pytest.raises(ValueError, match="'kind'"):
        from_tagged({"width": 3}, TABLE)
    with pytest.raises(ValueError, match="Other has no key 'depth'"):
        from_tagged({"kind": "other", "depth": 3}, TABLE)
    with pytest.raises(ValueError, match="Other is not one of: size"):
        to_tagged(Other(), {"size": Size})


@pytest.mark.parametrize("kind", [["size"], {"size": 1}])
def test_a_kind_that_is_no_name(kind):
    """What a hostile model file may hold."""
    with pytest.raises(ValueError, match="'kind' to be one of size, other"):
        from_tagged({"kind": kind}, TABLE)


def test_a_subclass_is_not_its_parent():
    class Special(Other):
        pass

    with pytest.raises(ValueError, match="Special is not one of"):
        to_tagged(Special(), TABLE)


def test_values_are_checked_by_their_class():
    with pytest.raises(ValueError, match=r"RandomRatio\.low"):
        from_tagged({"kind": "random_ratio", "low": 7}, PATTERNS)


def test_to_dict_holds_every_field():
    assert to_dict(Size(3)) == {"width": 3, "depth": 2, "steps": (1,), "extra": [], "area": 0}


@pytest.mark.parametrize("value", [0, -1, 11, 1.0, True, "3", None, float("nan")])
def test_no_counts(value):
    with pytest.raises(ValueError, match=r"n must be a whole number from 1 to 10, got"):
        require_count("n", value, 10)


@pytest.mark.parametrize("value", [-0.1, 1.1, True, "0.5", None, float("nan"), float("inf")])
def test_no_numbers_of_the_range(value):
    with pytest.raises(ValueError, match=r"r must be a number from 0 to 1, got"):
        require_range("r", value, 0, 1)


def test_bounds_belong_to_the_range():
    require_count("n", 1, 10)
    require_count("n", 10, 10)
    require_range("r", 0, 0, 1)
    require_range("r", 1.0, 0, 1)
