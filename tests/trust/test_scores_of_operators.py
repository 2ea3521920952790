"""Out-of-distribution scores: what is another kind of sample is flagged, and by which score."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from small_operators import CONFIG, Trained, auroc, clouds

from lno import Completion, Fields, Operator, RandomRatio
from lno.scores import Score, prediction_limit
from lno.trust import Reference, Trust, check
from lno.trust.reference import rounded
from lno.trust.trust import measure


def flagged(samples: list[tuple[Score, ...]]) -> set[str]:
    """The scores that are above their thresholds, of any sample."""
    return {score.name for scores in samples for score in scores if score.flagged}


def test_another_contrast_of_darcy_is_told_apart(darcy: Trained) -> None:
    """By all scores, and by the latent tokens alone."""
    assert darcy.others is not None
    usual, others = (check(darcy.operator, f) for f in (darcy.test, darcy.others))
    assert auroc(usual.worst, others.worst) > 0.99
    assert usual.flagged.mean() <= 0.05 and others.flagged.all()
    latent = [measure(darcy.operator, f)[0]["latent"] for f in (darcy.test, darcy.others)]
    assert auroc(*latent) > 0.9
    [scores] = darcy.operator.distribution(darcy.others.subset([0]))
    reasons = {score.name: score.reason for score in scores if score.flagged}
    assert reasons["inputs"] == "the largest value of a is 16, in training 12"
    assert "as far from those of training as the threshold" in reasons["latent"]


def test_each_departure_is_flagged_by_its_score(line: Trained) -> None:
    op, sample = line.operator, line.test[0]
    x, u, b = sample.x, sample.u, sample.parameters
    assert b is not None

    def found(x: np.ndarray = x, u: np.ndarray = u, b: np.ndarray = b, **keys: object) -> set[str]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of positions outside of the box
            return flagged(op.distribution(x, u, parameters=b, **keys))

    assert not found()
    assert not found(x_query=x[:2])  # query points may lie anywhere inside
    assert "inputs" in found(u=1000 * u)
    assert "latent" in found(u=1000 * u)
    assert "inputs" in found(u=np.full_like(u, u.mean() + 5))
    assert "parameters" in found(b=b + 2) and "parameters" in found(b=b - 2)
    assert "positions" in found(x=x + 0.5)
    assert "positions" in found(x=x[:10], u=u[:10])  # half of the domain
    assert "positions" in found(x_query=x + 4)
    assert found(x=x[::2], u=u[::2]) >= {"points"}
    finer = np.linspace(0, 3, 79)[:, None]
    assert "points" in found(x=finer, u=np.interp(finer, x[:, 0], u[:, 0]))


def test_scores_do_not_depend_on_the_order_of_points_or_on_other_samples(line: Trained) -> None:
    op, fields = line.operator, line.test
    together = op.distribution(fields)
    order = np.random.default_rng(0).permutation(20)
    for k in (0, 7):
        x, u, *_ = fields[k]
        [alone] = op.distribution(x[order], u[order], x, parameters=fields.parameters[k])
        for a, b in zip(alone, together[k], strict=True):
            assert a.name == b.name and a.value == pytest.approx(b.value, rel=1e-4, abs=1e-9)


def test_false_alarms_are_few(line: Trained, cloud: Trained) -> None:
    assert check(line.operator, line.test).flagged.mean() <= 0.06
    assert check(cloud.operator, cloud.test).flagged.mean() <= 0.2  # 25 samples calibrated it


def test_the_nominal_rate_of_a_prediction_limit() -> None:
    random, rates = np.random.default_rng(0), {}
    for count in (10, 30, 99):
        alarms = []
        for _ in range(400):
            known, new = np.split(random.lognormal(sigma=0.4, size=count + 100), [count])
            alarms.append((new > prediction_limit(known, 0.01)).mean())
        rates[count] = np.mean(alarms)
    assert all(0.003 < rate < 0.0125 for rate in rates.values()), rates
    assert prediction_limit([1.0, 2.0], 0.01) > 2.0 == prediction_limit([2.0], 0.01)


def test_distance_is_that_of_probabilistic_pca() -> None:
    """In four dimensions: two components with variances 4 and 1, and 0.01 in the others."""
    known = Reference(9, (0.0,), (0.0,), (1.0,) * 4, (1.0, 0, 0, 0, 0, 1.0, 0, 0), (4.0, 1.0), 0.01)
    steps = np.array([[0, 0, 0, 0], [4, 0, 0, 0], [0, 3, 0, 0], [0, 0, 0.2, 0], [4, 3, 0.2, 0]])
    expected = np.sqrt(np.array([0, 4, 9, 4, 17]) / 4)
    np.testing.assert_allclose(known.distance(1 + steps), expected)
    with pytest.raises(ValueError, match="expected 5 numbers, as the model's pooled tokens have"):
        known.distance(np.zeros((1, 5)))


def test_a_reference_finds_the_directions_of_its_samples(line: Trained) -> None:
    """Typical samples of training have distance one, whatever the units of the tokens are."""
    values, _ = measure(line.operator, line.held_out)
    assert 0.7 < np.median(values["latent"]) < 2
    reference = line.operator.trust.reference
    assert reference is not None
    larger = replace(
        reference,
        mean=rounded(7 * np.array(reference.mean)),
        variances=rounded(49 * np.array(reference.variances)),
        rest=49 * reference.rest,
    )
    tokens = np.random.default_rng(0).normal(size=(5, len(reference.mean)))
    np.testing.assert_allclose(larger.distance(7 * tokens), reference.distance(tokens), rtol=1e-5)


def test_sensors_are_judged_as_the_task_draws_them() -> None:
    x = np.linspace(0, 1, 60)[:, None]
    y = np.sin(5 * x + np.random.default_rng(0).uniform(0, 6, (80, 1, 1)))
    data, held_out = Fields(x, y=y).split(50, 30)
    keys = {"config": CONFIG, "epochs": 1, "progress": False, "validation": 0.0}
    op = Operator.fit(data, task=Completion(RandomRatio(0.2, 0.5)), **keys).calibrated(held_out)
    some = np.sort(np.random.default_rng(1).permutation(60)[:20])
    assert not flagged(op.distribution(x[some], y[60][some], x))
    assert "points" in flagged(op.distribution(x[some[::7]], y[60][some[::7]], x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # few points are what a completer expects
        op.predict(x[some[::10]], y[60][some[::10]])


@pytest.mark.filterwarnings("ignore:.* lie outside the box")
def test_query_points_that_are_taken_for_the_geometry_are_said(cloud: Trained) -> None:
    x = cloud.test[0].x
    with pytest.warns(UserWarning, match=r"x: a sample has 7 points, .* as x_query") as caught:
        cloud.operator.predict(x[:7])
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cloud.operator.predict(x, x_query=x[:7])
        cloud.operator.predict(x[:100])
    bare = replace(cloud.operator, trust=Trust())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bare.predict(x[:7])  # nothing is known of training
    with pytest.warns(UserWarning, match="out of distribution"):
        found = cloud.operator.predict(x + 1, bounds=0.9)
    assert found.flagged and flagged(found.scores) >= {"positions"}


@pytest.mark.filterwarnings("ignore:.* lie outside the box")
def test_operators_of_earlier_versions_take_held_out_samples_as_reference(cloud: Trained) -> None:
    bare = replace(cloud.operator, trust=Trust())
    assert bare.distribution(cloud.test) == [()] * len(cloud.test)
    again = bare.calibrated(clouds(60, seed=3))
    assert again.trust.reference is not None and again.trust.reference.samples == 20
    assert again.trust.bounds is not None and again.trust.bounds.samples == 40
    assert check(again, cloud.test).flagged.mean() <= 0.2
    assert "positions" in flagged(again.distribution(cloud.test[0].x + 1))
    few = bare.calibrated(clouds(12, seed=3))
    assert few.trust.bounds is not None and not few.trust.thresholds


@pytest.mark.filterwarnings("ignore:.* lie outside the box")
@pytest.mark.parametrize("gap", [False, True])
def test_samples_that_are_all_alike_raise_no_alarm(gap: bool) -> None:
    """Nothing is observed but positions, which all samples share, or all but one."""
    random = np.random.default_rng(0)
    x = random.uniform(size=(40, 2))
    nodes = [x[1:] if gap and k == 5 else x for k in range(60)]
    data = Fields(nodes, y=[random.normal(size=(len(one), 1)) for one in nodes])
    train, held_out, test = data.split(40, 12, 8)
    keys = {"config": CONFIG, "epochs": 1, "progress": False, "validation": 0.0}
    op = Operator.fit(train, **keys).calibrated(held_out)
    for some in (test, train.subset(np.arange(6, 40)), test.subset([3])):  # padded in other ways
        assert not flagged(op.distribution(some))
    assert "positions" in flagged(op.distribution(x + 3))
