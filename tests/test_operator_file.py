"""Model files: damage is noticed, and nothing that a file says is believed unchecked."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import lno
from lno import Fields, Operator, Rollout
from lno.files import UNSEALED, seal
from lno.operator_file import KEY, VERSION

SHIPPED = sorted(Path(lno.__file__).parent.glob("pretrained/*/*.safetensors"))
Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small operator in a file."""
    x = np.linspace(0, 3, 24)[:, None]
    a = np.linspace(0.5, 2, 12)[:, None, None]
    data = Fields(x, u=a * np.sin(x), y=a * np.cos(x), grid=(24,), names={"u": ["f"]})
    path = tmp_path_factory.mktemp("models") / "a.safetensors"
    Operator.fit(data, epochs=1, config=tiny.LNO, progress=False, device="cpu").save(path)
    return path


def resealed(
    source: Path, folder: Path, change: Change, weights: dict[str, torch.Tensor] | None = None
) -> Path:
    """The file with changed content and a digest that fits: what an attacker would make."""
    with safe_open(source, "pt") as file:
        content = json.loads(file.metadata()[KEY])
    content["digest"] = UNSEALED
    content = change(content) or content
    path = folder / "changed.safetensors"
    save_file(weights or load_file(source), path, {KEY: json.dumps(content)})
    seal(path)
    return path


def refuse(path: Path) -> str:
    with pytest.raises(ValueError, match=re.escape(str(path))) as caught:
        Operator.load(path, "cpu")
    message = str(caught.value)
    for unclear in ("KeyError", "TypeError", "AttributeError", "IndexError", "RecursionError"):
        assert unclear not in message
    return message


def test_a_changed_bit_anywhere_is_noticed(saved: Path, tmp_path: Path) -> None:
    whole, path = saved.read_bytes(), tmp_path / "a.safetensors"
    random = np.random.default_rng(0)
    header = 8 + int.from_bytes(whole[:8], "little")
    places = [*random.integers(0, header, 40), *random.integers(header, len(whole), 80)]
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1 << int(random.integers(8))
        path.write_bytes(changed)
        message = refuse(path)
        assert place < header or "does not match its digest" in message


def test_the_digest_is_that_of_the_file_with_zeros_in_its_place(saved: Path) -> None:
    """As documented, so that others can check it."""
    with safe_open(saved, "pt") as file:
        digest = json.loads(file.metadata()[KEY])["digest"]
    blank = saved.read_bytes().replace(digest.encode(), UNSEALED.encode())
    assert hashlib.sha256(blank).hexdigest() == digest


def test_saving_again_gives_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    Operator.load(saved).save(tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == saved.read_bytes()


def test_a_file_that_changes_later_does_not_change_the_operator(
    saved: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(saved.read_bytes())
    operator = Operator.load(path, "cpu")
    before = [w.clone() for w in operator.model.state_dict().values()]
    with path.open("r+b") as file:
        file.seek(-2000, 2)
        file.write(bytes(2000))
    after = operator.model.state_dict().values()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(
    saved: Path, tmp_path: Path, value: float
) -> None:
    for name, weight in load_file(saved).items():
        weights = {**load_file(saved), name: weight.clone()}
        weights[name].view(-1)[-1] = value
        path = resealed(saved, tmp_path, lambda content: None, weights)
        assert f"weight {name}: 1 of {weight.numel()} values are not finite" in refuse(path)
    operator = Operator.load(saved, "cpu")
    weight = next(operator.model.parameters())
    weight.data.view(-1)[0] = value
    with pytest.raises(ValueError, match=r"1 of .* values are not finite"):
        operator.save(tmp_path / "b.safetensors")
    weight.data.fill_(3e38)  # finite, though their sum is not
    operator.save(tmp_path / "b.safetensors")
    assert (Operator.load(tmp_path / "b.safetensors", "cpu").model.state_dict().keys()) == (
        load_file(saved).keys()
    )


def put(place: str, value: Any) -> Change:
    """Set a value inside of the content, like "labels.grid"."""

    def change(content: dict[str, Any]) -> None:
        *path, last = place.split(".")
        for key in path:
            content = content[key]
        content[last] = value

    return change


def forget(place: str) -> Change:
    def change(content: dict[str, Any]) -> None:
        *path, last = place.split(".")
        for key in path:
            content = content[key]
        del content[last]

    return change


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


KEYS = ("digest", "version", "model", "members", "spec", "config", "task", "normalizers", "labels")
KEYS += ("conditional", "weighted", "query_set", "provenance")
WRONG: list[tuple[str, Any, str]] = [
    ("version", VERSION + 1, f"version {VERSION + 1}, this lno reads up to {VERSION}: update"),
    ("labels.grid", [300_000_000], "labels.grid: expected positive sizes of at most 100,000,000"),
    ("labels.grid", [10**5, 10**5], "labels.grid: expected positive sizes"),
    ("labels.grid", [0], "labels.grid: expected positive sizes"),
    ("labels.grid", [], "labels.grid: expected positive sizes"),
    ("labels.grid", [2.5], "labels.grid: expected a list of whole numbers or null"),
    ("labels.grid", "24", "labels.grid: expected a list of whole numbers or null"),
    ("labels.names", {}, "labels.names: expected x, u and y"),
    ("labels.names", {"x": "t", "u": [], "y": []}, "labels.names: expected a mapping"),
    ("labels.names.x", ["a", "b"], "labels.units: expected 2 of x"),
    ("labels.names.y", [1], "labels.names: expected a mapping of texts to lists of texts"),
    ("labels.units", None, "labels.units: expected a mapping"),
    ("labels.frame", 5, "labels.frame: expected a text"),
    ("labels.low", [0.0, 1.0], "labels.low: expected 1 finite numbers"),
    ("labels.low", [float("nan")], "labels.low: expected 1 finite numbers"),
    ("labels.low", [100.0], "labels: expected low <= high"),
    ("labels.high", "x", "labels.high: expected a list of numbers"),
    ("labels.space", 2, "labels.space must be a whole number from 1 to 1"),
    ("labels.space", None, "labels.space must be a whole number"),
    ("spec.grid", [300_000_000], "spec.grid: expected positive sizes"),
    ("spec.grid", 7, "Spec.grid: expected a list of whole numbers or null"),
    ("spec", [], "Content.spec: expected a mapping"),
    ("config", None, "Content.config: expected a mapping"),
    ("config.width", "16", "width must be a whole number"),
    ("members", 10**6, "members must be a whole number from 1 to 1024"),
    ("members", 2, "weight"),
    ("model", ["lno"], "Content.model: expected a text"),
    ("model", None, "Content.model: expected a text"),
    ("task", [], "Content.task: expected a mapping"),
    ("task", {"kind": "rollout", "frames": 3}, "labels.names: expected 3 of y"),
    ("task", {"kind": "rollout", "frames": 10**9}, "Rollout.frames"),
    ("task", {"kind": "snapshots", "times": 10**9}, "Snapshots.times"),
    ("task", {"kind": "snapshots", "times": 3}, "coordinates must be a whole number"),
    ("task", {"kind": "completion", "pattern": None, "window": None}, "Completion.pattern"),
    ("task", {"kind": "completion", "pattern": 5, "window": None}, "expected 'kind'"),
    ("task", {"kind": "propagation", "window": None}, "Propagation.window"),
    (
        "task",
        {"kind": "propagation", "window": {"coordinate": "q", "low": 0, "high": 1}},
        "the coordinates are x0",
    ),
    (
        "task",
        {"kind": "propagation", "window": {"coordinate": 3, "low": "a", "high": 1}},
        "Window.coordinate: expected a text",
    ),
    ("normalizers", None, "Content.normalizers: expected a mapping"),
    ("normalizers.x", None, "normalizers.x.mean: expected a list of numbers"),
    ("normalizers.x.mean", ["a"], "normalizers.x.mean: expected a list of numbers"),
    ("normalizers.x.period", 3, "normalizers.x.period: expected a list"),
    ("normalizers.x.period", [-1.0], "expected 1 positive periods or None"),
    ("normalizers.x.space", "all", "normalizers.x.space: expected a whole number or null"),
    ("normalizers.u", {"mean": [], "std": []}, "normalisers for"),
    ("normalizers.y.std", [float("inf")], "expected positive standard deviations"),
    ("normalizers.parameters", {"mean": [0.0]}, "normalizers.parameters.std: expected a list"),
    ("conditional", 1, "expected true or false"),
    ("query_set", "all", "Content.query_set: expected a whole number or null"),
    ("query_set", 10**12, "query_set must be a whole number"),
    ("provenance", [], "Content.provenance: expected a mapping"),
    ("provenance", None, "Content.provenance: expected a mapping"),
    ("provenance.seed", "0", "provenance.seed: expected a whole number"),
    ("provenance.seconds", None, "provenance.seconds: expected a number"),
    ("provenance.data", [], "provenance.data: expected a mapping"),
    ("provenance.data", {}, "provenance.data needs the key 'digest'"),
    ("provenance.data.digest", 5, "provenance.data.digest: expected a text"),
    ("provenance.curve", {}, "provenance.curve: expected a list of mappings"),
    ("provenance.curve", [{"step": 1}], "provenance.curve needs the key 'seconds'"),
    ("provenance.run", {"problem": "darcy"}, "provenance.run needs the key 'protocol'"),
    ("provenance.init", {"finished": True}, "provenance needs the key 'lno'"),
    ("provenance.init", 3, "provenance.init: expected a mapping"),
    ("provenance.note", nested(300), "nested deeper than 200 levels"),
    ("surprise", 1, "Content has no key 'surprise'"),
]


@pytest.mark.parametrize(("place", "value", "message"), WRONG, ids=range(len(WRONG)))
def test_values_that_cannot_be_are_refused(
    saved: Path, tmp_path: Path, place: str, value: Any, message: str
) -> None:
    assert message in refuse(resealed(saved, tmp_path, put(place, value)))


@pytest.mark.parametrize("key", [k for k in KEYS if k not in ("digest", "version")])
def test_missing_keys_are_named(saved: Path, tmp_path: Path, key: str) -> None:
    assert f"needs the key {key!r}" in refuse(resealed(saved, tmp_path, forget(key)))
    for inner in ("seed", "curve", "lno", "hardware", "recipe", "steps"):
        path = resealed(saved, tmp_path, forget(f"provenance.{inner}"))
        assert f"provenance needs the key {inner!r}" in refuse(path)


def test_a_file_without_a_digest_is_refused(saved: Path, tmp_path: Path) -> None:
    with safe_open(saved, "pt") as file:
        content = json.loads(file.metadata()[KEY])
    path = tmp_path / "a.safetensors"
    for left in (content, {k: v for k, v in content.items() if k != "digest"}):
        save_file(load_file(saved), path, {KEY: json.dumps(dict(reversed(left.items())))})
        assert "does not match its digest" in refuse(path)


def test_json_too_deep_for_python_is_a_clear_error(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file(load_file(saved), path, {KEY: '{"version": 3, "a": ' + "[" * 100_000})
    assert "nested deeper than 200 levels" in refuse(path)
    header = b'{"__metadata__":' + b'{"a":' * 10_000
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    assert "nested deeper than 200 levels" in refuse(path)


def test_a_rollout_is_still_loaded(tmp_path: Path) -> None:
    x, random = np.linspace(0, 1, 9)[:, None], np.random.default_rng(0)
    data = Fields(x, random.normal(size=(8, 9, 4)), y=random.normal(size=(8, 9, 6)))
    keys = {"task": Rollout(3, channels=2), "config": tiny.LNO, "progress": False, "device": "cpu"}
    operator = Operator.fit(data, epochs=1, members=2, **keys)
    operator.save(tmp_path / "a.safetensors")
    loaded = Operator.load(tmp_path / "a.safetensors", "cpu")
    np.testing.assert_array_equal(loaded.predict(data), operator.predict(data))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_shipped_models_are_whole(path: Path) -> None:
    assert Operator.load(path, "cpu").parameters > 10**6
    with safe_open(path, "pt") as file:
        assert list(file.metadata()) == [KEY]


def test_what_could_not_be_loaded_is_not_saved(saved: Path, tmp_path: Path) -> None:
    operator = Operator.load(saved, "cpu")
    operator.provenance["run"] = "today"
    with pytest.raises(ValueError, match=r"provenance\.run: expected a mapping"):
        operator.save(tmp_path / "b.safetensors")
    assert not (tmp_path / "b.safetensors").exists()
