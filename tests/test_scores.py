"""Out-of-distribution scores: thresholds by their definition, and what counts as flagged."""

from __future__ import annotations

import numpy as np
import pytest

from lno.scores import Score, threshold


def test_a_sample_is_flagged_if_its_p_value_is_at_most_the_false_alarm_rate() -> None:
    random = np.random.default_rng(0)
    for count, rate in ((99, 0.01), (128, 0.01), (500, 0.02), (1000, 0.05)):
        values = random.standard_normal(count)
        limit = threshold(values, rate)
        for new in [*(2 * random.standard_normal(500)), values.max() + 1]:
            p = (np.sum(values >= new) + 1) / (count + 1)  # the conformal p-value
            assert (new > limit) == (p <= rate + 1e-9)


def test_the_false_alarm_rate_is_kept_on_average() -> None:
    random = np.random.default_rng(1)
    values = random.exponential(size=(4000, 100))
    alarms = [row[-1] > threshold(row[:-1], 0.05) for row in values]
    assert np.mean(alarms) == pytest.approx(0.05, abs=0.01)


def test_what_is_not_a_number_is_flagged() -> None:
    assert Score(float("nan"), 1.0, "", "").flagged
    assert Score(1.1, 1.0, "", "").flagged
    assert not Score(1.0, 1.0, "", "").flagged
