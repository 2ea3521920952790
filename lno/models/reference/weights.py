"""Weights of published code, moved to the names of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


class Published:
    """The weights of a published model, moved one after the other to our names.

    What is neither moved nor skipped is not a weight of that model, and refused in the end.

    Args:
        weights: arrays by their published names.
        model: the name of the model, for messages.

    >>> published = Published({"fc.weight": [[1.0]], "fc.bias": [2.0], "unused": [3.0]}, "Example")
    >>> published.layer("head", "fc")
    >>> published.skip("unused")
    >>> published.state()
    {'head.weight': tensor([[1.]]), 'head.bias': tensor([2.])}
    """

    def __init__(self, weights: Mapping[str, Any], model: str) -> None:
        self.rest = {name: torch.as_tensor(value) for name, value in weights.items()}
        self.model = model
        self._state: dict[str, Tensor] = {}

    def take(self, name: str) -> Tensor:
        """The weight of this name, which must be there, and counts as moved."""
        if name not in self.rest:
            raise ValueError(f"the weights lack {name!r}: expected all weights of one {self.model}")
        return self.rest.pop(name)

    def put(self, ours: str, value: Tensor) -> None:
        """Give a weight of this package its value."""
        self._state[ours] = value

    def layer(self, ours: str, *theirs: str) -> None:
        """A layer's weight and, if there is one, bias; several layers are joined to one."""
        self.put(f"{ours}.weight", torch.cat([self.take(f"{name}.weight") for name in theirs]))
        if f"{theirs[0]}.bias" in self.rest:
            self.put(f"{ours}.bias", torch.cat([self.take(f"{name}.bias") for name in theirs]))

    def move(self, ours: str, theirs: str) -> None:
        """All weights of a module whose inner names are the same in both."""
        for name in [name for name in self.rest if name.startswith(f"{theirs}.")]:
            self.put(ours + name[len(theirs) :], self.take(name))

    def waves(self, ours: str, theirs: str) -> None:
        """A `WaveMixing` from two arrays (in, out, k, l), of positive and of negative k."""
        joined = torch.cat([self.take(f"{theirs}.weights{part}") for part in (1, 2)], dim=2)
        self.put(f"{ours}.weight", torch.view_as_real(joined.permute(2, 3, 0, 1).contiguous()))

    def mlp(self, ours: str, theirs: str) -> None:
        """An `MLP` from the library's class of the same name."""
        self.layer(f"{ours}.input", f"{theirs}.linear_pre.0")
        for k in range(self.count(f"{theirs}.linears.")):
            self.layer(f"{ours}.hidden.{k}", f"{theirs}.linears.{k}.0")
        self.layer(f"{ours}.output", f"{theirs}.linear_post")

    def block_mlp(self, ours: str, theirs: str | None = None) -> None:
        """The MLP of a `TransformerBlock` and its norm; None: the library's block has our name."""
        theirs = ours if theirs is None else theirs
        self.layer(f"{ours}.norm_mlp", f"{theirs}.ln_2")
        self.layer(f"{ours}.up", f"{theirs}.mlp.linear_pre.0")
        self.layer(f"{ours}.down", f"{theirs}.mlp.linear_post")

    def last_layers(self, blocks: int) -> None:
        """The norm and linear layer after so many blocks; the library has them in its last one."""
        self.layer("norm", f"blocks.{blocks - 1}.ln_3")
        self.layer("head", f"blocks.{blocks - 1}.mlp2")

    def stem(self, ours: str = "stem", theirs: str = "preprocess") -> None:
        """A `Stem` from the library's layers, which stand apart there."""
        self.mlp(f"{ours}.mlp", theirs)
        if "placeholder" in self.rest:
            self.put(f"{ours}.placeholder", self.take("placeholder"))
        for k in (0, 2) if "time_fc.0.weight" in self.rest else ():
            self.layer(f"{ours}.time.{k}", f"time_fc.{k}")

    def count(self, prefix: str) -> int:
        """How many numbers or names follow the prefix: the layers of a list."""
        return len(
            {name[len(prefix) :].split(".")[0] for name in self.rest if name.startswith(prefix)}
        )

    def skip(self, *prefixes: str) -> None:
        """Leave out weights that the published code has and does not use."""
        for name in [name for name in self.rest if name.startswith(prefixes)]:
            del self.rest[name]

    def state(self) -> dict[str, Tensor]:
        """All that was moved, by our names. An error if anything is left."""
        if self.rest:
            raise ValueError(
                f"{min(self.rest)!r} is not a weight of the published code of {self.model}"
            )
        return self._state
