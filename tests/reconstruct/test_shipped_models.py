"""The models of the package on new fields, and on fields that they were not trained for."""

from __future__ import annotations

import numpy as np
from small_waves import WINDOW, bounds

from lno import RandomRatio
from lno.calibration import coverage, flags, guarantee
from lno.kernel_methods.rbf import interpolate_rbf
from lno.problems import Burgers
from lno.problems.make import make
from lno.reconstruct import PRETRAINED, Reconstructor


def test_the_models_of_the_package_reconstruct_new_fields_within_their_bounds() -> None:
    assert sum(path.stat().st_size for path in PRETRAINED.glob("*")) < 8e6
    whole, samples = Reconstructor.load(device="cpu"), make(Burgers(), samples=6, seed=99)
    truth = np.asarray(samples.y).reshape(6, 128, 128)
    random, wrong, covered, classical = np.random.default_rng(0), [], [], []
    points = np.asarray(samples.x)
    inside = np.flatnonzero(WINDOW.contains(points, ["t", "x"]))
    for field in truth:
        chosen = random.choice(inside, 82, replace=False)  # 1 % of the points there
        x, u = points[chosen], field.reshape(-1, 1)[chosen]
        found = whole(x, u)
        lower, upper = bounds(found)
        covered.append(((lower <= field) & (field <= upper)).mean())
        rbf = interpolate_rbf(x, u, points[inside], samples.period, neighbors=64)[:, 0]
        flat = field.reshape(-1)
        scale = np.abs(flat[inside]).mean()
        wrong.append(np.abs(found.mean.reshape(-1) - flat)[inside].mean() / scale)
        classical.append(np.abs(rbf - flat[inside]).mean() / scale)
    assert np.mean(wrong) < 0.01
    assert np.mean(wrong) < 0.2 * np.mean(classical)
    assert guarantee(0.9) in " ".join((PRETRAINED / "README.md").read_text().split())
    assert 0.8 < np.mean(covered) < 0.99  # at least 0.9 on average over many fields


def test_fields_of_another_viscosity_are_flagged_or_contained() -> None:
    whole = Reconstructor.load(device="cpu")
    assert whole.calibration is not None
    flagged = {}
    for viscosity in (0.01, 0.005, 0.05):
        fields = make(Burgers(viscosity=viscosity), samples=4, seed=99)
        [found] = whole.nonconformity(fields, [RandomRatio(0.01)])
        flagged[viscosity] = flags(found, whole.calibration).mean()
        assert coverage([found], whole.calibration)["outside"] > 0.7
    assert flagged[0.01] <= 0.25
    assert flagged[0.005] >= 0.75
    assert flagged[0.05] == 1
