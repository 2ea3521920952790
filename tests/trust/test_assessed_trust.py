"""An assessment measures bounds and scores, and more levels than the operator's."""

from __future__ import annotations

import numpy as np
from small_operators import Trained

from lno import Fields
from lno.assessment import assess


def test_samples_with_other_inputs_are_flagged(line: Trained) -> None:
    mixed = Fields.concatenate([line.test, line.test.replace(u=50 * np.asarray(line.test.u))])
    trusted = assess(line.operator, mixed).trusted
    assert trusted is not None
    assert trusted.flagged[60:].all() and trusted.flagged[:60].mean() < 0.1


def test_shares_inside_grow_with_the_level_and_keep_the_promise(line: Trained) -> None:
    trusted = assess(line.operator, line.test).trusted
    assert trusted is not None
    assert trusted.levels == (0.5, 0.6, 0.7, 0.8, 0.9, 0.95) and trusted.shares.shape == (6, 2)
    assert (np.diff(trusted.shares, axis=0) >= 0).all()
    # On average over draws of samples; these are 30 of them.
    assert (trusted.shares > np.array(trusted.levels)[:, None] - 0.12).all()


def test_few_samples_have_no_curve_of_high_levels(line: Trained) -> None:
    trusted = assess(line.operator, line.test.subset(np.arange(8))).trusted
    assert trusted is not None and trusted.levels == (0.5, 0.6, 0.7, 0.8)
    single = assess(line.operator, line.test.subset([0])).trusted
    assert single is not None and single.levels == () and single.shares.shape == (0, 2)
