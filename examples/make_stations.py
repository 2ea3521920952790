"""Synthetic temperatures of weather stations in a mountainous country, as a table.

python examples/make_stations.py --stations 80 --days 200 --out stations.csv

Everything is made up, so that the truth is known everywhere:

    T = 8 + season(day) + weather(day, lon, lat) − 6.5 K/km · elevation(lon, lat) + noise

- season: a cosine of 10 K over the year, coldest in the middle of January.
- weather: 24 waves of random direction and phase, 200 km and longer. Amplitudes change from day to
  day as AR(1) processes with the coefficient 0.7. Standard deviation 3 K. There is a measurement
  every fifth day, so that 200 of them are nearly independent and cover almost three years.
- elevation: 0 to about 3 km, with ridges of 30 to 150 km that the stations do not resolve.
- noise: of a station, standard deviation 0.3 K.

stations.csv has the columns date, lon, lat, elevation (km) and T (°C). 5 % of the measurements are
missing: T is empty there. With --today and --places, one more day is written: what the stations
measured, and places without a station, with their elevation and the true T to compare with.
"""

import argparse
import csv
from datetime import date, timedelta
from pathlib import Path

import numpy as np

LAPSE, NOISE, MISSING, KM = -6.5, 0.3, 0.05, 111.0  # kilometres of a degree of latitude
EVERY, PERSISTENCE = 5, 0.7  # days between measurements; of the weather, from day to day
LOW, HIGH = np.array([5.0, 45.0]), np.array([11.0, 49.0])  # longitude, latitude

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--stations", type=int, default=80)
parser.add_argument("--days", type=int, default=200)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", default="stations.csv")
parser.add_argument("--today", help="a file for the measurements of one more day")
parser.add_argument("--places", help="a file for places without a station on that day")
chosen = parser.parse_args()
random = np.random.default_rng(chosen.seed)


def waves(count: int, shortest: float, longest: float) -> tuple[np.ndarray, np.ndarray]:
    """Wave vectors in 1/km, of lengths in km, and phases."""
    length, angle, phase = random.uniform(
        (shortest, 0, 0), (longest, 2 * np.pi, 2 * np.pi), (count, 3)
    ).T
    return 2 * np.pi / length * np.stack((np.cos(angle), np.sin(angle))), phase


def kilometres(places: np.ndarray) -> np.ndarray:
    """Distances to the east and to the north."""
    return (places - LOW) * KM * [np.cos(np.deg2rad(47)), 1]


ridges, rough = waves(12, 30, 150), random.uniform(0.5, 1, 12)
weather = waves(24, 200, 900)


def elevation(places: np.ndarray) -> np.ndarray:
    """In km above the sea."""
    vectors, phases = ridges
    return 3 / (1 + np.exp(1 - 0.7 * np.cos(kilometres(places) @ vectors + phases) @ rough))


def temperature(places: np.ndarray, k: int) -> np.ndarray:
    """The true temperature at places (n, 2) on the k-th day."""
    season = -10 * np.cos(2 * np.pi * (EVERY * k - 15) / 365)
    vectors, phases = weather
    field = np.cos(kilometres(places) @ vectors + phases) @ amplitudes[k]
    return 8 + season + field + LAPSE * elevation(places)


amplitudes = [random.normal(size=24)]
for _ in range(chosen.days):
    kept = PERSISTENCE**EVERY
    amplitudes.append(kept * amplitudes[-1] + np.sqrt(1 - kept**2) * random.normal(size=24))
amplitudes = 3 * np.sqrt(2 / 24) * np.array(amplitudes)
stations = random.uniform(LOW, HIGH, (chosen.stations, 2)).round(4)


def write(path: str, names: list[str], rows: list[list[str]]) -> None:
    """A table with a header."""
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names, *rows])
    print(f"wrote {path}: {len(rows)} rows")


def rows(places: np.ndarray, values: np.ndarray, first: list[str]) -> list[list[str]]:
    """Positions, elevations and temperatures, none where it is NaN."""
    table = zip(places, elevation(places), values, strict=True)
    return [
        [*first, *(f"{v:.4f}" for v in (*x, h)), "" if np.isnan(t) else f"{t:.2f}"]
        for x, h, t in table
    ]


measured = []
for k in range(chosen.days + 1):
    values = temperature(stations, k)
    values += NOISE * random.normal(size=chosen.stations)
    values[random.uniform(size=chosen.stations) < MISSING] = np.nan
    measured.append(rows(stations, values, [str(date(2021, 1, 1) + timedelta(EVERY * k))]))
*past, today = measured
names = ["date", "lon", "lat", "elevation", "T"]
write(chosen.out, names, [row for day in past for row in day])
if chosen.today:
    write(chosen.today, names, [row for row in today if row[-1]])
if chosen.places:
    ends = stations.min(0), stations.max(0)  # beyond all stations nobody knows
    side = [np.linspace(low, high, n) for low, high, n in zip(*ends, (49, 33), strict=True)]
    grid = np.stack(np.meshgrid(*side, indexing="ij"), -1).reshape(-1, 2)
    write(chosen.places, names[1:], rows(grid, temperature(grid, chosen.days), []))
