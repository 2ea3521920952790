from __future__ import annotations

import pytest
import torch

pytest.importorskip("beartype")

from beartype.roar import BeartypeCallHintParamViolation, BeartypeCallHintReturnViolation
from jaxtyping import Float
from shape_checks import checked
from torch import Tensor

from lno.data import Batch
from lno.metrics import relative_l2
from lno.models import LNO, LNOConfig
from lno.models.model import Spec

WRONG_ARGUMENT = BeartypeCallHintParamViolation


@checked
def total(x: Float[Tensor, "b n"], scale: int = 1, *, axis: int = -1) -> Float[Tensor, " b"]:
    return scale * x.sum(axis)


def test_functions_of_the_package_refuse_wrong_shapes() -> None:
    with pytest.raises(WRONG_ARGUMENT, match="which does not equal the existing value of 4"):
        relative_l2(torch.ones(2, 4, 1), torch.ones(2, 5, 1))


def test_constructors_of_dataclasses_refuse_wrong_shapes() -> None:
    x = torch.zeros(1, 4, 2)
    assert len(Batch(x, torch.zeros(3, 4, 1), x)) == 3
    with pytest.raises(WRONG_ARGUMENT):
        Batch(x, torch.zeros(3, 5, 1), x)


def test_models_refuse_wrong_shapes() -> None:
    model = LNO(Spec(2, 1, 1, None), LNOConfig(width=8, latents=4, blocks=1, heads=2))
    x, u = torch.rand(2, 6, 2), torch.rand(2, 6, 1)
    assert torch.isfinite(model(x, u, x)).all()
    with pytest.raises(WRONG_ARGUMENT):
        model(x, u[:, :5], x)


def test_results_are_checked_defaults_kept_and_other_types_left_alone() -> None:
    x = torch.ones(2, 3)
    assert torch.equal(total(x, 2.0), torch.full((2,), 6.0))
    with pytest.raises(BeartypeCallHintReturnViolation):
        total(x, axis=0)


def test_the_compiler_sees_the_function_alone() -> None:
    compiled = torch.compile(total, fullgraph=True, backend="eager")
    assert torch.equal(compiled(torch.ones(2, 3)), torch.full((2,), 3.0))
