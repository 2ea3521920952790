"""Models that predict at the observed points only: values at points in, values there out."""

from __future__ import annotations

from abc import abstractmethod

from jaxtyping import Bool, Float
from torch import Tensor

from lno.models.model import Model


class SamePointsModel(Model):
    """A model whose predictions are at the observed points. It defines `predict`, not `forward`."""

    predicts_anywhere = False

    @abstractmethod
    def predict(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n o"]:
        """Predict at x from the values u observed there; arguments as in `Model.forward`."""

    def forward(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        x_query: Float[Tensor, "#b q d"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n o"]:
        """`predict`, once it is clear that x_query are the observed points; see `Model.forward`.

        Pass `x` itself as `x_query`. Another tensor is compared with it, which makes a GPU wait.
        """
        self.check_points(x, u, x_query, mask)
        return self.predict(x, u, mask)
