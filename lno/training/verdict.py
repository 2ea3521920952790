"""Whether a longer run, or more samples, would help: what a learning curve says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lno.text import percent

LAST = 0.25  # of the schedule, whose gain is judged
FEW_POINTS = 8  # of the learning curve: too few to judge
FALLING = 0.15  # a fall of the validation error by this share is one that would go on
RISING = 0.10  # a rise above the lowest by this share is overfitting
GAP = 2.0  # validation error / training error, from which on samples are what is missing,
CLOSE = 1.3  # and up to which time or size is
SHORT = 5_000  # steps, below which a run without a gap is too short


def verdict(
    curve: Sequence[Mapping[str, Any]], training: float | None, validation: float | None
) -> str:
    """A sentence with numbers; empty where there is too little to judge by.

    The last part of a schedule, where the learning rate goes down, gains something in every run,
    and little in one that was much too short. So the error is compared with that of samples that
    were trained on, too.

    Args:
        curve: the learning curve of a finished run, as in the provenance of an operator.
        training: the error on samples that were trained on.
        validation: the same error on samples that were held out.

    >>> falling = [{"step": k, "error": 1 / k} for k in range(1, 21)]
    >>> verdict(falling, 0.04, 0.05)
    'The validation error fell from 6.67 % to 5.00 % over the last quarter: a longer run would ...'
    >>> flat = [{"step": k, "error": 0.1} for k in range(1, 21)]
    >>> verdict(flat, 0.02, 0.1)
    'The validation error, 10.00 %, is 5.0 times the training error: more samples would help, ...'
    >>> verdict(flat, 0.09, 0.1)
    'After 20 steps the validation error, 10.00 %, is close to the training error, 9.00 %: a ...'
    >>> verdict([{"step": 0, "error": 0.3}, *flat], 0.1, 0.1)
    'The validation error went from 10.00 % to 10.00 % over the last quarter: a longer ...'
    """
    rows = [(row["step"], row["error"]) for row in curve if row.get("error") is not None]
    if len(rows) < FEW_POINTS:
        return ""
    end, last = rows[-1]
    before = next(error for step, error in reversed(rows) if step <= (1 - LAST) * end)
    step, lowest = min(rows, key=lambda row: row[1])
    if last > (1 + RISING) * lowest:
        return (
            f"The validation error was lowest, {percent(lowest)}, at step {step:,} of {end:,} and "
            f"rose to {percent(last)}: the model overfits. More samples would help, or "
            "--early-stop; a longer run would not."
        )
    if last < (1 - FALLING) * before:
        fell = f"fell from {percent(before)} to {percent(last)} over the last quarter"
        return f"The validation error {fell}: a longer run would help."
    if training is None or validation is None:
        return ""
    early = min(error for step, error in rows if step <= max(end / 2, rows[0][0]))
    late = min(error for step, error in rows if step > end / 2)
    settled = early < (1 - FALLING) * rows[0][1] and late > 0.95 * early  # fell, then stayed
    if validation < CLOSE * training and end < SHORT and not settled:
        return (
            f"After {end:,} steps the validation error, {percent(validation)}, is close to the "
            f"training error, {percent(training)}: a longer run would help."
        )
    if validation > GAP * training:
        ratio = validation / max(training, 1e-12)
        return (
            f"The validation error, {percent(validation)}, is {ratio:.1f} times the training "
            "error: more samples would help, a longer run hardly."
        )
    return (
        f"The validation error went from {percent(before)} to {percent(last)} over the last "
        "quarter: a longer run would hardly help. A larger model or more samples might."
    )
