"""What is handed out is whole: the wheel for users, the sdist for those who run the tests."""

from __future__ import annotations

import re
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="in the dev extra")

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[1]
WRITTEN_BY_TESTS = re.compile(r"__pycache__|\.pyc$")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Paths in the sdist, without the folder that holds them all."""
    folder = tmp_path_factory.mktemp("sdist")
    [path] = SdistBuilder(str(ROOT)).build(directory=str(folder))
    with tarfile.open(path) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    [path] = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def files(*folders: str) -> set[str]:
    """Files of these folders that are kept in git; in an unpacked sdist, all of them."""
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())
    return {str(path.relative_to(ROOT)) for path in paths if not WRITTEN_BY_TESTS.search(str(path))}


def named_in_tests() -> Iterator[tuple[str, str]]:
    """Files and folders of the project that tests name, each with the test."""
    beside = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    for test in sorted((ROOT / "tests").rglob("*.py")):
        for name in re.findall(r'"([\w./-]+)"', test.read_text(encoding="utf-8")):
            if name.split("/")[0] in beside and (ROOT / name).exists():
                yield name.rstrip("/"), test.name


def test_the_sdist_holds_all_that_its_tests_read(sdist: set[str]) -> None:
    # Whole folders, so that a test need not be looked into for what it reads there.
    whole = files("tests", "lno", "docs", "examples", "results", "benchmarks")
    assert len(whole) > 200 and whole <= sdist, sorted(whole - sdist)


def test_the_sdist_holds_every_file_that_a_test_names(sdist: set[str]) -> None:
    named = dict(named_in_tests())
    assert {"README.md", "Makefile", "docs", "results"} <= set(named)
    folders = {str(parent) for path in sdist for parent in Path(path).parents}
    made = {"quickstart", "report.html"}  # by `make`, which a user may have run before the tests
    missing = {name: test for name, test in named.items() if name not in sdist | folders | made}
    assert not missing


def test_what_builds_and_installs_the_package_is_in_the_sdist(sdist: set[str]) -> None:
    installs = re.findall(r"[\w.]+\.(?:toml|txt)\b", (ROOT / "Makefile").read_text())
    assert {"pyproject.toml", "constraints.txt"} <= {*installs} <= sdist
    assert {"README.md", "LICENSE"} <= sdist


def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel: set[str]) -> None:
    package = files("lno")
    assert "lno/py.typed" in package
    assert any(name.startswith("lno/pretrained/") for name in package)
    assert {name for name in wheel if ".dist-info/" not in name} == package
