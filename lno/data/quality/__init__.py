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
from lno.data.checks import require_type
from lno.data.fields import Fields
from lno.data.quality.finding import SEVERITIES, Finding
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

__all__ = ["SEVERITIES", "Finding", "findings", "quick_findings"]
QUICK = 64  # samples, that a quick look reads
MANY = 1000  # samples, whose values are looked at


def findings(
    fields: Fields,
    split: tuple[int, int] | None = None,
    symmetries: Sequence[Symmetry] = (),
    ordered: bool = True,
) -> list[Finding]:
    """All findings about data, the worst first.

    Args:
        fields: the data.
        split: numbers of training and test samples, which are consecutive. None: the last tenth is
            for testing.
        symmetries: that training would use; each is tested.
        ordered: the split follows the order of the samples. False: it is random.
    """
    parts = _parts(fields, split)
    found = [
        *count_findings(fields),
        *input_findings(fields),
        *channel_findings(fields, MANY),
        *order_findings(fields, parts, ordered),
        *duplicate_findings(fields, parts),
        *point_findings(fields),
        *symmetry_findings(fields, symmetries),
        *variation_findings(fields),
    ]
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


def quick_findings(
    fields: Fields, split: tuple[int, int] | None = None, ordered: bool = True
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


def _parts(fields: Fields, split: tuple[int, int] | None) -> tuple[int, int]:
    """Numbers of training and test samples."""
    require_type("fields", fields, Fields, "lno.Fields")
    if split is None:
        return default_split(len(fields))
    require_type("split", split, list | tuple, "two numbers, of training and test samples")
    if len(split) != 2:
        raise ValueError(f"split: expected two numbers, of training and test samples, got {split}")
    for count in split:
        require_count("split", count, len(fields), least=0)
    return split[0], split[1]
