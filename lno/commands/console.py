"""What all commands share: where they print, how their help looks, and how `lno` is called."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from lno.files import require_folder
from lno.text import visible

if TYPE_CHECKING:
    from lno.report.tables import Table

# Results go to `out`, progress and messages to `err`. Text is printed as it is: names of files and
# channels are no markup.
out = Console(highlight=False, markup=False, emoji=False)
err = Console(highlight=False, markup=False, emoji=False, stderr=True)
INTERRUPTED = 130  # the exit code after Ctrl-C
FLAGGED = 3  # the exit code under --strict for a field that is out of distribution


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
    err.print(visible(line), soft_wrap=True)


def show(line: str) -> None:
    """A line of the result."""
    out.print(visible(line), soft_wrap=True)


def show_lines(lines: dict[str, str]) -> None:
    """Keys and values, one pair a line."""
    for key, value in lines.items():
        show(f"{key:>14}  {value}")


def show_table(table: Table) -> None:
    """A table and its notes."""
    out.print(table.rich())
    for note in table.remarks:
        show(note)


def show_errors(errors: dict[str, float]) -> None:
    """Mean errors on test samples."""
    l2, mae = (f"{100 * errors[name]:.3f} %" for name in ("relative_l2", "relative_mae"))
    show(f"test: relative L2 {l2}, relative MAE {mae}, MSE {errors['mse']:.3e}")


def command(*words: object) -> str:
    """A command of this program that can be pasted into a shell."""
    return f"{program()} {shlex.join(map(str, words))}"


def key_values(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """What an option that may be repeated sets; a key that comes twice is an error.

    >>> key_values("--set", ["grid=85", "high=9"])
    {'grid': '85', 'high': '9'}
    >>> key_values("--set", ["grid=85", "grid=43"])
    Traceback (most recent call last):
    ...
    ValueError: --set sets grid twice, to 85 and to 43: expected each key once. Leave one out.
    """
    found: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key or not value:
            raise ValueError(f"{option} {text}: expected KEY=VALUE")
        if key in found:
            raise ValueError(
                f"{option} sets {key} twice, to {found[key]} and to {value}: expected each key "
                "once. Leave one out."
            )
        found[key] = value
    return found


def program() -> str:
    """How the user can call this program again, for a shell.

    `lno`, or its path if it is not on PATH; `python -m lno` where it was called so.
    """
    path, here = Path(sys.argv[0]).resolve(), Path.cwd()
    if path.suffix == ".py":
        name = Path(sys.executable).name
        found = shutil.which(name)
        same = found is not None and Path(found).resolve() == Path(sys.executable).resolve()
        return f"{name if same else shlex.quote(sys.executable)} -m lno"
    if shutil.which("lno"):
        return "lno"
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn what the content of a damaged file can raise into an error that names the file."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(
            f"{what}: damaged, or not written by lno ({type(error).__name__}: {error})"
        ) from error


def require_h5(out: str | Path) -> None:
    """Raise unless an HDF5 file can be written there: before the work, not after it."""
    if Path(out).suffix not in (".h5", ".hdf5"):
        raise ValueError(f"cannot write {out}: expected a name ending in .h5")
    require_folder(Path(out).parent)
