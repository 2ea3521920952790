"""The ledger: what was measured is what is read, and nothing else is accepted."""

import dataclasses
import json
import subprocess

import pytest

from lno import ledger
from lno.experiments.runs import RunSpec
from lno.ledger import Run


def a_run(**change):
    values = {
        "problem": "darcy",
        "model": "lno",
        "recipe": "paper",
        "protocol": "standard",
        "seed": 3,
        "epochs": 2,
        "steps": 20,
        "task": {"kind": "completion", "window": None, "steps": [2, 3]},
        "hardware": "one CPU",
        "seconds": 1.25,
        "parameters": 760_000,
        "data_hash": "ab" * 32,
        "config": {"model": {"width": 128, "shape": [1, 2]}, "recipe": {"learning_rate": 1e-3}},
        "metrics": {"test": {"relative_l2": 0.0073}, "test:ratio=0.01": {"relative_mae": 0.1}},
        "curve": [{"step": 1, "seconds": 0.5, "loss": 0.1 + 0.2, "error": None}],
    }
    return Run(**{**values, **change})


def test_round_trip(tmp_path):
    run = a_run(peak_memory_gb=1.5, members=3, precision="bf16", commit="abc")
    path = run.save(tmp_path, "seed3")
    assert path == tmp_path / "darcy" / "lno" / "seed3.json"
    loaded = Run.load(path)
    assert dataclasses.asdict(loaded) | {"curve": None} == dataclasses.asdict(run) | {"curve": None}
    assert list(loaded.curve) == run.curve


@pytest.mark.parametrize("change", [{}, {"curve": []}])
def test_a_loaded_run_equals_the_saved_one(tmp_path, change):
    run = a_run(**change)
    assert Run.load(run.save(tmp_path, "a")) == run


def test_saving_again_is_the_same_file(tmp_path):
    path = a_run().save(tmp_path, "a")
    text = path.read_text()
    Run.load(path).save(tmp_path, "a")
    assert path.read_text() == text


def test_every_promised_key_is_in_the_file(tmp_path):
    promised = (
        "problem, model, recipe, protocol, seed, epochs, steps, task, members, precision, "
        "hardware, seconds, compile_seconds, peak_memory_gb, parameters, data_hash, commit, "
        "config, metrics, curve"
    )
    stored = json.loads(a_run().save(tmp_path, "a").read_text())
    assert set(promised.split(", ")) <= set(stored)


@pytest.mark.parametrize(
    "change",
    [
        {"metrics": {"test": {"relative_l2": float("nan")}}},
        {"metrics": {"test": {"relative_l2": float("inf")}}},
        {"seconds": float("nan")},
        {"curve": [{"step": 1, "loss": float("nan")}]},
    ],
)
def test_nan_is_refused_and_the_old_file_stays(tmp_path, change):
    path = a_run().save(tmp_path, "a")
    before = path.read_text()
    with pytest.raises(ValueError, match="Out of range float"):
        a_run(**change).save(tmp_path, "a")
    assert path.read_text() == before
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]


def test_an_interrupted_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = a_run().save(tmp_path, "a")
    before = path.read_text()

    def full(self, text, **_):
        with self.open("w") as file:
            file.write(text[: len(text) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(path), "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        a_run(seed=4).save(tmp_path, "a")
    assert path.read_text() == before
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("", "not a run"),
        ("{", "not a run"),
        ("[]", "expects a mapping"),
        ("{}", "needs the key 'problem'"),
        ('{"problem": NaN}', "expected numbers, got NaN"),
        ('{"problm": 1}', "did you mean 'problem'"),
        ('"text"', "expects a mapping"),
    ],
)
def test_files_that_are_no_runs(tmp_path, content, word):
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=word) as caught:
        Run.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("problem", 3, r"Run\.problem: expected a text, got 3"),
        ("seed", "3", r"Run\.seed: expected a whole number, got '3'"),
        ("seed", True, r"Run\.seed: expected a whole number"),
        ("epochs", None, r"Run\.epochs: expected a number, got None"),
        ("task", [], r"Run\.task: expected a mapping"),
        ("config", "text", r"Run\.config: expected a mapping"),
        ("metrics", {"test": 0.1}, r"Run\.metrics: expected a mapping of texts to mappings"),
        ("metrics", {"test": {"relative_l2": "low"}}, r"Run\.metrics"),
        ("metrics", {}, "metrics: expected errors by data set"),
        ("metrics", {"test": {}}, "metrics: expected errors by data set"),
        ("members", 0, "members: expected at least 1, got 0"),
        ("curve", [1, 2], r"Run\.curve: expected a list of mappings"),
        ("curve", {"step": 1}, r"Run\.curve"),
        ("curve", [{"step": 1, "loss": 0.1}], "curve: seconds: expected a number, got None"),
        ("curve", [{"step": 1, "loss": 0, "seconds": 1, "error": "x"}], "curve: error"),
        ("samples", {"test": [0.1, "b"]}, r"Run\.samples"),
        ("frames", 0.1, r"Run\.frames: expected a list of numbers"),
        ("peak_memory_gb", "much", r"Run\.peak_memory_gb: expected a number or null"),
    ],
)
def test_values_of_the_wrong_type(tmp_path, key, value, word):
    path = a_run().save(tmp_path, "a")
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(ValueError, match=word) as caught:
        Run.load(path)
    assert f"{path} is not a run of the ledger" in str(caught.value)


def test_a_file_that_was_copied_is_no_run_of_another_seed(tmp_path):
    spec = RunSpec("toy", "lno", "paper", 100, "fp32")
    path = a_run(problem="toy", model="lno", recipe="paper", seed=0).save(tmp_path, spec.name(0))
    assert list(spec.runs(tmp_path, [0])) == [0]
    path.with_name(f"{spec.name(1)}.json").write_text(path.read_text())
    with pytest.raises(ValueError, match="expected a run with seed 1, as its name says"):
        spec.runs(tmp_path, range(2))


@pytest.mark.parametrize("value", ["[" * 5000 + "]" * 5000, "9" * 5000, "1e999", "-Infinity"])
def test_numbers_and_nesting_beyond_limits(tmp_path, value):
    path = a_run().save(tmp_path, "a")
    path.write_text(path.read_text().replace('"seed": 3', f'"seed": {value}'))
    with pytest.raises(ValueError, match="not a run of the ledger") as caught:
        Run.load(path)
    assert str(path) in str(caught.value) and len(str(caught.value)) < 500


def test_binary_and_missing_files(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not a run"):
        Run.load(path)
    with pytest.raises(FileNotFoundError, match=r"b\.json"):
        Run.load(tmp_path / "b.json")


def test_an_unknown_key_is_an_error(tmp_path):
    path = a_run().save(tmp_path, "a")
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "accuracy": 1.0}))
    with pytest.raises(ValueError, match="no key 'accuracy'"):
        Run.load(path)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Git in a new repository around the package, which is not part of it yet."""

    def git(*words):
        names = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        done = subprocess.run(
            ["git", *names, *words], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    installed = tmp_path / "lib" / "ledger.py"
    installed.parent.mkdir()
    installed.touch()
    git("init")
    git("commit", "--allow-empty", "-m", "theirs")
    monkeypatch.delenv("LNO_COMMIT", raising=False)
    monkeypatch.setattr(ledger, "__file__", str(installed))
    return git


def test_the_commit_is_that_of_the_source_and_says_whether_files_were_changed(package, tmp_path):
    package("add", "lib/ledger.py")
    package("commit", "-m", "ours")
    head = package("rev-parse", "HEAD")
    assert ledger.commit() == head[:12]
    (tmp_path / "lib" / "ledger.py").write_text("changed")
    assert ledger.commit() == f"{head[:12]}-dirty"


def test_the_commit_is_never_that_of_a_repository_around_the_package(package):
    assert ledger.commit() == ""


def test_without_git_the_commit_is_empty_unless_the_environment_says_it(package, monkeypatch):
    package("add", "lib/ledger.py")
    package("commit", "-m", "ours")

    def no_git(*_, **__):
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", no_git)
    assert ledger.commit() == ""
    monkeypatch.setenv("LNO_COMMIT", "abc-dirty")
    assert ledger.commit() == "abc-dirty"
