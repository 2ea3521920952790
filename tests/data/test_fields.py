"""Fields: what goes in comes out, of every type, unchanged."""

import numpy as np
import pytest
import torch
from field_parts import KINDS, assert_samples, parts_of

from lno.data import Fields, Spec


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


def test_no_values_and_no_outputs():
    ragged = Fields([np.zeros((1, 2)), np.eye(2)])
    assert ragged.spec == Spec(2, 0, 0)
    assert [s.u.shape for s in ragged] == [(1, 0), (2, 0)]
    assert ragged.subset([1])[0].u.shape == (2, 0)
    assert Fields(np.eye(2)).spec == Spec(2, 0, 0)
    assert all(s.y is None for s in ragged)


def test_labels_are_kept_and_have_defaults():
    fields = Fields(np.eye(2), np.zeros((1, 2, 1)), names={"x": ("a", "b")}, units={"u": ["m"]})
    assert fields.names == {"x": ["a", "b"], "u": ["u0"], "y": []}
    assert fields.units == {"x": ["", ""], "u": ["m"], "y": []}
    assert fields.subset([0]).names == fields.names


def test_the_period_may_be_an_array():
    assert Fields(np.eye(2), period=np.array([1.0, 2.0])).period == (1.0, 2.0)


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
