"""Shared by all tests."""

from __future__ import annotations

import os

# One thread, here and in the processes that tests start: the same bits everywhere, and no waiting
# for each other where several things run on few cores.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["COLUMNS"] = "200"  # tables are not folded, whichever test prints first

import signal

# Processes that tests start and interrupt inherit this; in the background, shells ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

from importlib.util import find_spec

import pytest
import torch

# Every call of lno is checked against the shapes in its signature, in this process and in every
# worker of pytest-xdist. Without beartype, as on machines that only run tests, nothing is.
if find_spec("beartype"):
    import shape_checks

    shape_checks.install()

import tiny
from command_line import Done, Run

from lno import Fields, Operator, cli

collect_ignore = ["shape_checks.py"]  # no tests inside, and it needs beartype


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


@pytest.fixture
def line_fields() -> Fields:
    return tiny.lines()


@pytest.fixture
def operator(line_fields: Fields) -> Operator:
    """Trained for a moment; each test has its own."""
    return Operator.fit(line_fields, epochs=2, config=tiny.LNO, progress=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process."""

    def call(*arguments: object) -> Done:
        capsys.readouterr()
        code = cli.run([str(a) for a in arguments])
        return Done(code, *capsys.readouterr())

    return call
