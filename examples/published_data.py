"""Published data sets of others as NumPy archives, which `lno data import` reads.

python examples/published_data.py holed_poisson.pt
python examples/published_data.py darcy_train_16.pt darcy_test_16.pt darcy_test_32.pt
python examples/published_data.py sst_mnmean_oisst.nc

Download the files first: the tutorials in docs/tutorials say where they are. Of a .pt file, only
tensors are read; nothing that it might contain besides is executed.
"""

import sys
from pathlib import Path

import numpy as np
import torch


def holed_poisson(path: Path) -> dict[str, np.ndarray]:
    """121 domains: nodes (samples, nodes, 2), values there, corners of the holes, triangles."""
    data = torch.load(path, weights_only=True)
    positions = torch.stack((data["x"].T, data["y"].T), dim=-1)
    found = {"positions": positions, "values": data["u"].T[..., None], "parameters": data["mu"]}
    return {name: v.numpy() for name, v in found.items()} | {"triangles": data["triang"].numpy()}


def darcy_small(*paths: Path) -> dict[str, np.ndarray]:
    """Coefficients and solutions of each file, by names like test_32_solution."""
    found = {}
    for path in paths:
        data, name = torch.load(path, weights_only=True), path.stem.removeprefix("darcy_")
        found[f"{name}_coefficient"] = data["x"].numpy()
        found[f"{name}_solution"] = data["y"].numpy()
    return found


def sea_surface_temperature(path: Path) -> dict[str, np.ndarray]:
    """Temperatures (month, lat, lon), NaN on land, and months since January 1970."""
    import xarray

    with xarray.open_dataset(path) as data:
        month = 12 * (data["time.year"] - 1970) + data["time.month"] - 1
        sst, lat, lon = (data[name].values.astype(np.float32) for name in ("sst", "lat", "lon"))
        return {"sst": sst, "lat": lat, "lon": lon, "month": month.values.astype(np.int32)}


given = [Path(name) for name in sys.argv[1:]]
kinds = {"holed": holed_poisson, "darcy": darcy_small, "sst": sea_surface_temperature}
kind = kinds.get(given[0].stem.split("_")[0]) if given else None
if kind is None:
    sys.exit(__doc__)
np.savez_compressed(f"{kind.__name__}.npz", **kind(*given))
print(f"wrote {kind.__name__}.npz")
