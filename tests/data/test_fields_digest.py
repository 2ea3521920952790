"""The hash of fields: of all their content, and of nothing else."""

import numpy as np
import pytest
from field_parts import KINDS, parts_of

from lno.data import Fields


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
