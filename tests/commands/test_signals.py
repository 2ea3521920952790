"""What the machine does to commands: signals, full disks, shells."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lno import cli
from lno.commands import console

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
        (OSError("No space left on device. Choose one that has room."), "has room. The disk is"),
        (OSError("No space left on device: make room and resume."), "make room and resume.\n"),
        (MemoryError(), "error: not enough memory"),
        (KeyboardInterrupt(), "interrupted: no file is half-written"),
    ],
)
def test_what_the_machine_refuses_is_no_bug(
    error: BaseException,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("lno.commands.info.describe_installation", fail)
    code = cli.run(["info"])
    said = capsys.readouterr().err
    assert code == (130 if isinstance(error, KeyboardInterrupt) else 1)
    assert message in said and "bug" not in said


@pytest.mark.parametrize("called", ["lno/cli.py", "bin/lno"])
def test_commands_to_paste_are_shell_commands(
    called: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "two words" / called), "train"])
    monkeypatch.setenv("PATH", str(tmp_path))
    words = shlex.split(console.command("report", tmp_path / "a b"))
    assert words[-2:] == ["report", str(tmp_path / "a b")]
    if called.endswith(".py"):
        assert words[:-2] == [sys.executable, "-m", "lno"]
    else:
        assert words[:-2] == [str(tmp_path / "two words" / called)]


def test_ctrl_c_during_quickstart_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"the previous one")
    # Fewer samples, and fewer at a time: those in work are solved before the process ends.
    code = """
from lno import cli, problems
from lno.experiments import quickstart
problems.Burgers.batch, quickstart.TRAIN = 256, 128
cli.main()
"""
    command = [sys.executable, "-c", code, "quickstart", "--out", str(tmp_path)]
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
