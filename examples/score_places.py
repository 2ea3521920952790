"""Errors of predicted temperatures at places without a station, beside those of kriging.

python examples/score_places.py map.csv --today today.csv --places places.csv

map.csv is what `lno predict --at places.csv --bounds 0.9` wrote, the other two files are those of
examples/make_stations.py. Kriging is told the standard deviation of the measurements' errors and
finds its length scales by maximum likelihood. With elevation, it is about the linear regression of
the measurements on the elevation of their stations.
"""

import argparse

import numpy as np
import torch

from lno.kernel_methods.krige import krige

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("map")
parser.add_argument("--today", default="today.csv")
parser.add_argument("--places", default="places.csv")
chosen = parser.parse_args()
found, today, places = (
    np.genfromtxt(path, delimiter=",", names=True, dtype=None, encoding="utf-8")
    for path in (chosen.map, chosen.today, chosen.places)
)
NOISE = 0.3  # of the measurements
hundred_km = 1.11 * np.array([np.cos(np.deg2rad(today["lat"].mean())), 1])
at, to = (
    torch.from_numpy(np.stack((table["lon"], table["lat"]), 1) * hundred_km)[None]
    for table in (today, places)
)


def kriged(degree: int) -> np.ndarray:
    """Kriging about a polynomial in the elevation."""
    trend = np.polynomial.Polynomial.fit(today["elevation"], today["T"], degree)
    left = torch.from_numpy(today["T"] - trend(today["elevation"]))[None, :, None]
    return krige(at, left, to, noise=NOISE)[0, :, 0].numpy() + trend(places["elevation"])


methods = {"operator": found["T"], "kriging": kriged(0), "kriging with elevation": kriged(1)}
print(f"root mean square error at {len(places)} places, {len(today)} stations")
for name, values in methods.items():
    print(f"{name:24} {np.sqrt(np.mean((values - places['T']) ** 2)):.2f} K")
inside = (found["T_lower"] <= places["T"]) & (places["T"] <= found["T_upper"])
print(f"inside the bounds of the operator: {100 * inside.mean():.0f} %")
