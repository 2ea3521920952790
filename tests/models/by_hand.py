"""Layers that several models have, in NumPy float64, sharing no code with the models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.special import erf, softmax


def gelu(v: np.ndarray) -> np.ndarray:
    return v * (1 + erf(v / np.sqrt(2))) / 2


class Layers:
    """The layers of one model, by the names of their weights."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.weights = {k: v.detach().double().numpy() for k, v in model.state_dict().items()}

    def linear(self, name: str, v: np.ndarray) -> np.ndarray:
        return v @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, name: str, v: np.ndarray) -> np.ndarray:
        scaled = (v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + 1e-5)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def mlp(self, name: str, v: np.ndarray, layers: int) -> np.ndarray:
        r = gelu(self.linear(f"{name}.input", v))
        for k in range(layers):
            r = r + gelu(self.linear(f"{name}.hidden.{k}", r))
        return self.linear(f"{name}.output", r)

    def feed_forward(self, name: str, z: np.ndarray) -> np.ndarray:
        inner = gelu(self.linear(f"{name}.up", self.norm(f"{name}.norm_mlp", z)))
        return z + self.linear(f"{name}.down", inner)

    def transformer_block(self, name: str, z: np.ndarray, heads: int) -> np.ndarray:
        normed = self.norm(f"{name}.norm_attention", z)
        joined = self.linear(f"{name}.attention.query_key_value", normed)
        parts = (np.split(v, heads, -1) for v in np.split(joined, 3, -1))
        read = [
            softmax(query @ key.T / np.sqrt(key.shape[-1]), axis=-1) @ value
            for query, key, value in zip(*parts, strict=True)
        ]
        read = self.linear(f"{name}.attention.output", np.concatenate(read, -1))
        return self.feed_forward(name, z + read)


def each_sample(
    by_hand: Callable[..., np.ndarray], model: torch.nn.Module, *batch: torch.Tensor
) -> torch.Tensor:
    """The outputs of `by_hand`, which takes one sample, for a whole batch."""
    samples = zip(*(v.numpy() for v in batch), strict=True)
    return torch.from_numpy(np.stack([by_hand(model, *sample) for sample in samples]))
