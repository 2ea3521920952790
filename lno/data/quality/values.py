"""Findings about the values of channels: constant, over many orders of magnitude, outliers."""

from __future__ import annotations

import numpy as np

from lno.data import columns
from lno.data.fields import Fields
from lno.data.quality.finding import Channel, Finding, channels_of

DECADES = 3.0  # that positive values span, from which on their logarithm is better learned
FAR = 10.0  # interquartile ranges from the quartiles, beyond which a value is an outlier
OFFSET = 20.0  # standard deviations of the mean from zero, from which on it hides errors
RARE = 0.01  # the share of values up to which they are outliers, not a part of the distribution
# Numbers that programs write where there is no value.
FILLS = (-9999.0, -999.0, -99999.0, 9999.0, 99999.0, -32768.0, 1e20, 1e30, 9.969209968386869e36)


def channel_findings(fields: Fields, most: int) -> list[Finding]:
    """Findings about each channel and parameter, from at most `most` samples."""
    return [found for channel in channels_of(fields, most) for found in _about(channel)]


def _about(channel: Channel) -> list[Finding]:
    values = np.asarray(channel.values, np.float64)
    low, high = float(values.min()), float(values.max())
    if low == high and len(values) > 1:
        severity = "warning" if channel.role == "output" else "note"
        return [
            Finding(
                severity,
                f"{channel} is {low:g} everywhere",
                "It tells a model nothing: leave it out",
            )
        ]
    for fill in FILLS:
        close = np.isclose(values, fill, rtol=1e-6, atol=0)
        others = values[~close]
        if 0 < close.sum() < len(values) and abs(fill) > 5 * np.abs(others).max():
            share = 100 * close.mean()
            return [
                Finding(
                    "error",
                    f"{channel} is {fill:g} in {share:.2g} % of the values, all others are "
                    f"between {others.min():.4g} and {others.max():.4g}: a fill value",
                    "Replace it by NaN and import again: such points are left out",
                )
            ]
    return _about_range(channel, values)


def _about_range(channel: Channel, values: np.ndarray) -> list[Finding]:
    bottom, first, third, top = np.quantile(values, (0.001, 0.25, 0.75, 0.999))
    if values.min() > 0 and top >= 10**DECADES * bottom:
        decades = np.log10(top / bottom)
        return [
            Finding(
                "warning",
                f"{channel} is positive and spans {decades:.1f} decades, {bottom:.3g} to {top:.3g}",
                f"Import it with --log {channel.name}: otherwise small values are rounding errors "
                "of large ones to a model",
            )
        ]
    return [*_about_offset(channel, values), *_about_outliers(channel, values, first, third)]


def _about_offset(channel: Channel, values: np.ndarray) -> list[Finding]:
    mean, deviation = float(values.mean()), float(values.std())
    if channel.role != "output" or abs(mean) < OFFSET * deviation:
        return []
    return [
        Finding(
            "warning",
            f"{channel} is {mean:.5g} on average, with a standard deviation of {deviation:.3g}: "
            f"a model that always predicts {mean:.5g} has a relative error of "
            f"{100 * deviation / abs(mean):.2g} %",
            "Subtract a reference value (ambient pressure, 273.15 K) before you import the data: "
            "relative errors then say how well the variation is learned",
        )
    ]


def _about_outliers(
    channel: Channel, values: np.ndarray, first: float, third: float
) -> list[Finding]:
    spread = third - first
    far = (values < first - FAR * spread) | (values > third + FAR * spread)
    share = far.mean()
    if spread > 0 and 0 < share <= RARE:
        worst = values[far][np.argmax(np.abs(values[far] - first))]
        return [
            Finding(
                "warning",
                f"{channel} has {int(far.sum()):,} outlier{'s' * int(far.sum() > 1)} "
                f"({100 * share:.2g} % of the values): "
                f"up to {worst:.4g}, while half of the values are between {first:.4g} and "
                f"{third:.4g}",
                "Look at them with 'lno data info --plot': errors of the program that made the "
                "data, or units that differ. They dominate means and losses",
            )
        ]
    return []


def input_findings(fields: Fields) -> list[Finding]:
    """Findings about what is given to a model."""
    found = []
    inputs = columns.channels(fields.u)
    sizes = columns.sizes(fields.x, len(fields))
    if inputs and (sizes == 1).all():
        found.append(
            Finding(
                "error",
                f"inputs are at one point in all {len(fields)} samples: a prediction could not "
                "depend on the position",
                "They are numbers of a whole sample: import them with --parameters",
            )
        )
    own = not columns.is_shared(fields.x) and not columns.is_shared(fields.x_query)
    if not inputs and fields.parameters is None and not own:
        found.append(
            Finding(
                "note",
                "there are no inputs: neither values, nor parameters, nor positions that differ "
                "between samples",
                "Only observations of the outputs themselves can be learned from: "
                "Completion(...), 'lno reconstruct'",
            )
        )
    return found
