from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import lno
<<<<<<< HEAD
from lno import Completion, Fields, Operator, RandomRatio, Window, cli, operator_file
from lno.commands import console
=======
from lno import Completion, Fields, Operator, RandomRatio, Window, cli
>>>>>>> wt-inputs


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process."""

    def call(*arguments: object) -> Done:
        capsys.readouterr()
        code = cli.run([str(a) for a in arguments])
        return Done(code, *capsys.readouterr())

    return call


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
    config = {"width": 16, "latents": 8, "blocks": 1, "heads": 2, "layers": 1}
    Operator.fit(data, task=task, epochs=2, config=config, progress=False).save(
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
        "completion",
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
    answer = np.load(tmp_path / "a.npz")
    op = Operator.load(folder / "m.safetensors")
    expected = op.predict(
        np.array([[0.1, 0.25], [0.9, 0.75]]), np.array([[0.5], [-0.5]]), answer["x_query"]
    )
    assert np.array_equal(answer["y"][0], expected)
    # Without --at or --grid the answer is on the grid of the training data.
    assert np.allclose(answer["x_query"], Fields.load(folder / "data.h5").x)


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
    words = ("predict", folder / "m.safetensors", folder / "sensors.csv", "--out")
    done = run(*words, tmp_path / "a.csv", "--plot", tmp_path / "a.xyz")
    assert "cannot draw a .xyz file" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_file_may_say_where_predictions_are_wanted(run: Run, tmp_path: Path) -> None:
    x = np.linspace(0, 1, 9)[:, None]
    u = np.random.default_rng(0).normal(size=(6, 9, 1))
    data = Fields(x, u, x_query=x[:4], y=u[:, :4], names={"x": ["s"], "u": ["f"], "y": ["g"]})
    data.save(tmp_path / "data.h5")
    config = {"width": 16, "latents": 8, "blocks": 1, "heads": 2, "layers": 1}
    Operator.fit(data, epochs=1, config=config, progress=False).save(tmp_path / "m.safetensors")
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
    answer = Fields.load(tmp_path / "a.h5")
    assert answer.x_query.tolist() == [[0.5, 0.5], [0.2, 0.1]]
    assert answer.names["y"] == ["height"]
    assert answer.units["x"] == ["s", "m"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t,x\n0,0\n", "line 1: expected the columns t, x, height, got t, x"),
        ("t,x,height\n0,0,one\n", "line 2, column 'height': expected a number, got 'one'"),
        (
            "t,x,height\n0,0,1\n0.5,0.5,nan\n",
            "line 3, column 'height': expected a number, got 'nan'",
        ),
        ("t,x,height\n0,0\n", "line 2: expected 3 cells, got 2"),
        ("t,x,height\n", "has no rows"),
        ("", "line 1: expected the columns"),
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
            "ending in .csv, .npz or .h5",
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


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_said(run: Run, folder: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    done = run(
        "predict", folder / "m.safetensors", folder / "sensors.csv", "--out", tmp_path / "a.csv"
    )
    assert done.returncode == 1
    assert "cannot write" in done.stderr


def test_a_file_in_place_of_a_folder_is_said(run: Run, folder: Path) -> None:
    out = folder / "sensors.csv" / "a.csv"
    done = run("predict", folder / "m.safetensors", folder / "sensors.csv", "--out", out)
    assert done.returncode == 1
    assert "cannot write" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_during_quickstart_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"the previous one")
    command = [sys.executable, "-m", "lno.cli", "quickstart", "--out", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "making data" in line:
                break
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(60) == 130
    assert "interrupted" in said
    assert "Traceback" not in said
    assert (tmp_path / "model.safetensors").read_bytes() == b"the previous one"
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


<<<<<<< HEAD
SLOW = """
import sys, time, types
from lno import cli
from lno.commands.console import new_app
module = types.ModuleType("slow")
module.app = new_app()
def info():
    try:
        print("working", flush=True)
        time.sleep(60)
    finally:
        print("saving", flush=True)
        time.sleep({seconds})
module.app.command()(info)
sys.modules["lno.commands.info"] = module
sys.argv = ["lno", "info"]
cli.main()
"""


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_time_to_save_and_a_second_one_does_not(
    number: signal.Signals, times: int
) -> None:
    command = [sys.executable, "-c", SLOW.format(seconds=0 if times == 1 else 60)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().strip() == "working"
        process.send_signal(number)
        assert process.stdout.readline().strip() == "saving"
        if times == 2:
            process.send_signal(number)
        assert process.wait(20) == 130
        said = process.stderr.read()
    assert said.startswith("interrupted: no file is half-written") if times == 1 else said == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lno.cli", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and "The disk is full: make room" in done.stderr
    assert done.stderr.count("\n") == 1


class LibraryError(Exception):
    """The error of a library that wraps those of the system."""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device"), "The disk is full: make room"),
        (LibraryError("I/O error: No space left on device (os error 28)"), "The disk is full"),
        (MemoryError(), "error: not enough memory"),
        (KeyboardInterrupt(), "interrupted: no file is half-written"),
    ],
)
def test_what_the_machine_refuses_is_no_bug(
    error: BaseException, message: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("lno.commands.info.describe_installation", fail)
    done = run("info")
    assert done.returncode == (130 if isinstance(error, KeyboardInterrupt) else 1)
    assert message in done.stderr and "bug" not in done.stderr


@pytest.mark.parametrize("called", ["lno/cli.py", "bin/lno"])
def test_commands_to_paste_are_shell_commands(
    called: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shlex

    monkeypatch.setattr(sys, "argv", [str(tmp_path / "two words" / called), "train"])
    monkeypatch.setenv("PATH", str(tmp_path))
    words = shlex.split(console.command("report", tmp_path / "a b"))
    assert words[-2:] == ["report", str(tmp_path / "a b")]
    if called.endswith(".py"):
        assert words[:-2] == [sys.executable, "-m", "lno.cli"]
    else:
        assert words[:-2] == [str(tmp_path / "two words" / called)]


ESCAPE = "\x1b]0;owned\x07\x1b[31m\u202e"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data and a model whose texts are terminal escapes."""
    path = tmp_path_factory.mktemp("hostile")
    x, u = np.linspace(0, 1, 6)[:, None], np.random.default_rng(0).normal(size=(6, 6, 1))
    texts = {"names": {"x": [f"x{ESCAPE}"], "u": [f"[red]u{ESCAPE}"], "y": [f"y{ESCAPE}\n\r"]}}
    texts["units"] = {"x": [ESCAPE], "u": [ESCAPE], "y": [ESCAPE]}
    data = Fields(x, u, y=u, **texts, frame=ESCAPE, provenance={ESCAPE: ESCAPE})
    data.save(path / "data.h5")
    config = {"width": 8, "latents": 4, "blocks": 1, "heads": 2, "layers": 1}
    Operator.fit(data, epochs=1, config=config, progress=False).save(path / "m.safetensors")
    Fields(x, u, y=u, names={"x": ["r"], "u": ["v"], "y": ["w"]}).save(path / "other.h5")
    (path / "a.csv").write_text("x,y\n1,2\n")
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("info", "data.h5"),
        ("data", "info", "data.h5"),
        ("info", "m.safetensors"),
        ("evaluate", "m.safetensors", "--data", "other.h5"),  # warnings name coordinates
        ("predict", "m.safetensors", "a.csv", "--out", "b.csv"),  # an error names columns
        ("predict", "m.safetensors", "data.h5", "--out", "p.h5"),
        ("--debug", "predict", "m.safetensors", "a.csv", "--out", "b.csv"),
        ("train", f"no{ESCAPE}", "--out", "run"),
        (f"{ESCAPE}",),
    ],
)
def test_text_of_files_never_reaches_the_terminal_raw(
    words: tuple[str, ...], run: Run, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(hostile)
    done = run(*words)
    printed = done.stdout + done.stderr
    assert not set(printed) & set("\x1b\x07\r\u202e")
    assert "\\x1b]0;owned\\x07" in printed


def test_names_are_no_markup(run: Run, hostile: Path) -> None:
    assert "[red]u" in run("info", hostile / "data.h5").stdout


def with_provenance(folder: Path, tmp_path: Path, provenance: dict) -> Path:
    operator = Operator.load(folder / "m.safetensors", "cpu")
    operator.provenance.update(provenance)
    path = tmp_path / "m.safetensors"
    with pytest.MonkeyPatch.context() as patch:  # a hostile file need not be written by us
        patch.setattr(operator_file, "_require_provenance", lambda found: None)
        operator.save(path)
    return path


def test_a_path_that_a_model_names_is_not_opened(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe.h5")  # reading it would wait for ever
    named = {"problem": "x", "protocol": "standard", "recipe": "small", "test_digest": "0"}
    named["data"] = str(tmp_path / "pipe.h5")
    model = with_provenance(folder, tmp_path, {"run": named})
    opened = []
    monkeypatch.setattr("lno.data.store.load", lambda path, **_: opened.append(path))
    done = run("evaluate", model)
    assert not opened
    assert done.returncode == 1 and "--data FILE" in done.stderr


@pytest.mark.parametrize(
    "run_of",
    [
        5,
        [],
        {},
        {"problem": 5, "protocol": 5, "data": 5, "test_digest": 5},
        {"problem": ["darcy"], "protocol": "standard", "data": None, "test_digest": "0"},
        {"problem": "../..", "protocol": "standard", "data": None, "test_digest": "0"},
        {"problem": "darcy", "protocol": "../..", "data": None, "test_digest": "0"},
        {"problem": "elasticity", "protocol": "standard", "data": None, "test_digest": "0"},
    ],
)
def test_malformed_provenance_is_no_bug(
    run_of: object, run: Run, folder: Path, tmp_path: Path
) -> None:
    model = with_provenance(folder, tmp_path, {"run": run_of})
    done = run("evaluate", model)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and "bug" not in done.stderr


@pytest.mark.parametrize(
    "change",
    [
        {"data": 5},
        {"data": {}},
        {"data": {"digest": 5}},
        {"curve": [5]},
        {"curve": [{}]},
        {"steps": "many"},
        {"epochs": None},
        {"recipe": None},
    ],
)
def test_info_names_what_is_wrong_with_a_provenance(
    change: dict, run: Run, folder: Path, tmp_path: Path
) -> None:
    done = run("info", with_provenance(folder, tmp_path, change))
    assert done.returncode == 1
    assert f"m.safetensors: provenance.{next(iter(change))}" in done.stderr
    assert "bug" not in done.stderr


=======
>>>>>>> wt-inputs
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
