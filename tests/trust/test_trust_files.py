"""Calibration in model files: kept bit-for-bit, validated when it is loaded, and asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from small_operators import Trained

from lno import Fields, Operator
from lno.files import UNSEALED, seal
from lno.operator_file import KEY
from lno.trust import Trust, check


def resealed(source: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The file with changed content and a digest that fits."""
    with safe_open(source, "pt") as file:
        content = json.loads(file.metadata()[KEY])
    content["digest"] = UNSEALED
    change(content)
    path = source.with_name("changed.safetensors")
    save_file(load_file(source), path, {KEY: json.dumps(content)})
    seal(path)
    return path


@pytest.mark.parametrize("half", [False, True])
def test_calibration_survives_the_file_bit_for_bit(
    line: Trained, tmp_path: Path, half: bool
) -> None:
    path = tmp_path / "a.safetensors"
    line.operator.save(path, half=half)
    loaded = Operator.load(path, "cpu")
    assert loaded.trust == line.operator.trust
    before, after = (op.predict(line.test, bounds=0.9) for op in (line.operator, loaded))
    if half:  # the weights are others, and bounds contain as much as before
        assert min(check(loaded, line.test).contained) > 0.87
        return
    for key in ("prediction", "lower", "upper"):
        assert np.array_equal(getattr(before, key), getattr(after, key))
    assert before.scores == after.scores
    loaded.save(tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == path.read_bytes()
    bare = replace(line.operator, trust=Trust())
    bare.save(tmp_path / "bare.safetensors")
    size = path.stat().st_size - (tmp_path / "bare.safetensors").stat().st_size
    assert size < 20_000


def test_files_of_earlier_versions_are_loaded_without_bounds(line: Trained, tmp_path: Path) -> None:
    line.operator.save(tmp_path / "a.safetensors")
    old = Operator.load(resealed(tmp_path / "a.safetensors", lambda c: c.pop("trust")), "cpu")
    assert old.trust == Trust()
    assert np.array_equal(old.predict(line.test), line.operator.predict(line.test))
    with pytest.raises(ValueError, match=r"bounds: .* not calibrated.*operator\.calibrated\(held"):
        old.predict(line.test, bounds=0.9)


def put(place: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        *path, last = ["trust", *place.split(".")] if place else ["trust"]
        for key in path:
            content = content[key]
        content[last] = value

    return change


WRONG: list[tuple[str, Any, str]] = [
    ("", 5, "Content.trust: expected a mapping"),
    ("", None, "Content.trust: expected a mapping"),
    ("", {}, "Trust needs the key 'reference'"),
    ("surprise", 1, "Trust has no key 'surprise'"),
    ("reference", 7, "Reference expects a mapping"),
    ("reference", None, "expected a reference that the scores refer to"),
    ("reference.samples", 0, "Reference.samples"),
    ("reference.low", [0.0], "as many of both"),
    ("reference.low", ["a"], "Reference.low: expected a list of numbers"),
    ("reference.mean", [float("nan")], "Reference.mean: expected finite numbers"),
    ("reference.mean", [1.0], "Reference.components: expected"),
    ("reference.rest", 0.0, "Reference.rest"),
    ("reference.rest", float("inf"), "Reference.rest"),
    ("thresholds", [], "Trust.thresholds"),
    ("thresholds", {"latent": -1.0}, "Trust.thresholds['latent']"),
    ("thresholds", {"latent": float("nan")}, "Trust.thresholds['latent']"),
    ("thresholds", {"charm": 1.0}, "no score 'charm'"),
    ("bounds", [], "Trust.bounds: expected a mapping"),
    ("bounds", {}, "Widths expects a mapping"),
    ("bounds.level", 0.99, "need at least 99 held-out fields"),
    ("bounds.level", 2.0, "Bounds.level"),
    ("bounds.samples", 3, "need at least 9 held-out fields, got 3"),
    ("bounds.factors", [1.0], "Bounds.factors: expected 2 numbers"),
    ("bounds.factors", [1.0, -1.0], "Bounds.factors: expected 2 numbers of at least 0"),
    ("bounds.factors", [1.0, float("inf")], "Bounds.factors: expected finite"),
    ("bounds.widths", 3, "Widths expects a mapping"),
    ("bounds.widths.cells", [10**9], "Widths.cells[0]"),
    ("bounds.widths.cells", [2, 2], "Widths.profile: expected 4 numbers"),
    ("bounds.widths.profile", [], "Widths.profile: expected 32 numbers"),
    ("bounds.widths.weights", [1.0] * 4, "Widths.profile: expected"),
    ("bounds.widths.weights", [-1.0] * 8, "Widths.weights: expected 4 numbers of at least 0"),
]


@pytest.mark.parametrize(("place", "value", "message"), WRONG, ids=range(len(WRONG)))
def test_damaged_calibration_is_refused(
    line: Trained, tmp_path: Path, place: str, value: Any, message: str
) -> None:
    line.operator.save(tmp_path / "a.safetensors")
    path = resealed(tmp_path / "a.safetensors", put(place, value))
    with pytest.raises(ValueError, match=r"changed\.safetensors") as caught:
        Operator.load(path, "cpu")
    assert message in str(caught.value)
    assert "Error" not in str(caught.value)


def test_a_calibration_of_another_operator_is_refused(line: Trained, cloud: Trained) -> None:
    trust = line.operator.trust
    with pytest.raises(ValueError, match=r"Reference.low: expected 10 numbers .* got 12"):
        replace(cloud.operator, trust=trust)
    with pytest.raises(ValueError, match="Widths: expected 1 channels and 2 axes"):
        replace(cloud.operator, trust=replace(trust, reference=None, thresholds={}))
    reference = trust.reference
    assert reference is not None
    wrong = replace(reference, high=(*reference.high[:-2], 1e9, 1e9))
    with pytest.raises(ValueError, match="expected logarithms"):
        replace(line.operator, trust=Trust(wrong))


def test_what_cannot_be_promised_is_refused(line: Trained) -> None:
    op = line.operator
    with pytest.raises(ValueError, match="need at least 9 held-out fields, got 8"):
        op.calibrated(line.held_out.split(8)[0])
    with pytest.raises(ValueError, match=r"calibrated for bounds of 90 %.*level=0\.95\)"):
        op.predict(line.test, bounds=0.95)
    assert op.calibrated(line.held_out, 0.95).predict(line.test, bounds=0.95).lower.shape
    for wrong in (True, "0.9", 90, float("nan")):
        with pytest.raises(ValueError, match="bounds must be a number from 0 to 1"):
            op.predict(line.test, bounds=wrong)
    with pytest.raises(TypeError, match="held_out: expected samples with outputs"):
        op.calibrated([1, 2])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="held_out: the data have no outputs"):
        op.calibrated(line.held_out.replace(y=None))
    with pytest.raises(ValueError, match=r"y: expected 2 channels \(df, power\), got 1"):
        op.calibrated(Fields(line.held_out.x, line.held_out.u, y=line.held_out.u))
    other = Fields(line.held_out.x, np.repeat(line.held_out.u, 2, -1), y=line.held_out.y)
    with pytest.raises(ValueError, match=r"u: expected 1 channel \(f\), got 2"):
        op.calibrated(other)


def test_a_member_alone_is_calibrated_anew(line: Trained) -> None:
    assert line.operator.member(0).trust == line.operator.trust
    twice = replace(line.operator, members=line.operator.members * 2)
    assert twice.member(1).trust == Trust()
