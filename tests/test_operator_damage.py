"""Model files that were changed, damaged or never finished, and pickles."""

from __future__ import annotations

import ast
import json
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import lno.operator
from lno import Operator
from lno.operator_file import KEY, VERSION


def rewrite(path: Path, change: dict[str, object], metadata: dict[str, str]) -> Path:
    """The file with parts of its JSON or its metadata changed."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        found = dict(file.metadata())
    content = json.loads(found[KEY])
    for key, value in change.items():
        target, *inner = key.split(".")
        if inner:
            content[target][inner[0]] = value
        else:
            content[target] = value
    new = path.with_name("changed.safetensors")
    save_file(load_file(path), new, metadata or {KEY: json.dumps(content)})
    return new


@pytest.mark.parametrize(
    ("change", "metadata", "message"),
    [
        ({}, {"format": "other"}, "its metadata lack the key 'lno.operator'"),
        ({"version": VERSION + 1}, {}, f"this lno reads up to {VERSION}: update"),
        ({"version": "x"}, {}, "format version must be a whole number"),
        ({"version": 1}, {}, "Train the model again"),
        ({}, {KEY: "{"}, "Expecting property name"),
        ({}, {KEY: "[]"}, "damaged or not"),
        ({}, {KEY: "[" * 100_000}, "damaged or not"),
        ({"model": "gpt"}, {}, "'gpt', which this lno does not have"),
        ({"config.width": 10**9}, {}, "width must be a whole number from 1 to 8192"),
        ({"config.width": 4096}, {}, "weight trunk.input.weight: expected"),
        ({"config.surprise": 1}, {}, "LNOConfig has no key 'surprise'"),
        ({"config.blocks": 2}, {}, "weight blocks.1"),
        ({"normalizers": {}}, {}, "damaged or not"),
        (
            {"normalizers.y": {"mean": [0.0], "std": [0.0]}},
            {},
            "expected positive standard deviations",
        ),
        ({"normalizers.y": {"mean": [0.0, 1.0], "std": [1.0, 1.0]}}, {}, "do not fit the model"),
        ({"task": {"kind": "mystery"}}, {}, "expected 'kind' to be one of steady"),
        ({"labels": None}, {}, "Labels expects a mapping"),
        ({"conditional": "yes"}, {}, "expected true or false"),
        ({"conditional": True}, {}, "can be conditioned on"),
        ({"query_set": -1}, {}, "query_set must be a whole number"),
        ({"spec.out_channels": -5}, {}, "out_channels"),
    ],
)
def test_changed_files_are_refused(
    operator: Operator, tmp_path: Path, change: dict, metadata: dict, message: str
) -> None:
    operator.save(tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=message) as caught:
        Operator.load(rewrite(tmp_path / "a.safetensors", change, metadata))
    assert "changed.safetensors" in str(caught.value)


def test_missing_and_foreign_weights_are_refused(operator: Operator, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    operator.save(path)
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    weights = load_file(path)
    save_file({**weights, "extra": torch.zeros(1)}, path, metadata)
    with pytest.raises(ValueError, match="weight extra does not belong"):
        Operator.load(path)
    save_file({k: v.double() for k, v in weights.items()}, path, metadata)
    with pytest.raises(ValueError, match=r"expected .* torch.float32, got .* torch.float64"):
        Operator.load(path)
    save_file(weights, path)
    with pytest.raises(ValueError, match="its metadata lack the key"):
        Operator.load(path)


def test_damaged_files_are_refused(operator: Operator, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    operator.save(path)
    whole = path.read_bytes()
    for kept in (0, 1, 8, 9, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:kept])
        with pytest.raises(ValueError, match="a\\.safetensors"):
            Operator.load(path)
    path.write_bytes(np.random.default_rng(0).bytes(5000))
    with pytest.raises(ValueError, match="a\\.safetensors"):
        Operator.load(path)
    with pytest.raises(FileNotFoundError, match="does not exist: expected a model file"):
        Operator.load(tmp_path / "missing.safetensors")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        Operator.load(tmp_path)


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple:
            return open, (str(tmp_path / "boom"), "w")

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        (tmp_path / "bomb.safetensors").write_bytes(pickle.dumps(Bomb(), protocol))
        with pytest.raises(ValueError, match=r"bomb\.safetensors"):
            Operator.load(tmp_path / "bomb.safetensors")
    torch.save({"weights": torch.zeros(3)}, tmp_path / "torch.safetensors")
    with pytest.raises(ValueError, match="pickles can run any code and are never opened"):
        Operator.load(tmp_path / "torch.safetensors")
    assert not (tmp_path / "boom").exists()


def test_the_package_has_no_way_to_unpickle() -> None:
    for source in Path(lno.operator.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                assert not {"pickle", "dill", "joblib", "cloudpickle"} & set(names), source
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                assert name not in {"torch.load", "eval", "exec"}, source
                keywords = {k.arg: ast.unparse(k.value) for k in node.keywords}
                if name == "np.load":
                    assert keywords["allow_pickle"] == "False", source


def test_a_killed_save_leaves_the_old_file(operator: Operator, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    operator.save(path)
    before = path.read_bytes()
    script = textwrap.dedent(f"""
        import os, lno
        from lno import operator_file
        op = lno.Operator.load({str(path)!r})
        real = operator_file.save_file
        def half(weights, target, metadata):
            real(weights, target, metadata)
            with open(target, "r+b") as file:
                file.truncate(os.path.getsize(target) // 2)
            target.with_name(".tmpZCAh8X").touch()  # as safetensors leaves it
            os.kill(os.getpid(), 9)
        operator_file.save_file = half
        op.save({str(path)!r})
    """)
    done = subprocess.run([sys.executable, "-c", script], check=False)
    assert done.returncode == -9
    assert path.read_bytes() == before
    operator.save(path)
    assert list(tmp_path.iterdir()) == [path]  # nothing of the dead process is left


def test_a_save_that_fails_says_why_and_keeps_the_old_file(
    operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.safetensors"
    operator.save(path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lno.operator_file.save_file", full)
    with pytest.raises(OSError, match=r"cannot write .*a\.safetensors: No space left"):
        operator.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
