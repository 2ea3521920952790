"""Shared by the tests of the inverse problem."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from small_inverse import COMPLETER, shrink

from lno import Fields


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Small fields and models in place of the paper's; the folder that everything is in."""
    path = tmp_path_factory.mktemp("inverse")
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch, path / "cache")
        yield path


@pytest.fixture(scope="module")
def samples(root: Path) -> tuple[Fields, Fields, Fields]:
    """To train on, to validate on and to test on."""
    return COMPLETER.samples("cpu")
