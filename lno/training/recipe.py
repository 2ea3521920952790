"""How to train: everything that decides a run besides the data, the model and the seed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from lno.config import require_count, require_range
from lno.metrics import METRICS


@dataclass(frozen=True)
class Recipe:
    """AdamW with a one-cycle learning rate, as in the paper's forward problems.

    Args:
        epochs: passes over the training samples.
        batch: samples in a step.
        rate: the peak learning rate.
        weight_decay: of AdamW.
        loss: "relative_l2", "relative_mae" or "mse", of the normalised output.
        queries: random query points in a step, the same for all samples of a batch; None: all.
            A decoder that goes point by point learns as well from some of them, and faster.
        clip: the largest gradient norm; None: no limit.

    >>> Recipe(epochs=20, queries=512).loss
    'relative_l2'
    """

    epochs: int = 100
    batch: int = 4
    rate: float = 1e-3
    weight_decay: float = 5e-5
    loss: str = "relative_l2"
    queries: int | None = None
    clip: float | None = None

    def __post_init__(self) -> None:
        require_count("Recipe.epochs", self.epochs, 10**7)
        require_count("Recipe.batch", self.batch, 10**6)
        require_range("Recipe.rate", self.rate, 1e-12, 10.0)
        require_range("Recipe.weight_decay", self.weight_decay, 0.0, 10.0)
        if self.loss not in METRICS:
            raise ValueError(f"Recipe.loss must be one of {', '.join(METRICS)}, got {self.loss!r}")
        if self.queries is not None:
            require_count("Recipe.queries", self.queries, 10**9)
        if self.clip is not None:
            require_range("Recipe.clip", self.clip, 1e-12, 1e12)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimiser of a model's parameters."""
        return torch.optim.AdamW(
            model.parameters(),
            lr=self.rate,
            betas=(0.9, 0.99),
            weight_decay=self.weight_decay,
            fused=True,
        )

    def schedule(
        self, optimizer: torch.optim.Optimizer, steps: int
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """Warm up for a fifth of the steps from 1e-4 of the peak rate, then fall to 1e-8 of it."""
        return torch.optim.lr_scheduler.OneCycleLR(
            optimizer,
            max_lr=self.rate,
            total_steps=max(steps, 10),  # the cycle has no meaning, and divides by zero, below
            pct_start=0.2,
            div_factor=1e4,
            final_div_factor=1e4,
        )
