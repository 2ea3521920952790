"""Softmax sums over any number of points, some of the points at a time.

`SoftmaxSums` is what the encoder of Physics-Cross-Attention adds up over points. Sums over chunks
of points, or over parts of a mesh on several processes, merge into those over all points.

`Factored` scores are an N × M matrix that is never written out. The last layer of the projector
makes the scores S = keys · rowsᵀ + bias, so Physics-Cross-Attention is an attention between the M
rows of that layer and the N points. `encode` and `decode` compute some points' scores at a time,
and again in the backward pass, in the memory of their inputs. Both are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


def slices(count: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size` that cover 0..count.

    >>> list(slices(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    if size < 1:
        raise ValueError(f"expected a chunk of at least one point, got {size}")
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


class SoftmaxSums(NamedTuple):
    """A softmax-weighted sum over some of the points, which merges with that over others.

    With scores s and values v it holds top = max s, total = Σ exp(s − top) and
    weighted = Σ exp(s − top) v, for each latent position. Sums over disjoint sets of points merge
    exactly (the online softmax of Milakov & Gimelshein, 2018).
    """

    top: Float[Tensor, "b m"]
    total: Float[Tensor, "b m"]
    weighted: Float[Tensor, "b m c"]

    def merge(self, other: SoftmaxSums) -> SoftmaxSums:
        """The sums over the points of both."""
        top = torch.maximum(self.top, other.top)
        a, b = torch.exp(self.top - top), torch.exp(other.top - top)
        return SoftmaxSums(
            top,
            a * self.total + b * other.total,
            a[..., None] * self.weighted + b[..., None] * other.weighted,
        )

    def mean(self) -> Float[Tensor, "b m c"]:
        """The softmax-weighted mean of the values."""
        return self.weighted / self.total[..., None]


# -- Scores that are not written out --------------------------------------------------------------

PART = 65_536  # points whose scores exist at the same time


class Factored(NamedTuple):
    """Scores that are not multiplied out: S = keys · rowsᵀ + bias, of shape (b, n, m).

    >>> scores = Factored(torch.rand(1, 9, 4), torch.rand(3, 4), torch.rand(3))
    >>> encode(scores, torch.rand(2, 9, 5)).mean().shape
    torch.Size([2, 3, 5])
    >>> decode(scores, torch.rand(2, 3, 5)).shape
    torch.Size([2, 9, 5])
    """

    keys: Float[Tensor, "#b n c"]
    rows: Float[Tensor, "m c"]
    bias: Float[Tensor, " m"]


def encode(
    scores: Factored, values: Float[Tensor, "b n c"], offset: Float[Tensor, "#b n"] | None = None
) -> SoftmaxSums:
    """Softmax sums of the values over the points; `offset` is added to the scores of a point.

    The bias is left out: it shifts all scores of a latent position alike and cancels in the mean.
    """
    return SoftmaxSums(*_Encode.apply(scores.keys, scores.rows, values, offset, _half(values)))


def decode(scores: Factored, z: Float[Tensor, "b m c"]) -> Float[Tensor, "b n c"]:
    """For each point the mean of the tokens z, weighted by a softmax over latent positions."""
    return _Decode.apply(scores.keys, scores.rows, scores.bias, z, _half(z))


def stay_uncompiled() -> None:
    """Exclude `encode` and `decode` from compilation; call this before anything is compiled.

    A compiler would see that the backward pass computes the scores again, and would store them
    instead. It is not done at import: that would load the compiler, which takes seconds.
    """
    global encode, decode
    encode, decode = torch.compiler.disable(encode), torch.compiler.disable(decode)


def _half(like: Tensor) -> torch.dtype | None:
    """The dtype of autocast, if it is on; the backward pass runs outside of it and has to know."""
    device = like.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def _product(half: torch.dtype | None, equation: str, a: Tensor, b: Tensor) -> Tensor:
    if half is None:
        return torch.einsum(equation, a, b)
    return torch.einsum(equation, a.to(half), b.to(half)).to(a.dtype)


class _Encode(torch.autograd.Function):
    @staticmethod
    def forward(
        keys: Tensor, rows: Tensor, values: Tensor, offset: Tensor | None, half: torch.dtype | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        whole: SoftmaxSums | None = None
        with torch.autocast(keys.device.type, enabled=False):
            for part in slices(keys.shape[1], PART):
                scores = _Encode.scores(keys, rows, offset, part)
                top = scores.amax(dim=1)
                e = torch.exp(scores - top[:, None])
                sums = SoftmaxSums(top, e.sum(1), _over_points(half, e, values[:, part]))
                whole = sums if whole is None else whole.merge(sums)
        assert whole is not None
        b = len(values)
        return whole.top.expand(b, -1), whole.total.expand(b, -1), whole.weighted

    @staticmethod
    def scores(keys: Tensor, rows: Tensor, offset: Tensor | None, part: slice) -> Tensor:
        scores = torch.einsum("bnc,mc->bnm", keys[:, part], rows)
        return scores if offset is None else scores + offset[:, part, None]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        keys, rows, values, offset, ctx.half = inputs
        ctx.save_for_backward(keys, rows, values, offset, output[0])
        ctx.mark_non_differentiable(output[0])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        _, d_total, d_weighted = gradients
        keys, rows, values, offset, top = ctx.saved_tensors
        # One softmax for all samples.
        shared = len(keys) == 1 and (offset is None or len(offset) == 1)
        top = top[:1] if shared else top
        d_keys, d_values, d_rows = [], [], torch.zeros_like(rows)
        for part in slices(keys.shape[1], PART):
            scores = _Encode.scores(keys, rows, offset, part)
            e = torch.exp(scores - top[:, None])
            d_values.append(_to_points(ctx.half, e, d_weighted))
            v = values[:, part]
            # In full precision: the gradient of the scores is a difference of nearly equal numbers.
            if shared:
                d_e = torch.einsum("bnc,bmc->nm", v, d_weighted)[None] + d_total.sum(0)
            else:
                d_e = torch.einsum("bnc,bmc->bnm", v, d_weighted) + d_total[:, None]
            d_part, d_rows_part = _factors(e * d_e, keys[:, part], rows)
            d_keys.append(d_part)
            d_rows = d_rows + d_rows_part
        return torch.cat(d_keys, 1), d_rows, torch.cat(d_values, 1), None, None


class _Decode(torch.autograd.Function):
    @staticmethod
    def forward(
        keys: Tensor, rows: Tensor, bias: Tensor, z: Tensor, half: torch.dtype | None
    ) -> Tensor:
        with torch.autocast(keys.device.type, enabled=False):
            parts = [
                _to_points(half, _Decode.weights(keys, rows, bias, part), z)
                for part in slices(keys.shape[1], PART)
            ]
        return torch.cat(parts, 1)

    @staticmethod
    def weights(keys: Tensor, rows: Tensor, bias: Tensor, part: slice) -> Tensor:
        scores = torch.einsum("bnc,mc->bnm", keys[:, part], rows) + bias
        return torch.softmax(scores, dim=-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        keys, rows, bias, z, ctx.half = inputs
        ctx.save_for_backward(keys, rows, bias, z)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (d_y,) = gradients
        keys, rows, bias, z = ctx.saved_tensors
        d_keys, d_rows, d_bias = [], torch.zeros_like(rows), torch.zeros_like(bias)
        d_z = torch.zeros_like(z)
        for part in slices(keys.shape[1], PART):
            weights = _Decode.weights(keys, rows, bias, part)
            d_part = d_y[:, part]
            d_z = d_z + _over_points(ctx.half, weights, d_part)
            if len(keys) == 1:
                d_weights = _product(ctx.half, "bnc,bmc->nm", d_part, z)[None]
            else:
                d_weights = _product(ctx.half, "bnc,bmc->bnm", d_part, z)
            mean = (weights * d_weights).sum(-1, keepdim=True)
            d_scores = weights * (d_weights - mean)
            d_bias = d_bias + d_scores.sum((0, 1))
            d_keys_part, d_rows_part = _factors(d_scores, keys[:, part], rows)
            d_keys.append(d_keys_part)
            d_rows = d_rows + d_rows_part
        return torch.cat(d_keys, 1), d_rows, d_bias, d_z, None


def _over_points(half: torch.dtype | None, weights: Tensor, values: Tensor) -> Tensor:
    """Σ_n weights (#b, n, m) · values (b, n, c), of shape (b, m, c)."""
    if len(weights) == 1:
        return _product(half, "nm,bnc->bmc", weights[0], values)
    return _product(half, "bnm,bnc->bmc", weights, values)


def _to_points(half: torch.dtype | None, weights: Tensor, z: Tensor) -> Tensor:
    """Σ_m weights (#b, n, m) · z (b, m, c), of shape (b, n, c)."""
    if len(weights) == 1:
        return _product(half, "nm,bmc->bnc", weights[0], z)
    return _product(half, "bnm,bmc->bnc", weights, z)


def _factors(d_scores: Tensor, keys: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the scores keys · rowsᵀ with respect to both."""
    if len(keys) < len(d_scores):  # samples share positions but not offsets
        d_scores = d_scores.sum(0, keepdim=True)
    return (
        torch.einsum("bnm,mc->bnc", d_scores, rows),
        torch.einsum("bnm,bnc->mc", d_scores, keys),
    )
