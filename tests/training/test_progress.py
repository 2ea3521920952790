"""Progress is a bar where one can be drawn, and lines where none can."""

import pytest
import rich.console
from rich.progress import Progress

from lno.training import progress as module
from lno.training.progress import progress


def work() -> None:
    with progress("training", 20) as update:
        for done in range(1, 21):
            update(done, f"epoch {done}")


def test_lines_at_each_tenth_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    work()
    printed = capsys.readouterr()
    assert printed.out == "" and len(printed.err.splitlines()) == 10
    assert printed.err.splitlines()[4].startswith("training  50 %  epoch 10  ")


@pytest.mark.parametrize("widgets", [True, False])
def test_a_notebook_has_a_bar_with_widgets_and_plain_lines_without(
    widgets: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    monkeypatch.setattr(module, "find_spec", lambda name: object() if widgets else None)
    monkeypatch.setattr(Progress, "start", lambda self: drawn.append("start"))
    monkeypatch.setattr(Progress, "stop", lambda self: drawn.append("stop"))
    work()
    printed = capsys.readouterr()
    assert drawn == (["start", "stop"] if widgets else []) and printed.err == ""
    assert len(printed.out.splitlines()) == (0 if widgets else 10)


def test_nothing_is_shown_unless_it_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("training", 2, show=False) as update:
        update(2)
    assert capsys.readouterr() == ("", "")
