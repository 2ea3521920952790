"""How far can a prediction be trusted: bounds, and whether a sample is out of distribution."""

from lno.trust.bounded import (
    BoundedPrediction,
    distribution,
    predict_bounded,
    warn_of_few_points,
)
from lno.trust.reference import Reference
from lno.trust.trust import Checked, Trust, calibrate, check

__all__ = [
    "BoundedPrediction",
    "Checked",
    "Reference",
    "Trust",
    "calibrate",
    "check",
    "distribution",
    "predict_bounded",
    "warn_of_few_points",
]
