"""Small models of every form, and which of the common properties each was not made to have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from small_models import (
    CLOUD,
    DEEPONET,
    FACTFORMER,
    FACTFORMER_GRID,
    FFNO,
    FFNO_CLOUD,
    FFNO_SHARED,
    FNO_CLOUD,
    FNO_GRID,
    GALERKIN,
    GALERKIN_GRID,
    GEOFNO_CLOUD,
    GEOFNO_GRID,
    GNOT_ONE,
    GNOT_THREE,
    GRID,
    LNO_EFFICIENT,
    LNO_GALERKIN,
    LNO_NYSTROM,
    LNO_TIED,
    LNO_UNTIED,
    LSM_CLOUD,
    LSM_GRID,
    OFORMER,
    OFORMER_PLAIN,
    ONO_LINEAR,
    ONO_NYSTROM,
    ONO_SOFTMAX,
    PLUS,
    PLUS_BY_POSITION,
    PLUS_LOCAL,
    PLUS_WITHOUT_PLACES,
    RAW,
    REGULAR,
    SLICED,
    UFNO_CLOUD,
    UFNO_GRID,
    make_without_memory,
)

from lno import Spec


@dataclass(frozen=True)
class Form:
    """A small model, and which of the properties below it was not made to have.

    Args:
        config: its sizes.
        reads_positions: predictions depend on positions.
        idle: weights that no prediction depends on.
        sums_points: sums over points are not means, so that their number scales the predictions.
        orders_points: predictions depend on the order of the points.
        alike: other forms have all of its code; what takes long is shown of these only.
    """

    config: Any
    reads_positions: bool = True
    idle: frozenset[str] = frozenset()
    sums_points: bool = False
    orders_points: bool = False
    alike: bool = False

    def can(self, capability: str) -> bool:
        if hasattr(self, capability):
            return getattr(self, capability)
        return getattr(make_without_memory(Spec(2, 1, 3, GRID), self.config), capability)

    def ask(
        self,
        model: Callable[..., torch.Tensor],
        x: torch.Tensor,
        u: torch.Tensor,
        x_query: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Predictions at x_query or, if the model cannot make them, at x."""
        return model(x, u, x_query if self.can("predicts_anywhere") else x, mask)


FORMS = {
    "lno": Form(LNO_TIED),
    # A number added to the scores of all points does not change a softmax over points. If the
    # decoder has the same scores, it does change the decoder's softmax over latent positions.
    "untied lno": Form(LNO_UNTIED, idle=frozenset({"encoder.projector.output.bias"})),
    "lno_plus": Form(PLUS),
    "lno_plus by position": Form(PLUS_BY_POSITION),
    "lno_plus without places": Form(PLUS_WITHOUT_PLACES),
    "lno_plus with convolutions": Form(PLUS_LOCAL),
    "lno with efficient attention": Form(LNO_EFFICIENT),
    "lno with Galerkin attention": Form(LNO_GALERKIN),
    "lno with Nyström attention": Form(LNO_NYSTROM),
    "sliced lno": Form(SLICED),
    "deeponet": Form(DEEPONET),
    "gnot": Form(GNOT_ONE),
    "gnot of experts": Form(GNOT_THREE),
    "transolver": Form(CLOUD),
    # Distances to reference points replace positions. The placeholder is for data without values.
    "transolver on a grid": Form(REGULAR, False, frozenset({"placeholder"})),
    "transolver on a raw grid": Form(RAW, idle=frozenset({"placeholder"})),
    "galerkin": Form(GALERKIN),
    "galerkin on a grid": Form(GALERKIN_GRID, False),
    "oformer": Form(OFORMER),
    "plain oformer": Form(OFORMER_PLAIN),
    "linear ono": Form(ONO_LINEAR, sums_points=True),
    "softmax ono": Form(ONO_SOFTMAX, sums_points=True),
    # Its landmarks are means over consecutive points, and it convolves along them.
    "nystrom ono": Form(ONO_NYSTROM, sums_points=True, orders_points=True),
    "factformer": Form(FACTFORMER),
    "factformer with reference points": Form(FACTFORMER_GRID, False),
    # The geometry map of point clouds adds up features, as published.
    "fno": Form(FNO_CLOUD, sums_points=True),
    "fno on a grid": Form(FNO_GRID, False),
    "geofno": Form(GEOFNO_CLOUD, sums_points=True),
    "geofno on a grid": Form(GEOFNO_GRID),
    "ffno": Form(FFNO_CLOUD, sums_points=True),
    "ffno on a grid": Form(FFNO),
    "ffno of shared weights": Form(FFNO_SHARED),
    "ufno": Form(UFNO_CLOUD, sums_points=True, alike=True),
    "ufno on a grid": Form(UFNO_GRID),
    "lsm": Form(LSM_CLOUD, sums_points=True, alike=True),
    "lsm on a grid": Form(LSM_GRID),
}


def every_form(**capabilities: bool) -> pytest.MarkDecorator:
    """All forms with these capabilities."""
    able = {
        name: form
        for name, form in FORMS.items()
        if all(form.can(key) == value for key, value in capabilities.items())
    }
    assert able
    return pytest.mark.parametrize("form", able.values(), ids=able)


EVERY_FORM_WITH_AND_WITHOUT_MASK = pytest.mark.parametrize(
    ("form", "masked"),
    [
        pytest.param(form, masked, id=f"masked {name}" if masked else name)
        for name, form in FORMS.items()
        for masked in (False, True)
        if not masked or not (form.can("needs_grid") or form.can("samples_interact"))
    ],
)
