"""The stages of a reconstruction: from sensors to the window, and from the window to the domain."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lno.data import Batch, Fields
from lno.data.climatology import Climatology
from lno.data.domain import Domain
from lno.ensemble import Ensemble
from lno.operator import Operator
from lno.prediction import climatology_at
from lno.tasks import Completion

CHECKED = 1024  # points inside the window, at random, where the propagator is compared
AROUND = 300.0  # degrees of longitude, from which on a domain goes around the whole sphere


class Stages:
    """What ensembles make of sensors: the part of a `Reconstructor` that has no bounds.

    Attributes:
        completer: from sensors to the field inside its window.
        propagator: from there to the whole domain, if there is one.
        where: the points of the field; None: those of the regular grid of the training data.
    """

    completer: Operator
    propagator: Operator | None
    where: Domain | None

    @property
    def grid(self) -> tuple[int, ...]:
        """The shape of the reconstructed field."""
        return self._domain.shape

    @property
    def points(self) -> Float[np.ndarray, "p d"]:
        """The points of the field, in the order of the domain."""
        return self._domain.points

    @property
    def domain_fields(self) -> Fields:
        """The points of the field as data without values."""
        return self._domain.fields

    def at_points(self, field: np.ndarray) -> Float[np.ndarray, " p"]:
        """A reconstructed field, or a bound of it, as a list of values at `points`."""
        index = self._domain.index
        return field.ravel() if index is None else field.ravel()[index]

    def axes(self) -> tuple[np.ndarray, ...]:
        """The coordinates of the grid's axes; none for points that form no regular grid."""
        return self._axes

    @cached_property
    def _axes(self) -> tuple[np.ndarray, ...]:
        labels = self._largest.labels
        if self.where is not None:
            return self.where.axes()
        return labels.axes(labels.grid or (), self._largest.normalizers.x.period)

    @cached_property
    def _domain(self) -> Domain:
        return self.where or Domain.of_grid(self._axes, self._largest.labels.names["x"])

    def domain(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The lower and upper ends of each coordinate, those of a window and a period included."""
        labels, period = self._largest.labels, self._largest.normalizers.x.period
        low, high = list(labels.low), list(labels.high)
        for k, length in enumerate(period):
            high[k] = high[k] if length is None else low[k] + length
        sphere = self.completer.normalizers.x.sphere
        if sphere is not None and high[sphere[1]] - low[sphere[1]] >= AROUND:
            high[sphere[1]] = low[sphere[1]] + 360.0
        window = self._task.window
        if window is not None and np.isfinite([window.low, window.high]).all():
            k = labels.names["x"].index(window.coordinate)  # it may end between two grid points
            low[k], high[k] = min(low[k], window.low), max(high[k], window.high)
        return tuple(low), tuple(high)

    def _features(self, x: np.ndarray) -> np.ndarray:
        """Positions (n, d), or (n, space), as numbers whose distances are meaningful."""
        absent = len(self._largest.labels.names["x"]) - x.shape[1]
        whole = np.pad(np.asarray(x, np.float64), ((0, 0), (0, absent)))
        return self.completer.normalizers.x.distance_features(torch.as_tensor(whole)).numpy()

    def _nearest(self, x: np.ndarray) -> np.ndarray:
        """The nearest point of the domain to each of the positions (n, d) or (n, space)."""
        from scipy.spatial import cKDTree

        return np.asarray(cKDTree(self._features(self.points)).query(self._features(x))[1])

    @property
    def _largest(self) -> Operator:
        """The operator that decides the grid."""
        return self.propagator or self.completer

    @property
    def _task(self) -> Completion:
        return cast(Completion, self.completer.task)

    def _inside(self, points: np.ndarray) -> np.ndarray:
        """Which points lie inside the window."""
        window = self._task.window
        if window is None:
            return np.ones(len(points), bool)
        return window.contains(points, self._largest.labels.names["x"])

    def _predict(self, x: Any, u: Any, noise: float = 0.0, parameters: Any = None) -> Ensemble:
        """What pairs of members make of the sensors of several samples."""
        points = self.points
        inside = self._inside(points)
        window, rest = (torch.as_tensor(points[where])[None] for where in (inside, ~inside))
        x, u = torch.as_tensor(x), torch.as_tensor(u)
        completed, residuals, left = self._complete(x, u, window, noise, parameters)
        others = self.propagator.members if self.propagator else []
        fields = np.empty((max(len(completed), len(others)), len(x), len(points)), np.float32)
        checked = np.random.default_rng(0).permutation(window.shape[1])[:CHECKED]
        asked, differences = torch.cat((rest, window[:, checked]), 1), []
        for k, field in enumerate(fields):
            known = completed[k % len(completed)]
            field[:, inside] = known[..., 0]  # not the propagator's: the completer read the sensors
            if self.propagator:
                member = self.propagator.member(k % len(others))
                predicted = member.predict_batch(Batch(window, known, asked)).members[0, ..., 0]
                beyond, again = predicted.split((rest.shape[1], len(checked)), 1)
                field[:, ~inside] = beyond
                differences.append((again - known[:, checked, 0]).numpy())
        if not np.isfinite(fields).all():
            raise RuntimeError(
                "the reconstruction is not finite: the sensors are far from the training data, or "
                "the weights are damaged"
            )
        compared = np.stack(differences) if differences else None
        size = float(self._largest.normalizers.y.std[0])
        deviation = None if left is None else np.zeros(fields.shape[1:], np.float32)
        if deviation is not None and left is not None:
            deviation[:, inside] = left[..., 0].numpy()
        return Ensemble(fields, residuals[..., 0].numpy(), compared, size, deviation)

    def _complete(
        self, x: Tensor, u: Tensor, queries: Tensor, noise: float, parameters: Any
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Completed fields (k, b, q, 1), residuals (k, b, n, 1) at the sensors, what is left.

        What is left is the standard deviation (b, q, 1) after a correction with a learned
        covariance; None without one.
        """
        numbers = None if parameters is None else torch.as_tensor(parameters).expand(len(x), -1)
        if self.completer.conditional:
            batch = self._known(Batch(x, u, queries, parameters=numbers))
            learned = self.completer.covariance is not None
            found = self.completer.predict_batch(batch, noise, deviation=learned)
            assert found.residuals is not None
            return found.members, found.residuals, found.deviation
        asked = torch.cat((queries.expand(len(x), -1, -1), x.to(queries)), 1)
        batch = self._known(Batch(x, u, asked, parameters=numbers))
        members = self.completer.predict_batch(batch).members
        completed, at_sensors = members.split((queries.shape[1], x.shape[1]), 2)
        return completed, u - at_sensors, None

    def _known(self, batch: Batch) -> Batch:
        """A batch with what is known beside the sensors: sizes of points, and a climatology."""
        sizes, known = self._domain.weights, self.completer.background
        if self.completer.weighted and sizes is not None:
            near = np.stack([self._nearest(x) for x in batch.x.double().numpy()])
            batch = replace(batch, weights=torch.as_tensor(sizes[near]).to(batch.u))
        if isinstance(known, Climatology):
            places = (batch.x_query, batch.x)
            there, here = (climatology_at(known, x, batch).to(batch.u) for x in places)
            batch = replace(batch, background=there, observed_background=here)
        return batch
