"""Commands called in the process of the tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from lno import cli


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


def lno(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """What a command prints that must succeed."""
    code = cli.run([str(word) for word in words])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return printed.out
