"""What a careful colleague would ask about data before a model is trained on them.

>>> import numpy as np
>>> from lno import Fields
>>> x, Re = np.linspace(0, 1, 8)[:, None], np.logspace(0, 4, 30)[:, None]
>>> data = Fields(x, y=Re[:, None] * x, parameters=Re, names={"parameters": ["Re"]})
>>> for finding in quick_findings(data):
...     print(finding)
warning: parameter 'Re' is positive and spans 4.0 decades, ... Import it with --log Re: ...
warning: samples are sorted by the parameter 'Re' (rank correlation 1.00): ...
"""

from __future__ import annotations

from collections.abc import Sequence

from lno.config import require_count
from lno.data.checks import require_instance
from lno.data.fields import Fields
from lno.data.quality.finding import SEVERITIES, Finding
from lno.data.quality.neighbours import neighbour_findings, quick_neighbour_findings
from lno.data.quality.samples import (
    count_findings,
    default_split,
    duplicate_findings,
    order_findings,
    point_findings,
)
from lno.data.quality.symmetric import symmetry_findings
from lno.data.quality.values import channel_findings, input_findings
from lno.data.quality.variation import variation_findings
from lno.data.symmetry import Symmetry

__all__ = ["SEVERITIES", "Finding", "findings", "quick_findings", "quick_neighbour_findings"]
QUICK = 64  # samples, that a quick look reads
MANY = 1000  # samples, whose values are looked at
EXPECTED = "two or three numbers, of training, validation (if it has its own) and test samples"


def findings(
    fields: Fields,
    split: Sequence[int] | None = None,
    symmetries: Sequence[Symmetry] = (),
    ordered: bool = True,
) -> list[Finding]:
    """All findings about data, the worst first.

    Args:
        fields: the data.
        split: numbers of training and test samples, or of training, validation and test samples,
            which are consecutive; validation counts as training here. None: the last tenth is for
            testing.
        symmetries: that training would use; each is tested.
        ordered: the split follows the order of the samples. False: it is random.
    """
    parts = _parts(fields, split)
    found = [
        *count_findings(fields),
        *input_findings(fields),
        *channel_findings(fields, MANY),
        *order_findings(fields, parts, ordered),
        *([] if ordered else neighbour_findings(fields)),
        *duplicate_findings(fields, parts),
        *point_findings(fields),
        *symmetry_findings(fields, symmetries),
        *variation_findings(fields),
    ]
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


def quick_findings(
    fields: Fields, split: Sequence[int] | None = None, ordered: bool = True
) -> list[Finding]:
    """Findings that cost next to nothing, of a few samples: what `lno train` says at its start.

    Errors and warnings only. The arguments are those of `findings`.
    """
    parts = _parts(fields, split)
    found = [
        *input_findings(fields),
        *channel_findings(fields, QUICK),
        *(order_findings(fields, parts) if ordered else []),
    ]
    return [finding for finding in found if finding.severity != "note"]


def _parts(fields: Fields, split: Sequence[int] | None) -> tuple[int, int]:
    """Numbers of training samples, with those for validation, and of test samples."""
    require_instance("fields", fields, Fields, "lno.Fields")
    if split is None:
        return default_split(len(fields))
    require_instance("split", split, list | tuple, EXPECTED)
    if len(split) not in (2, 3):
        raise ValueError(f"split: expected {EXPECTED}, got {split}")
    for count in split:
        require_count("split", count, len(fields), least=0)
    return sum(split[:-1]), split[-1]
