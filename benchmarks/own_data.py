"""Your own data: the commands of the tutorials on published data, beside simple methods.

    python benchmarks/own_data.py darcy_small holed_poisson sst --data FOLDER
    python benchmarks/own_data.py parameters stations

Each part imports its data, trains with `lno train` and measures the errors on its test samples, as
its page under docs/tutorials does. The files of the first three parts are published (see there);
those of the others are generated. Budgets are minutes of two CPU cores, so nothing else should run
meanwhile. --minutes replaces them, for a trial. Writes results/benchmarks/own_data_<part>.json.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lno import Fields, Operator, Reconstructor
from lno.assessment import assess
from lno.data.climatology import Climatology
from lno.data.division import Division
from lno.experiments.own import parts_of
from lno.files import read_json, write_json
from lno.kernel_methods.krige import krige

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "benchmarks"
MINUTES = {
    "darcy_small": 8.0,
    "holed_poisson": 10.0,
    "sst": 30.0,
    "parameters": 8.0,
    "stations": 3.0,
}
SENSORS = 0.02  # the share of the sea that is observed
SEED = 0  # of the sensors


def lno(*words: object) -> None:
    """Run the command in the current folder."""
    given = [str(word) for word in words]
    print("lno", *given, flush=True)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-m", "lno.cli", *given],
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def trained(run: str) -> tuple[Operator, dict[str, Any]]:
    """The operator of a run, and what it cost."""
    operator, found = (
        Operator.load(f"{run}/model.safetensors", device="cpu"),
        read_json(f"{run}/run.json"),
    )
    cost = {"model": found["model"], "parameters": found["parameters"], "seconds": found["seconds"]}
    cost |= {"members": found["members"], "epochs": found["epochs"], "hardware": found["hardware"]}
    return operator, cost


def compared(operator: Operator, test: Fields, train: Fields) -> dict[str, Any]:
    """Relative L2 errors of the operator and of simple methods, and what bounds contain."""
    found = assess(operator, test, train)
    errors = {r.name: float(np.nanmean(r.errors["relative_l2"])) for r in found.rivals}
    trusted = found.trusted
    contained = None if trusted is None else float(trusted.contained.mean())
    return {"relative_l2": errors, "contained": contained, "test": len(test)}


def darcy_small(data: Path, minutes: float) -> dict[str, Any]:
    """Trained on 16 × 16 points, tested there and on 32 × 32."""
    for part, size in (("train", 16), ("test", 16), ("test", 32)):
        names = (f"{part}_{size}_coefficient:a", f"{part}_{size}_solution:p")
        options = ("--inputs", names[0], "--outputs", names[1], "--grid", "no-endpoint")
        lno("data", "import", data / "darcy_small.npz", "--out", f"{part}{size}.h5", *options)
    lno("train", "train16.h5", "--minutes", minutes, "--out", "run")
    operator, cost = trained("run")
    train = parts_of(Fields.load("train16.h5"), Division())[0]
    coarse, fine = Fields.load("test16.h5"), Fields.load("test32.h5")
    found = compared(operator, coarse, train)
    return {**cost, **found, "zero_shot": operator.evaluate(fine)["relative_l2"]}


def holed_poisson(data: Path, minutes: float) -> dict[str, Any]:
    """100 domains with a hole, at random, to train on, and 21 others."""
    lno(
        *(
            "data",
            "import",
            data / "holed_poisson.npz",
            "--out",
            "holed.h5",
            "--cells",
            "triangles",
        ),
        *("--positions", "positions:x,y", "--outputs", "values:u", "--shuffle", 0),
        *("--split", "100,21"),
    )
    lno("train", "holed.h5", "--minutes", minutes, "--out", "run")
    operator, cost = trained("run")
    train, _, test = parts_of(Fields.load("holed.h5"), Division())
    return {**cost, **compared(operator, test, train)}


def sst(data: Path, minutes: float) -> dict[str, Any]:
    """Monthly sea-surface temperature: trained to 2010, held out to 2015, tested after that."""
    lno(
        *("data", "import", data / "sea_surface_temperature.npz", "--out", "sst.h5"),
        *("--outputs", "sst", "--axes", "lat,lon", "--sample", "month", "--parameters", "month"),
        *("--period", "lon=360,month=12", "--split", "349,60,85"),
    )
    lno(
        *("train", "sst.h5", "--task", "complete", "--observe", "0.005:0.05", "--members", 3),
        *("--background", "climatology:month", "--sphere", "lat,lon", "--minutes", minutes),
        *("--out", "run"),
    )
    operator, cost = trained("run")
    whole = Reconstructor.load("run", device="cpu")
    train, _, test = parts_of(Fields.load("sst.h5"), Division())
    area = np.cos(np.deg2rad(whole.points[:, 0]))
    count, random = round(SENSORS * len(area)), np.random.default_rng(SEED)
    usual = Climatology.fit(train, "month")
    place = operator.normalizers.x
    errors: dict[str, list[np.ndarray]] = {}
    inside = []
    for sample in test:
        truth = sample.y[:, 0]
        chosen = random.choice(len(truth), count, replace=False)
        at = whole.points[chosen]
        found = whole(at, truth[chosen, None], parameters=sample.parameters)
        field, low, high = (whole.at_points(v) for v in (found.mean, found.lower, found.upper))
        inside.append(((low <= truth) & (truth <= high)).mean())
        known = usual.at(whole.points, sample.parameters)[:, 0]
        features = [place.distance_features(torch.from_numpy(x))[None] for x in (at, whole.points)]
        anomaly = torch.from_numpy(truth - known)[None, chosen, None]
        kriged = krige(features[0], anomaly, features[1], axes=place.distance_axes)[0, :, 0].numpy()
        predictions = {"operator": field, "climatology": known}
        predictions["climatology and kriged anomalies"] = known + kriged
        for name, prediction in predictions.items():
            errors.setdefault(name, []).append(np.square(prediction - truth))
    rmse = {
        name: float(np.sqrt(np.average(np.mean(e, 0), weights=area))) for name, e in errors.items()
    }
    months = {"train": len(train), "test": len(test), "sensors": count}
    return {**cost, **months, "rmse": rmse, "contained": float(np.mean(inside))}


def parameters(data: Path, minutes: float) -> dict[str, Any]:
    """Ten Fourier coefficients of the shape of a hole to the stress around it."""
    script = ROOT / "examples" / "elasticity_parameters.py"
    subprocess.run([sys.executable, script, "--samples", "500"], check=True)
    lno(
        *("data", "import", "elasticity.npz", "--out", "holes.h5", "--positions", "positions:x,y"),
        *("--outputs", "sigma", "--parameters", "parameters", "--cells", "cells"),
        *("--split", "400,40,60"),
    )
    lno("train", "holes.h5", "--minutes", minutes, "--out", "run")
    operator, cost = trained("run")
    train, _, test = parts_of(Fields.load("holes.h5"), Division())
    return {**cost, **compared(operator, test, train), "train": len(train)}


def stations(data: Path, minutes: float) -> dict[str, Any]:
    """Temperatures of stations from others on the same day, with the elevation as a covariate."""
    script = ROOT / "examples" / "make_stations.py"
    subprocess.run([sys.executable, script, "--out", "stations.csv"], check=True)
    lno(
        *("data", "import", "stations.csv", "--out", "stations.h5", "--sample", "date"),
        *("--positions", "lon,lat", "--covariates", "elevation", "--outputs", "T"),
        *("--split", "150,25,25"),
    )
    observed = ("--task", "complete", "--observe", "0.3:0.9")
    lno("train", "stations.h5", *observed, "--minutes", minutes, "--out", "run")
    operator, cost = trained("run")
    train, _, test = parts_of(Fields.load("stations.h5"), Division())
    return {**cost, **compared(operator, test, train), "train": len(train)}


PARTS: dict[str, Callable[[Path, float], dict[str, Any]]] = {
    "darcy_small": darcy_small,
    "holed_poisson": holed_poisson,
    "sst": sst,
    "parameters": parameters,
    "stations": stations,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the published files")
    parser.add_argument("--minutes", type=float, help="of training, in place of those of each part")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    data, out = options.data.resolve(), options.out.resolve()
    for name in options.parts:
        minutes = options.minutes or MINUTES[name]
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            found = {"minutes": minutes, **PARTS[name](data, minutes)}
        print(name, found, flush=True)
        write_json(out / f"own_data_{name}.json", found)


if __name__ == "__main__":
    main()
