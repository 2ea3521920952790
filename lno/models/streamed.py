"""Softmax sums over any number of points, a part of the points at a time.

`Pooled` is what the encoder of Physics-Cross-Attention adds up over points: it merges exactly, so
chunks of points, and shards of a mesh on several processes, give the result of all points.

`Factored` scores are the N × M matrix before it is multiplied out. The last layer of the projector
makes the scores S = keys · rowsᵀ + bias, so Physics-Cross-Attention is a plain attention between
the M rows of that layer and the N points, and S need not exist: `pool` and `read` compute a part of
it at a time and again in the backward pass, in the memory of their inputs. Both are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

PART = 65_536  # points whose scores exist at once


class Pooled(NamedTuple):
    """A softmax-weighted sum over the points seen so far, exact to continue or to merge.

    With scores s and values v it holds top = max s, total = Σ exp(s − top) and
    weighted = Σ exp(s − top) v, for each latent position. Two of them, of disjoint points, merge to
    that of all points (the online softmax of Milakov & Gimelshein, 2018).
    """

    top: Float[Tensor, "b m"]
    total: Float[Tensor, "b m"]
    weighted: Float[Tensor, "b m c"]

    def merge(self, other: Pooled) -> Pooled:
        """The same sum over the points of both."""
        top = torch.maximum(self.top, other.top)
        a, b = torch.exp(self.top - top), torch.exp(other.top - top)
        return Pooled(
            top,
            a * self.total + b * other.total,
            a[..., None] * self.weighted + b[..., None] * other.weighted,
        )

    def mean(self) -> Float[Tensor, "b m c"]:
        """The softmax-weighted mean of the values."""
        return self.weighted / self.total[..., None]


class Factored(NamedTuple):
    """Scores that are not multiplied out: S = keys · rowsᵀ + bias, of shape (b, n, m).

    >>> scores = Factored(torch.rand(1, 9, 4), torch.rand(3, 4), torch.rand(3))
    >>> pool(scores, torch.rand(2, 9, 5)).mean().shape, read(scores, torch.rand(2, 3, 5)).shape
    (torch.Size([2, 3, 5]), torch.Size([2, 9, 5]))
    """

    keys: Float[Tensor, "#b n c"]
    rows: Float[Tensor, "m c"]
    bias: Float[Tensor, " m"]


def pool(
    scores: Factored, values: Float[Tensor, "b n c"], offset: Float[Tensor, "b n"] | None = None
) -> Pooled:
    """The softmax sums of values over the points, `offset` being added to the scores of a point.

    The bias is left out: it shifts all scores of a latent position, which cancels in the mean.
    """
    return Pooled(*_Pool.apply(scores.keys, scores.rows, values, offset, _half(values)))


def read(scores: Factored, z: Float[Tensor, "b m c"]) -> Float[Tensor, "b n c"]:
    """Each point's mean of the tokens z, weighted by a softmax over the latent positions."""
    return _Read.apply(scores.keys, scores.rows, scores.bias, z, _half(z))


def stay_uncompiled() -> None:
    """Keep compilers away from `pool` and `read`; to be called before anything is compiled.

    They would find that the backward pass computes the scores of the forward pass again, and keep
    them. Not done on import, where the compiler would take as long to load as all of torch.
    """
    global pool, read
    pool, read = torch.compiler.disable(pool), torch.compiler.disable(read)


def slices(count: int, size: int) -> Iterator[slice]:
    """0..count in consecutive parts of at most `size`."""
    if size < 1:
        raise ValueError(f"expected a chunk of at least one point, got {size}")
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def _half(like: Tensor) -> torch.dtype | None:
    """What products are computed in where the call is made; a backward pass runs outside of it."""
    device = like.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def _product(half: torch.dtype | None, equation: str, a: Tensor, b: Tensor) -> Tensor:
    if half is None:
        return torch.einsum(equation, a, b)
    return torch.einsum(equation, a.to(half), b.to(half)).to(a.dtype)


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(
        keys: Tensor, rows: Tensor, values: Tensor, offset: Tensor | None, half: torch.dtype | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        whole: Pooled | None = None
        with torch.autocast(keys.device.type, enabled=False):
            for part in slices(keys.shape[1], PART):
                scores = _Pool.scores(keys, rows, offset, part)
                top = scores.amax(dim=1)
                e = torch.exp(scores - top[:, None])
                sums = Pooled(top, e.sum(1), _over_points(half, e, values[:, part]))
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
        shared = len(keys) == 1 and offset is None  # one set of weights for all samples
        top = top[:1] if shared else top
        d_keys, d_values, d_rows = [], [], torch.zeros_like(rows)
        for part in slices(keys.shape[1], PART):
            scores = _Pool.scores(keys, rows, offset, part)
            e = torch.exp(scores - top[:, None])
            d_values.append(_to_points(ctx.half, e, d_weighted))
            v = values[:, part]
            # In full precision: scores gain by the difference of nearly equal numbers.
            if shared:
                d_e = torch.einsum("bnc,bmc->nm", v, d_weighted)[None] + d_total.sum(0)
            else:
                d_e = torch.einsum("bnc,bmc->bnm", v, d_weighted) + d_total[:, None]
            d_part, d_rows_part = _factors(e * d_e, keys[:, part], rows)
            d_keys.append(d_part)
            d_rows = d_rows + d_rows_part
        return torch.cat(d_keys, 1), d_rows, torch.cat(d_values, 1), None, None


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(
        keys: Tensor, rows: Tensor, bias: Tensor, z: Tensor, half: torch.dtype | None
    ) -> Tensor:
        with torch.autocast(keys.device.type, enabled=False):
            parts = [
                _to_points(half, _Read.weights(keys, rows, bias, part), z)
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
            weights = _Read.weights(keys, rows, bias, part)
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
    if len(keys) < len(d_scores):  # the samples share their positions, but not their offsets
        d_scores = d_scores.sum(0, keepdim=True)
    return (
        torch.einsum("bnm,mc->bnc", d_scores, rows),
        torch.einsum("bnm,bnc->mc", d_scores, keys),
    )
