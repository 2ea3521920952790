"""The commands of the tutorials run in order, as a reader would type them, with short training.

On small stand-ins for the published files, and on the files themselves if LNO_PUBLISHED names a
folder with them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tutorial_data

from lno import Fields, Operator, cli

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "tutorials"
PUBLISHED = os.environ.get("LNO_PUBLISHED")
NOT_RUN = "<!-- not run -->"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
FLAGGED = 3  # the exit code with --strict
# What is smaller on stand-ins and made-up data.
SMALLER = {
    "--samples": "36",
    "--stations": "20",
    "--days": "60",
    "--sensors": "40",
    "--members": "2",
    "400,40,60": "16,10,10",
    "349,60,85": "84,12,24",
    "150,25,25": "36,12,12",
    "0.005:0.05": "0.05:0.3",
}
SIZES = ["--model", "lno"]
SIZES += [w for s in ("width=8", "latents=4", "blocks=1") for w in ("--set", s)]


def commands(page: str) -> list[list[str]]:
    """The words of each command in the blocks of a page that run."""
    text = (FOLDER / f"{page}.md").read_text(encoding="utf-8")
    found = []
    for block in BLOCK.finditer(text):
        if not text[: block.start()].rstrip().endswith(NOT_RUN):
            lines = block[1].replace("\\\n", " ").splitlines()
            found += [shlex.split(line, comments=True) for line in lines]
    assert {words[0] for words in found} <= {"lno", "python"}
    return found


def cheap(words: list[str], small: bool) -> list[str]:
    """A command with little training and, if it is to be small, little data and a small model."""
    found = list(words)
    for k, word in enumerate(words):
        if word == "--minutes":
            found[k : k + 2] = ["--epochs", "1"]
        elif small and word in SMALLER:
            option = word.startswith("--")
            found[k + option] = SMALLER[word]
    return found + (SIZES if small and words[:2] == ["lno", "train"] else [])


def follow(page: str, small: bool) -> None:
    """Run the commands of a page in the current folder."""
    shutil.copytree(ROOT / "examples", "examples")
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    for words in commands(page):
        given = cheap(words, small)
        if words[0] == "python":
            done = subprocess.run(
                [sys.executable, *given[1:]], env={**os.environ, "PYTHONPATH": paths}
            )
            assert done.returncode == 0, words
        else:
            assert cli.run(given[1:]) in ((0, FLAGGED) if "--strict" in words else (0,)), words


# -- what the commands leave behind ----------------------------------------------------------------


def table(path: str) -> np.ndarray:
    return np.genfromtxt(path, delimiter=",", names=True, dtype=None, encoding="utf-8")


def require_mesh(result: str, nodes: str, name: str) -> None:
    """A VTU file has a table's nodes, and bounds around the prediction."""
    meshio = pytest.importorskip("meshio")
    found, given = meshio.read(result), table(nodes)
    np.testing.assert_allclose(
        found.points[:, :2], np.stack((given["x"], given["y"]), 1), atol=1e-6
    )
    value, low, high = (
        found.point_data[f"{name}{end}"].ravel() for end in ("", "_lower", "_upper")
    )
    assert np.isfinite(value).all() and (low < value).all() and (value < high).all()


def require_report(path: str) -> None:
    """The page of errors names the simple methods."""
    text = Path(path).read_text(encoding="utf-8")
    assert "mean of the training samples" in text and "data:image/png" in text


def varying_geometry() -> None:
    fields = Fields.load("holed.h5")
    assert len(fields) == 121 and fields.cells is not None and fields.parameters is None
    assert fields.provenance["split"] == [100, 21]
    require_report("errors.html")
    for name in ("new_domain", "other_mesh"):
        require_mesh(f"{name}.vtu", f"{name}.csv", "u")
    new, corner = table("new_domain.csv"), np.array([0.33, 0.42])
    inside = np.abs(np.stack((new["x"], new["y"]), 1) - corner - 0.15) < 0.15 - 1e-4
    assert not inside.all(1).any()  # no node in the hole


def parameters_to_field() -> None:
    fields = Fields.load("elasticity.h5")
    assert fields.names["parameters"] == [f"{w}{k}" for k in range(1, 6) for w in ("cos", "sin")]
    require_report("errors.html")
    require_mesh("new_hole.vtu", "new_hole.csv", "sigma")
    given = table("new_hole.csv")
    assert not any(np.allclose(given["cos1"][0], row[0]) for row in fields.parameters)
    assert "kernel ridge regression" in Path("errors.html").read_text(encoding="utf-8")


def zero_shot_resolution() -> None:
    coarse, fine = (Fields.load(f"test{size}.h5") for size in (16, 32))
    assert coarse.grid is not None and fine.grid == tuple(2 * n for n in coarse.grid)
    same = np.asarray(fine.x).reshape(*fine.grid, 2)[::2, ::2].reshape(-1, 2)
    np.testing.assert_allclose(same, coarse.x, atol=1e-6)  # on the same square
    require_report("errors16.html")
    require_report("errors32.html")
    with netcdf("fine.nc") as file:
        assert file.variables["p"].shape == fine.grid
        low, high = (file.variables[f"p_{end}"][:] for end in ("lower", "upper"))
        assert (low < high).all()
    operator = Operator.load("runs/darcy/model.safetensors", "cpu")
    assert all(np.isfinite(operator.evaluate(test)["relative_l2"]) for test in (coarse, fine))


def sensors_on_an_ocean() -> None:
    with np.load("sea_surface_temperature.npz") as file:
        sst, lat, lon, month = (file[name] for name in ("sst", "lat", "lon", "month"))
    fields = Fields.load("sst.h5")
    assert fields.parameters is not None and len(fields.provenance["split"]) == 3
    np.testing.assert_array_equal(fields.parameters[:, 0], month % 12)
    require_report("errors.html")
    text = Path("errors.html").read_text(encoding="utf-8")
    assert "kriging" in text and "background alone" in text
    [july] = np.flatnonzero(month == 12 * 52 + 6)
    with netcdf("field.nc") as file:
        found = {
            name: file.variables[name][:].copy() for name in ("lat", "lon", "sst", "lower", "upper")
        }
    np.testing.assert_allclose(found["lat"], lat, atol=1e-4)  # also where all is land
    np.testing.assert_allclose(found["lon"], lon, atol=1e-4)
    land = np.isnan(sst[july])
    assert np.array_equal(np.isnan(found["sst"]), land)
    assert (found["lower"] < found["upper"])[~land].mean() > 0.9  # but at sensors
    assert np.abs(found["sst"] - sst[july])[~land].mean() < 2.0  # climatology and sensors
    sensors = table("sensors.csv")
    for at_lat, at_lon, value in zip(sensors["lat"], sensors["lon"], sensors["sst"], strict=True):
        here = found["sst"][np.abs(lat - at_lat).argmin(), np.abs(lon - at_lon).argmin()]
        assert here == pytest.approx(value, abs=0.05)  # the field passes through the sensors


def stations() -> None:
    fields = Fields.load("stations.h5")
    assert fields.is_ragged and fields.space == 2 and fields.names["x"][2] == "elevation"
    text = Path("errors.html").read_text(encoding="utf-8")
    assert "kriging with a linear trend in elevation" in text
    found, places = table("map.csv"), table("places.csv")
    for name in ("lon", "lat", "elevation"):
        np.testing.assert_allclose(found[name], places[name], atol=1e-4)
    assert ((found["T_lower"] < found["T"]) & (found["T"] < found["T_upper"])).all()


def netcdf(path: str):  # type: ignore[no-untyped-def]
    from scipy.io import netcdf_file

    return netcdf_file(path, mmap=False)


PAGES: dict[str, tuple[Callable[[], None], str]] = {
    "varying_geometry": (varying_geometry, "own_holed_poisson"),
    "parameters_to_field": (parameters_to_field, "own_parameters"),
    "zero_shot_resolution": (zero_shot_resolution, "own_darcy_small"),
    "sensors_on_an_ocean": (sensors_on_an_ocean, "own_sst"),
    "stations": (stations, "own_stations"),
}


@pytest.mark.parametrize("page", PAGES)
def test_a_tutorial_on_stand_ins(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tutorial_data.make(tmp_path)
    follow(page, small=True)
    PAGES[page][0]()


@pytest.mark.skipif(not PUBLISHED, reason="LNO_PUBLISHED names no folder of published files")
@pytest.mark.parametrize("page", PAGES)
def test_a_tutorial_on_published_files(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in Path(str(PUBLISHED)).glob("*.npz"):
        shutil.copy(path, tmp_path)
    follow(page, small=False)
    PAGES[page][0]()


def test_every_page_has_its_table_and_runs_something() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == {"index", *PAGES}
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    for page, (_, marker) in PAGES.items():
        text = (FOLDER / f"{page}.md").read_text(encoding="utf-8")
        assert text.count(f"<!-- {marker} -->") == text.count(f"<!-- /{marker} -->") == 1
        assert f"({page}.md)" in index
        runs = [words[1] for words in commands(page)]
        assert {"data", "train", "evaluate"} <= set(runs)


def test_published_files_become_archives(tmp_path: Path) -> None:
    """The converted archives have the layouts of the stand-ins."""
    torch, xarray = pytest.importorskip("torch"), pytest.importorskip("xarray")
    tutorial_data.make(tmp_path)
    made = {path.stem: dict(np.load(path)) for path in tmp_path.glob("*.npz")}
    holed, darcy, sea = (
        made[k] for k in ("holed_poisson", "darcy_small", "sea_surface_temperature")
    )
    x, y = (torch.from_numpy(v.T.copy()) for v in np.moveaxis(holed["positions"], -1, 0))
    tensors = {"x": x, "y": y, "u": torch.from_numpy(holed["values"][..., 0].T.copy())}
    tensors |= {"mu": torch.from_numpy(holed["parameters"])}
    tensors |= {"triang": torch.from_numpy(holed["triangles"])}
    torch.save(tensors, tmp_path / "holed_poisson.pt")
    for name in ("train_16", "test_16", "test_32"):
        pair = {"x": f"{name}_coefficient", "y": f"{name}_solution"}
        torch.save(
            {k: torch.from_numpy(darcy[v]) for k, v in pair.items()}, tmp_path / f"darcy_{name}.pt"
        )
    time = np.array(sea["month"], "datetime64[M]").astype("datetime64[ns]")
    axes = {"time": time, "lat": sea["lat"], "lon": sea["lon"]}
    xarray.Dataset({"sst": (tuple(axes), sea["sst"])}, axes).to_netcdf(
        tmp_path / "sst_mnmean_oisst.nc", engine="scipy"
    )
    darcy_files = [f"darcy_{name}.pt" for name in ("train_16", "test_16", "test_32")]
    for given in (["holed_poisson.pt"], darcy_files, ["sst_mnmean_oisst.nc"]):
        script = ROOT / "examples" / "published_data.py"
        subprocess.run([sys.executable, script, *given], cwd=tmp_path, check=True)
    for stem, arrays in made.items():
        with np.load(tmp_path / f"{stem}.npz") as file:
            assert sorted(file) == sorted(arrays)
            for name, values in arrays.items():
                np.testing.assert_array_equal(file[name], values)
