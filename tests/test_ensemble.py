"""What an ensemble tells about itself: statistics, uncertainty, scores."""

from __future__ import annotations

import numpy as np
import pytest

from lno.calibration import Calibration
from lno.ensemble import GROWTH, Ensemble, at_least_usual, scores

SOME = Calibration(0.9, 20, (40,), (2.0,), (2.0,), (1.5,), (3.0,))


def ensemble(alike: float, apart: float, members: int = 5, scale: float = 1.0) -> Ensemble:
    """Two samples whose members err alike, and apart from each other, by this much."""
    random = np.random.default_rng(1)

    def errors(points: int) -> np.ndarray:
        common = alike * random.choice([-1.0, 1.0], (1, 2, points))
        return scale * (common + apart * random.standard_normal((members, 2, points)))

    return Ensemble(errors(30), errors(2000), errors(3000), scale)


def test_statistics_are_what_members_share_over_what_they_differ_by() -> None:
    found = ensemble(alike=0.5, apart=0.1).statistics()
    assert found.keys() == {"residual", "disagreement"}
    for values in found.values():
        assert values == pytest.approx([5.3, 5.3], rel=0.05)  # c4(5) = 0.94
    larger = ensemble(alike=0.5, apart=0.1, scale=1000.0).statistics()
    for name, values in found.items():
        np.testing.assert_allclose(larger[name], values, rtol=1e-6)  # in any units


def test_noise_counts_as_nothing_wrong() -> None:
    quiet, noisy = (ensemble(alike=0.5, apart=0.1).statistics(noise) for noise in (0.0, 0.4))
    for name in quiet:
        np.testing.assert_allclose(noisy[name], quiet[name] / 5, rtol=0.1)
        assert np.all(ensemble(0.5, 0.1).statistics(9.0)[name] < 0.01)
    usual = at_least_usual(ensemble(0.5, 0.1).statistics(9.0), SOME.at(40))
    np.testing.assert_allclose(usual["residual"], 0.75)


def test_uncertainty_grows_with_the_statistics_of_the_stages_that_lead_there() -> None:
    one, inside = ensemble(alike=0.5, apart=0.1), np.arange(30) < 10
    plain = one.uncertainty(inside, {"residual": np.ones(2), "disagreement": np.ones(2)})
    more = one.uncertainty(
        inside, {"residual": np.array([2.0, 1.0]), "disagreement": np.array([3.0, 5.0])}
    )
    expected = np.stack((np.where(inside, 2.0, 6.0), np.where(inside, 1.0, 5.0)))
    np.testing.assert_allclose(more / plain, expected**GROWTH)


def test_one_member_has_statistics_and_uncertainty() -> None:
    """They follow the size of its errors, in units that a calibration makes up for."""
    small, large = (ensemble(alike, 0.0, members=1).statistics() for alike in (0.1, 0.2))
    for name in small:
        assert np.all(small[name] > 0)
        np.testing.assert_allclose(large[name], 2 * small[name], rtol=0.01)


def test_every_score_has_its_reason() -> None:
    values = {"residual": 3.0, "disagreement": 6.0}
    few, residual, disagreement = scores(15, 15.0, values, SOME)
    assert few.flagged and residual.flagged and disagreement.flagged
    assert "calibrated for 40 sensors or more: with 15, they may" in few.reason
    assert "2.0 times the threshold" in residual.reason
    assert "the dynamics may be others" in disagreement.reason
    assert "500 close to each other" in scores(500, 15.0, values, SOME)[0].reason
    assert not any(score.flagged for score in scores(21, 21.0, {"residual": 1.4}, SOME))
