"""`Steady`: the plain task, from the inputs of the data to their outputs."""

from __future__ import annotations

from dataclasses import dataclass

from lno.data import Fields
from lno.tasks.task import Task


@dataclass(frozen=True)
class Steady(Task):
    """Predict the outputs from the observed values, both as given in the data.

    >>> from lno.tasks import to_json
    >>> to_json(Steady())
    {'kind': 'steady'}
    """

    def prepare(self, fields: Fields) -> Fields:
        """The data as they are."""
        return fields
