"""The page of an assessment: the verdict first, every section, alt texts, and no foreign HTML."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from command_line import Run

from lno import Completion, Fields, Operator, RandomRatio, Rollout
from lno.assessment import assess
from lno.experiments.sources import training_samples
from lno.report.assessment import comparison, page

CONFIG = {"width": 8, "latents": 4, "blocks": 1, "heads": 1, "layers": 1}
HOSTILE = "<script>alert('$x$')</script>"
X = np.linspace(0, 1, 12)[:, None]


def sines(samples: int, seed: int = 0) -> Fields:
    a = np.random.default_rng(seed).uniform(1, 2, (samples, 1, 1))
    names = {"u": ["f"], "y": [HOSTILE, "g"], "parameters": [f"{HOSTILE} & a"]}
    y = np.concatenate((np.sin(a * X), 3 * np.cos(a * X)), -1)
    return Fields(X, a * X, y=y, parameters=a[:, 0], names=names)


def fit(data: Fields, **keys: object) -> Operator:
    keys = {"config": CONFIG, "epochs": 1, "progress": False, "device": "cpu", **keys}
    return Operator.fit(data, **keys)  # type: ignore[arg-type]


def headings(text: str) -> list[str]:
    return re.findall(r"<h2[^>]*>(.*?)</h2>", text)


def test_a_whole_page() -> None:
    train, held_out, test = sines(60).split(20, 20, 20)
    assessed = assess(fit(train).calibrated(held_out), test, train)
    text = page(assessed, f"{HOSTILE} on test.h5").replace("\u00a0", " ")
    body = text[text.index("</h1>") :]
    assert body.index(assessed.verdict()) < body.index("<h2")  # the verdict comes first
    assert headings(text) == [
        "Comparison with simple baselines",
        "Samples",
        "By channel",
        "By parameter",
        "By place",
        "Bounds and out-of-distribution scores",
        "How to read this",
    ]
    for words in ("Worst sample: number", "Median sample: number", "Best sample: number"):
        assert words in text
    assert "Inside the bounds of 90 %: " in text
    assert re.search(r"Out of distribution: \d+ of 20 samples \(inputs \d", text)
    images = re.findall(r"<img ([^>]*)>", text)
    assert len(images) == 8 and all('src="data:' in image for image in images)
    assert all(re.search(r'alt="[^"]{20,}"', image) for image in images)
    assert "<script" not in text and "&lt;script&gt;" in text
    assert not re.search(r'(src|href)="(?!data:|#)', text)  # nothing from elsewhere


def test_one_sample_without_parameters_or_bounds() -> None:
    data = sines(12).replace(parameters=None)
    assessed = assess(fit(data), data.subset([0]))
    text = page(assessed, "one", "the file is gone")
    assert "on one held-out sample" in text and "The samples have no parameters." in text
    assert "The sample: number 0" in text and text.count("<img") == 2  # fields, channels
    assert "No simple baselines: the file is gone." in text
    assert "Operator.calibrated" in text


def test_fields_on_grids_meshes_and_in_too_many_coordinates() -> None:
    grid = np.stack(np.meshgrid(X[:5, 0], X[:6, 0], indexing="ij"), -1).reshape(-1, 2)
    y = np.random.default_rng(0).normal(size=(12, 30, 1))
    data = Fields(grid, y=y, grid=(5, 6))
    sensors = assess(fit(data, task=Completion(RandomRatio(0.2))), data.subset([0, 1]))
    text = page(sensors, "sensors")
    assert "by the distance from the nearest observation" in text
    cells = np.array([[0, 6, 7], [0, 7, 1]])
    mesh = Fields(grid, y, y=y, cells=cells)
    assert "No picture" not in page(assess(fit(mesh), mesh.subset([0, 1])), "mesh")
    many = Fields(np.random.default_rng(0).normal(size=(30, 4)), y, y=y)
    assert "No picture: cannot draw fields over x0" in page(
        assess(fit(many), many.subset([0])), "many"
    )


def test_a_rollout_is_shown_frame_by_frame() -> None:
    frames = np.random.default_rng(0).normal(size=(6, 12, 6))
    data = Fields(X, frames[..., :2], y=frames[..., 2:])
    text = page(assess(fit(data, task=Rollout(4)), data), "frames")
    assert "By frame" in headings(text) and "By channel" not in headings(text)


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evaluated")
    sines(40).save(path / "all.h5")
    sines(8, seed=1).save(path / "test.h5")
    sines(20, seed=2).save(path / "train.h5")
    fit(sines(20, seed=2)).save(path / "bare.safetensors")
    return path


def test_the_command_prints_the_verdict_and_the_table_and_writes_the_page(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    words = ("evaluate", folder / "bare.safetensors", "--data", folder / "test.h5")
    plain = run(*words)
    out = tmp_path / "new" / "page.html"
    done = run(*words, "--train", folder / "train.h5", "--report", out)
    assert done.returncode == 0, done.stderr
    verdict, *rest = done.stdout.splitlines()
    assert verdict.startswith("A simple baseline is better: kernel ridge regression has")
    for name in ("operator", "mean of the training samples", "nearest training sample"):
        assert any(line.startswith(name) for line in rest)
    assert rest[-1] == plain.stdout.splitlines()[-1]  # the same errors
    text = out.read_text(encoding="utf-8")
    assert verdict in text.replace("\u00a0", " ") and "bare.safetensors on test.h5" in text
    assert [path.name for path in out.parent.iterdir()] == ["page.html"]


def test_training_samples_are_found_in_the_file_of_the_run(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    words = ("--out", tmp_path / "run", "--epochs", 1, "--model", "deeponet", "--device", "cpu")
    done = run("train", folder / "all.h5", *words)
    assert done.returncode == 0, done.stderr
    assert "evaluate" in done.stdout and "--report" in done.stdout
    model, data = tmp_path / "run" / "model.safetensors", folder / "test.h5"
    operator = Operator.load(model, "cpu")
    trained = operator.provenance["data"]["digest"]
    for train, test in (
        (None, folder / "all.h5"),
        (None, data),  # all.h5 lies beside it
        (folder / "all.h5", data),  # only the samples to train on, without validation
    ):
        found, _ = training_samples(operator, model, train, test)
        assert found is not None and found.digest == trained
    other = tmp_path / "other.h5"
    sines(8, seed=1).save(other)
    missing = "the file that the model was trained on, all.h5, is not here, or it changed"
    assert training_samples(operator, model, None, other) == (None, missing)
    (tmp_path / "all.h5").write_text("no data")
    assert training_samples(operator, model, None, other) == (None, missing)
    sines(40, seed=5).save(tmp_path / "all.h5")  # of the same name, but another
    assert training_samples(operator, model, None, other) == (None, missing)
    given, _ = training_samples(operator, model, folder / "train.h5", other)
    assert given is not None and given.digest == sines(20, seed=2).digest
    done = run("evaluate", tmp_path / "run", "--data", other, "--report", tmp_path / "page.html")
    assert done.stdout.startswith("The operator has a mean relative L2 error of")
    assert missing in done.stdout and "--train FILE" in done.stdout


def test_samples_of_another_kind_are_an_error(run: Run, folder: Path, tmp_path: Path) -> None:
    sines(5).replace(parameters=None).save(tmp_path / "none.h5")
    words = ("evaluate", folder / "bare.safetensors", "--data", folder / "test.h5", "--train")
    done = run(*words, tmp_path / "none.h5")
    assert done.returncode == 1
    assert "the training samples have 0 parameters, the test samples 1" in done.stderr


def test_the_table_says_which_samples_are_no_test() -> None:
    data = sines(12)
    table = comparison(assess(fit(data), data.subset([0, 1, 2]), data))
    assert "3 of these 3 samples are among the training samples" in " ".join(table.notes)
