"""What all commands share: where they print, how their help looks, and how `lno` is called."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

if TYPE_CHECKING:
    from lno.report.tables import Table

# Results go to `out`, progress and messages to `err`.
out, err = Console(highlight=False), Console(stderr=True, highlight=False)
INTERRUPTED = 130  # the exit code after Ctrl-C


def new_app(text: str | None = None) -> typer.Typer:
    """The app of a command, or of a group of commands with the help `text`."""
    return typer.Typer(
        help=text,
        no_args_is_help=text is not None,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def say(line: str) -> None:
    """A message about what is going on."""
    err.print(line, soft_wrap=True, markup=False)


def show(line: str) -> None:
    """A line of the result."""
    out.print(line, soft_wrap=True, markup=False)


def show_lines(lines: dict[str, str]) -> None:
    """Keys and values, one pair a line."""
    for key, value in lines.items():
        show(f"{key:>14}  {value}")


def show_table(table: Table) -> None:
    """A table and its notes."""
    out.print(table.rich())
    for note in table.notes:
        show(note)


def show_errors(errors: dict[str, float]) -> None:
    """Mean errors on test samples."""
    l2, mae = (f"{100 * errors[name]:.3f} %" for name in ("relative_l2", "relative_mae"))
    show(f"test: relative L2 {l2}, relative MAE {mae}, MSE {errors['mse']:.3e}")


def program() -> str:
    """How the user can call this program again: `lno`, or its path if it is not on PATH."""
    if shutil.which("lno"):
        return "lno"
    path, here = Path(sys.argv[0]).resolve(), Path.cwd()
    if path.suffix == ".py":
        return f"{Path(sys.executable).name} -m lno.cli"
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
