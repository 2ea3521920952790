"""Sea surface temperatures of one month at a few random places, as a table of sensors.

python examples/ocean_sensors.py sea_surface_temperature.npz --month 2022-07 --out sensors.csv

The places are random points of the grid that are sea, equally dense on the sphere.
"""

import argparse

import numpy as np

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("data", help="sea_surface_temperature.npz")
parser.add_argument("--month", default="2022-07")
parser.add_argument("--sensors", type=int, default=100)
parser.add_argument("--out", default="sensors.csv")
chosen = parser.parse_args()

with np.load(chosen.data) as file:
    sst, lat, lon, months = (file[name] for name in ("sst", "lat", "lon", "month"))
year, month = map(int, chosen.month.split("-"))
[field] = sst[months == 12 * (year - 1970) + month - 1]  # months since January 1970
row, column = np.nonzero(~np.isnan(field))
area = np.cos(np.deg2rad(lat[row])).clip(min=0)
some = np.random.default_rng(0).choice(len(row), chosen.sensors, replace=False, p=area / area.sum())
row, column = row[some], column[some]
table = np.column_stack((lat[row], lon[column], field[row, column]))
np.savetxt(chosen.out, table, "%.4g", ",", header="lat,lon,sst", comments="")
print(f"wrote {chosen.out}: {len(table)} sensors, {chosen.month}")
