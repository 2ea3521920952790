"""The command line: what each command writes, and mistakes that are one clear line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny
from command_line import Run

import lno
from lno import Completion, Fields, Operator, RandomRatio, Window, cli


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small completer of fields over (t, x), its data, and sensors for it."""
    path = tmp_path_factory.mktemp("cli")
    t, x = np.linspace(0, 1, 8), np.arange(16) / 16
    positions = np.stack(np.meshgrid(t, x, indexing="ij"), -1).reshape(-1, 2)
    phase = np.random.default_rng(0).uniform(0, 1, (20, 1))
    y = np.sin(2 * np.pi * (positions[:, 1] - positions[:, 0] - phase))[..., None]
    data = Fields(
        positions,
        y=y,
        grid=(8, 16),
        period=(None, 1.0),
        names={"x": ["t", "x"], "y": ["height"]},
        units={"x": ["s", "m"], "y": ["m"]},
        frame="a test",
        provenance={"made": "here"},
    )
    data.save(path / "data.h5")
    task = Completion(RandomRatio(0.1, 0.3), Window("t", 0.0, 1.0))
    Operator.fit(data, task=task, epochs=2, config=tiny.LNO, progress=False).save(
        path / "m.safetensors"
    )
    (path / "sensors.csv").write_text("height,x,t,comment\n0.5,0.25,0.1,a\n-0.5,0.75,0.9,b\n")
    return path


def test_version_and_help_with_examples(run: Run) -> None:
    assert run("--version").stdout == f"lno {lno.__version__}\n"
    top = run("--help")
    assert top.returncode == 0
    for command, text in cli.COMMANDS.items():
        assert f"{command} " in top.stdout and text in " ".join(top.stdout.split())
        page = run(command, "--help")
        assert page.returncode == 0
        assert f"Usage: lno {command}" in page.stdout
        groups = {"data": ("make", "read", "info"), "reproduce": ("forward", "all", "efficiency")}
        for words in ((command, name) for name in groups.get(command, ("",))):
            shown = run(*filter(None, words), "--help").stdout
            assert f"Example: lno {' '.join(words).strip()}" in " ".join(shown.split())


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_load_neither_torch_nor_matplotlib(option: str) -> None:
    code = (
        f"import sys; from lno import cli; code = cli.run([{option!r}]); "
        "print(sorted({'torch', 'matplotlib', 'scipy', 'h5py'} & set(sys.modules)), code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] 0"


def test_the_package_runs_as_a_command() -> None:
    words = [sys.executable, "-m", "lno", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("lno ")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "1000"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "passive"}, None),
    ],
)
def test_idle_threads_sleep_soon_unless_the_user_decides(
    given: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
    monkeypatch.setattr(os, "environ", {**kept, **given})
    monkeypatch.setattr(cli, "run", lambda arguments: 0)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    with pytest.raises(SystemExit):
        cli.main()
    assert os.environ.get("GOMP_SPINCOUNT") == expected


def test_help_lists_what_the_tables_hold(run: Run) -> None:
    from lno.models import MODELS
    from lno.problems import PROBLEMS

    page = run("train", "--help").stdout
    for name in (*MODELS, *PROBLEMS, "small", "paper", "our-completer"):
        assert name in page
    page = " ".join(run("data", "make", "--help").stdout.split())
    made = [name for name, problem in PROBLEMS.items() if problem.can_make()]
    assert f"One of {', '.join(made)}." in page


def test_info_tells_what_a_file_holds(run: Run, folder: Path) -> None:
    model = run("info", folder / "m.safetensors").stdout
    for fact in (
        "height → height",
        "lno, ",
        "weights",
        "t 0 to 1",
        "period 1",
        "Completion(",
        "a test",
    ):
        assert fact in model
    data = run("info", folder / "data.h5").stdout
    for fact in ("20 samples", "8×16", "height", "digest", "made", "std"):
        assert fact in data
    assert lno.__version__ in run("info").stdout


def test_predict_writes_what_the_operator_predicts(run: Run, folder: Path, tmp_path: Path) -> None:
    done = run(
        "predict", folder / "m.safetensors", folder / "sensors.csv", "--out", tmp_path / "a.npz"
    )
    assert done.returncode == 0, done.stderr
    written = np.load(tmp_path / "a.npz")
    op = Operator.load(folder / "m.safetensors")
    expected = op.predict(
        np.array([[0.1, 0.25], [0.9, 0.75]]), np.array([[0.5], [-0.5]]), written["x_query"]
    )
    assert np.array_equal(written["y"][0], expected)
    # Without --at or --grid the prediction is on the grid of the training data.
    assert np.allclose(written["x_query"], Fields.load(folder / "data.h5").x)


def test_predict_on_a_grid_of_choice_as_csv_with_a_picture(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    done = run(
        "predict",
        folder / "m.safetensors",
        folder / "sensors.csv",
        "--grid",
        "5x6",
        "--out",
        tmp_path / "a.csv",
        "--plot",
        tmp_path / "a.png",
    )
    assert done.returncode == 0, done.stderr
    rows = (tmp_path / "a.csv").read_text().splitlines()
    assert rows[0] == "t,x,height"
    assert len(rows) == 1 + 30
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_files_that_are_read_are_never_written_over(run: Run, folder: Path, tmp_path: Path) -> None:
    for name in ("data.h5", "sensors.csv"):
        before = (folder / name).read_bytes()
        done = run("predict", folder / "m.safetensors", folder / name, "--out", folder / name)
        assert done.returncode == 1
        assert "it is read from, and would be lost" in done.stderr
        assert (folder / name).read_bytes() == before
        (tmp_path / name).symlink_to(folder / name)
        done = run("predict", folder / "m.safetensors", folder / name, "--out", tmp_path / name)
        assert done.returncode == 1 and (folder / name).read_bytes() == before
        (tmp_path / name).unlink()
    words = ("predict", folder / "m.safetensors", folder / "sensors.csv", "--out")
    done = run(*words, tmp_path / "a.csv", "--plot", tmp_path / "a.xyz")
    assert "cannot draw a .xyz file" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a.vtu", "a.nc", "a.csv", "a.npz", "a.h5"])
def test_links_to_other_places_are_written_through(
    name: str, run: Run, folder: Path, tmp_path: Path
) -> None:
    disk, out, picture = tmp_path / "disk", tmp_path / name, tmp_path / "a.png"
    disk.mkdir()
    for link in (out, picture):
        link.symlink_to(disk / link.name)
    words = ("predict", folder / "m.safetensors", folder / "sensors.csv", "--grid", "3x3")
    for _ in range(2):  # a file that is not there yet, and one that is
        assert run(*words, "--out", out, "--plot", picture).returncode == 0
        assert out.is_symlink() and picture.is_symlink()
        assert sorted(p.name for p in disk.iterdir()) == sorted([name, "a.png"])


def test_a_file_may_say_where_predictions_are_wanted(run: Run, tmp_path: Path) -> None:
    x = np.linspace(0, 1, 9)[:, None]
    u = np.random.default_rng(0).normal(size=(6, 9, 1))
    data = Fields(x, u, x_query=x[:4], y=u[:, :4], names={"x": ["s"], "u": ["f"], "y": ["g"]})
    data.save(tmp_path / "data.h5")
    Operator.fit(data, epochs=1, config=tiny.LNO, progress=False).save(tmp_path / "m.safetensors")
    other = Fields(x, u, x_query=x[:2], y=u[:, :2], names={"x": ["r"], "u": ["f"], "y": ["g"]})
    other.save(tmp_path / "other.h5")
    words = ("predict", tmp_path / "m.safetensors", tmp_path / "other.h5", "--out")
    done = run(*words, tmp_path / "p.h5")
    assert done.returncode == 0, done.stderr
    assert Fields.load(tmp_path / "p.h5").y.shape == (6, 2, 1)
    said = "x: the operator was trained with s, the data have r: they are taken in this order"
    assert said in done.stderr
    done = run("evaluate", tmp_path / "m.safetensors", "--data", tmp_path / "other.h5")
    assert said in done.stderr


def test_a_file_that_changed_is_no_test(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, u = np.linspace(0, 1, 9)[:, None], np.random.default_rng(0).normal(size=(24, 9, 1))
    Fields(x, u, y=u**2).save(tmp_path / "d.h5")
    words = ("--out", "run", "--epochs", 1, "--model", "gnot", "--device", "cpu")
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        done = run("train", "d.h5", *words)  # a model without sizes for files
    assert done.returncode == 0, done.stderr
    model = tmp_path / "run" / "model.safetensors"
    same = run("evaluate", model, "--data", tmp_path / "d.h5")
    assert same.stdout.startswith("test: relative L2") and same.stdout in done.stdout
    assert "is what it was trained on: these are its 2 test samples" in same.stderr
    (tmp_path / "d.h5").rename(tmp_path / "moved.h5")  # it is known by what it holds
    assert run("evaluate", model, "--data", tmp_path / "moved.h5").stdout == same.stdout
    again = run("train", tmp_path / "d.h5", *words, "--resume")
    assert again.returncode == 1 and "If it was moved, name its new place" in again.stderr
    Fields(x, u[:12], y=u[:12] ** 2).save(tmp_path / "d.h5")
    done = run("evaluate", model, "--data", tmp_path / "d.h5")
    assert done.returncode == 1
    assert "is not what it was when" in done.stderr
    done = run("evaluate", model)
    assert done.returncode == 1 and done.stdout == ""
    assert "was trained on a data file" in done.stderr and "--data FILE" in done.stderr
    Fields(x, y=u).save(tmp_path / "none.h5")
    done = run("train", tmp_path / "none.h5", "--out", tmp_path / "none")
    assert done.returncode == 1
    assert "nothing tells them apart" in " ".join(done.stderr.split())


def test_predict_at_points_of_choice_as_h5(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "at.csv").write_text("x,t\n0.5,0.5\n0.1,0.2\n")
    done = run(
        "predict",
        folder / "m.safetensors",
        folder / "sensors.csv",
        "--at",
        tmp_path / "at.csv",
        "--out",
        tmp_path / "a.h5",
    )
    assert done.returncode == 0, done.stderr
    written = Fields.load(tmp_path / "a.h5")
    assert written.x_query.tolist() == [[0.5, 0.5], [0.2, 0.1]]
    assert written.names["y"] == ["height"]
    assert written.units["x"] == ["s", "m"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t,x\n0,0\n", "bad.csv: expected the columns t, x, height, got t, x"),
        ("t,x,height\n0,0,one\n", "line 2, column 'height': expected a number, got 'one'"),
        (
            "t,x,height\n0,0,1\n0.5,0.5,nan\n",
            "line 3, column 'height': expected a number, got 'nan'",
        ),
        ("t,x,height\n0,0\n", "line 2: expected 3 cells as in the header, got 2"),
        ("t,x,height\n", "has no rows"),
        ("", "has no header: expected the names of its columns"),
        ("t,x,height\n0,0,1\n0,0,2\n", "are the same position [0.0, 0.0] with different u"),
    ],
)
def test_bad_sensors_are_one_clear_line(
    run: Run, folder: Path, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "bad.csv").write_text(text)
    done = run(
        "predict", folder / "m.safetensors", tmp_path / "bad.csv", "--out", tmp_path / "a.csv"
    )
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "a.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["info", "missing.safetensors"], 1, "missing.safetensors does not exist"),
        (["info", "sensors.csv"], 1, "expected a model (.safetensors) or a data file (.h5)"),
        (["info", "bomb.h5"], 1, "pickles can run any code and are never opened"),
        (["info", "cut.safetensors"], 1, "cut.safetensors is damaged or not"),
        (
            ["predict", "m.safetensors", "sensors.csv", "--out", "a.txt"],
            1,
            "ending in .vtu, .nc, .csv, .npz or .h5",
        ),
        (["predict", "m.safetensors", "none.csv", "--out", "a.csv"], 1, "none.csv does not exist"),
        (["predict", "data.h5", "sensors.csv", "--out", "a.csv"], 1, "is not a model file"),
        (
            ["predict", "m.safetensors", "sensors.csv", "--out", "a.csv", "--grid", "5"],
            1,
            "like 64x64",
        ),
        (
            ["predict", "m.safetensors", "sensors.csv", "--out", "a.csv", "--device", "warp"],
            1,
            "'warp'",
        ),
        (
            ["predict", "m.safetensors", "sensors.csv", "--out", "sensors.csv/a.csv"],
            1,
            "cannot write sensors.csv/a.csv",
        ),
        (["predict", "m.safetensors"], 2, "Missing argument"),
        (["dance"], 2, "No such command"),
        (["quickstart", "--seed", "-1"], 2, "Invalid value"),
        (["quickstart", "--out", "sensors.csv"], 1, "cannot write into sensors.csv"),
    ],
)
def test_mistakes_are_one_clear_line(
    run: Run,
    folder: Path,
    arguments: list[str],
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    (folder / "bomb.h5").write_bytes(b"\x80\x04cposix\nsystem\n")
    (folder / "cut.safetensors").write_bytes((folder / "m.safetensors").read_bytes()[:-10])
    done = run(*arguments)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_debug_shows_the_traceback(run: Run, folder: Path) -> None:
    words: list[object] = ["info", folder / "missing.h5"]
    for place in range(3):
        done = run(*words[:place], "--debug", *words[place:])
        assert done.returncode == 1
        assert "Traceback" in done.stderr


def test_warnings_are_one_line(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "far.csv").write_text("t,x,height\n7,0,1\n")
    done = run(
        "predict", folder / "m.safetensors", tmp_path / "far.csv", "--out", tmp_path / "a.csv"
    )
    assert done.returncode == 0
    assert done.stderr.startswith("warning: 1 of 1 observed positions lie outside")


def test_info_tells_how_long_training_was(run: Run, folder: Path) -> None:
    shown = run("info", folder / "m.safetensors").stdout
    assert "10 steps (2 epochs)" in shown  # 18 samples in batches of 4
    assert "digest" in shown and "sha256" not in shown
    data = " ".join(run("data", "info", folder / "data.h5").stdout.split())
    assert "period none, 1 " in data


def test_info_of_data_without_a_period(run: Run, tmp_path: Path) -> None:
    Fields(np.zeros((1, 1)), np.zeros((2, 1, 1))).save(tmp_path / "a.h5")
    shown = " ".join(run("data", "info", tmp_path / "a.h5").stdout.split())
    assert "grid none" in shown and "period none" in shown
