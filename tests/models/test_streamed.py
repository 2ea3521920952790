"""Physics-Cross-Attention without its matrix, compared with the written-out form."""

from __future__ import annotations

import pytest
import torch
from small_models import all_close, value_and_gradient
from torch.autograd import gradcheck

from lno import Spec
from lno.models import LNO, LNOConfig, streamed
from lno.models import lno as definition
from lno.models.streamed import Factored, decode, encode

CONFIG = LNOConfig(width=16, latents=8, blocks=1, heads=2, layers=1)


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype).requires_grad_()


@pytest.fixture(autouse=True)
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(streamed, "PART", 4)  # several parts, the last one smaller


@pytest.mark.parametrize("positions", [1, 2])
@pytest.mark.parametrize("offsets", [0, 1, 2])
def test_gradients_are_exact(positions: int, offsets: int) -> None:
    keys, rows, bias = draw(positions, 9, 3), draw(5, 3), draw(5)
    values, z = draw(2, 9, 4), draw(2, 5, 4)
    added = torch.randn(offsets, 9, dtype=torch.float64) if offsets else None

    def tokens(keys: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return encode(Factored(keys, rows, bias), values, added).mean()

    def points(*factors: torch.Tensor) -> torch.Tensor:
        return decode(Factored(*factors[:3]), factors[3])

    assert gradcheck(tokens, (keys, rows, values))
    assert gradcheck(points, (keys, rows, bias, z))


@pytest.mark.parametrize(
    "case", ["shared", "own", "masked", "weighted", "shared masked", "shared weighted"]
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_model_is_the_written_out_one_in_value_and_gradient(
    case: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, b, n = LNO(Spec(2, 1, 1), CONFIG).to(dtype), 3, 50
    x = torch.randn(1 if "shared" in case else b, n, 2, dtype=dtype)
    u = torch.randn(b, n, 1, dtype=dtype)
    mask = torch.rand(b, n) < 0.6 if "masked" in case else None
    if mask is not None:
        mask[0] = False  # whole parts are padding
        mask[:, -1] = True
    weights = None
    if "weighted" in case:
        weights = torch.rand(1 if "shared" in case else b, n, dtype=dtype)
        weights[:, 8:12] = 0  # a whole part
    results = []
    for most in (0, 10**9):
        monkeypatch.setattr(definition, "WRITTEN_OUT", most)
        results.append(value_and_gradient(model, model(x, u, x, mask, weights)))
    tolerance = 1e-10 if dtype == torch.float64 else 3e-5
    assert all_close(*results, tolerance)


def test_in_half_precision_it_is_as_accurate(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: dict[int, float] = {0: 0.0, 10**9: 0.0}
    for seed in range(1, 6):
        torch.manual_seed(seed)
        model = LNO(Spec(2, 1, 1), CONFIG)
        x, u = torch.randn(3, 50, 2), torch.randn(3, 50, 1)
        exact = value_and_gradient(model, model(x, u, x))
        for most in errors:
            monkeypatch.setattr(definition, "WRITTEN_OUT", most)
            with torch.autocast("cpu", torch.bfloat16):
                got = value_and_gradient(model, model(x, u, x))
            pairs = zip(got, exact, strict=True)
            errors[most] += sum(float((a - b).norm() / b.norm().clamp(min=1e-6)) for a, b in pairs)
    assert 0 < errors[0] < 1.5 * errors[10**9]


def test_the_matrix_is_written_out_only_if_it_is_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attention = LNO(Spec(2, 1, 1), CONFIG).encoder
    features = torch.rand(2, 10, 16)
    assert isinstance(attention.scores(features), torch.Tensor)
    monkeypatch.setattr(definition, "WRITTEN_OUT", 2 * 10 * 8 - 1)
    assert isinstance(attention.scores(features), Factored)
    with torch.no_grad():  # predictions come in chunks of points
        assert isinstance(attention.scores(features), torch.Tensor)


@pytest.mark.parametrize("compiled", [False, True])
def test_no_scores_are_kept_for_the_backward_pass(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if a compiler sees that they are computed twice."""
    monkeypatch.setattr(definition, "WRITTEN_OUT", 0)
    model = LNO(Spec(2, 1, 1), LNOConfig(width=16, latents=48, blocks=1, heads=2, layers=1))
    x, u = torch.rand(1, 20, 2), torch.rand(3, 20, 1)
    kept: list[tuple[int, ...]] = []

    def keep(values: torch.Tensor) -> torch.Tensor:
        kept.append(tuple(values.shape))
        return values

    def predict(x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return model(x, u, x)

    if compiled:
        for name in ("encode", "decode"):  # restored after the test
            monkeypatch.setattr(streamed, name, getattr(streamed, name))
        streamed.stay_uncompiled()
        predict = torch.compile(predict, backend="aot_eager_decomp_partition", dynamic=False)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda values: values):
        predict(x, u)
    assert kept
    assert not [s for s in kept if 48 in s and (20 in s or streamed.PART in s)]
