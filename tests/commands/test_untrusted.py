"""Files that were made to do harm, or whose content is not what lno writes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from command_line import Run

from lno import Fields, Operator, operator_file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small operator and its data."""
    path = tmp_path_factory.mktemp("untrusted")
    x, u = np.linspace(0, 1, 6)[:, None], np.random.default_rng(0).normal(size=(6, 6, 1))
    data = Fields(x, u, y=u**2, names={"u": ["height"], "y": ["height"]})
    data.save(path / "data.h5")
    config = {"width": 8, "latents": 4, "blocks": 1, "heads": 2, "layers": 1}
    Operator.fit(data, epochs=1, config=config, progress=False).save(path / "m.safetensors")
    return path


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
