"""The time to make data sets, including drawing and writing, and their statistics.

    python benchmarks/make_data.py darcy ns2d [--samples 1200] [--device auto] [--keep FOLDER]

Writes results/benchmarks/make_data_<device>.json: a row for each problem with seconds, statistics
and the digest of the data. Statistics are mean, standard deviation and spectrum of first and last
channels; of problems on deformed meshes, those of benchmarks/accuracy. With --pictures FOLDER it
also draws samples and spectra; --results FOLDER leaves the rows elsewhere.
"""

from __future__ import annotations

import argparse
import importlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from lno.data import Fields
from lno.experiments.pictures import sample_gallery
from lno.files import replacing, write_json
from lno.problems import PROBLEMS
from lno.problems.make import make_file
from lno.report import html
from lno.training.device import hardware, pick_solver_device
from lno.training.progress import progress

RESULTS = Path(__file__).parents[1] / "results" / "benchmarks"


def spectrum(fields: np.ndarray) -> list[float]:
    """Mean squared Fourier amplitude of fields (s, n, n) in shells of the wave number."""
    n = fields.shape[-1]
    power = np.abs(np.fft.fft2(fields) / n**2) ** 2
    k = np.fft.fftfreq(n, 1 / n)
    shell = np.rint(np.hypot(k[:, None], k)).astype(int).ravel()
    total = np.bincount(shell, power.mean(0).ravel())
    return total[: n // 2].tolist()


def statistics(fields: Fields) -> dict[str, Any]:
    """Mean, std, the std of single samples, and spectrum, of first and last channels."""
    rows: dict[str, Any] = {}
    assert fields.grid is not None
    for key, values in (("u", np.asarray(fields.u)), ("y", np.asarray(fields.y))):
        for channel in sorted({0, values.shape[-1] - 1}):
            field = values[..., channel].astype(np.float64)
            each = field.std(axis=1)
            rows[fields.names[key][channel]] = {
                "mean": field.mean(),
                "std": field.std(),
                "std_per_sample": [each.mean(), each.std()],
                "spectrum": spectrum(field.reshape(len(field), *fields.grid)),
            }
    return rows


def special_statistics(problem: str, fields: Fields) -> list[dict[str, Any]]:
    """Statistics that published data of a problem are known by, beside the published ones."""
    return importlib.import_module(f"accuracy.{problem}").statistics(fields)


def has_spectrum(fields: Fields) -> bool:
    """Whether the data are on a square grid that is not deformed."""
    return fields.grid is not None and len(set(fields.grid)) == 1 and fields.geometry is None


def spectra_figure(rows: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    axis = figure.subplots()
    for name, row in rows.items():
        values = np.array(row["spectrum"])
        axis.loglog(np.arange(1, len(values)), values[1:], label=name)
    axis.set(xlabel="wave number", ylabel="mean squared amplitude in a shell")
    axis.grid(True, which="both", alpha=0.25)
    axis.legend(frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser()
    made = [name for name, problem in PROBLEMS.items() if problem.can_make()]
    parser.add_argument("problems", nargs="+", choices=made)
    parser.add_argument("--samples", type=int, default=1200)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--keep", type=Path, help="a folder for the data, PROBLEM.h5")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    device = pick_solver_device(options.device)
    if device.type == "cuda":  # loading the driver and its libraries is not to be timed
        torch.linalg.inv(torch.eye(8, device=device, dtype=torch.float64)).sum().item()
    path = options.results / f"make_data_{device.type}.json"
    known = json.loads(path.read_text())["rows"] if path.exists() else []
    for name in options.problems:
        with tempfile.TemporaryDirectory() as folder:
            out = (options.keep or Path(folder)) / f"{name}.h5"
            start = time.perf_counter()
            with progress(f"making {name}", options.samples) as update:
                fields = make_file(PROBLEMS[name](), options.samples, out, 0, str(device), update)
            seconds = time.perf_counter() - start
            size = out.stat().st_size / 1e6
        row = {"problem": name, "samples": options.samples, "seconds": seconds, "megabytes": size}
        row |= {"hardware": hardware(device), "hash": fields.digest}
        row |= {k: v for k, v in fields.provenance.items() if k in ("retried", "redrawn")}
        done = f"{options.samples} samples in {seconds:.1f} s, {size:.0f} MB"
        print(f"{name}: {done}, on {hardware(device)}", flush=True)
        if has_spectrum(fields):
            row["statistics"] = statistics(fields)
            for channel, values in row["statistics"].items():
                mean, spread = values["std_per_sample"]
                overall = f"mean {values['mean']:.4g}, std {values['std']:.4g}"
                print(f"  {channel}: {overall}, of a sample {mean:.4g} ± {spread:.2g}")
        else:
            row["statistics"] = special_statistics(name, fields)
            for line in row["statistics"]:
                print(f"  {line['statistic']}: {line['ours']}, published: {line['published']}")
        known = [r for r in known if r["problem"] != name] + [row]
        if options.pictures:
            figures = {name: sample_gallery(fields)}
            if has_spectrum(fields):
                figures[f"{name}_spectrum"] = spectra_figure(row["statistics"])
            for picture, figure in figures.items():
                with replacing(options.pictures / f"{picture}.png") as temporary:
                    temporary.write_bytes(html.png(figure))  # a third of the bytes
        write_json(path, {"rows": known})


if __name__ == "__main__":
    main()
