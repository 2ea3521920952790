"""The `lno` command: finds the command that was asked for and turns errors into messages.

A command `lno name` is `app` in `lno/commands/name.py`, which is imported when it is called: help
and version need neither torch nor matplotlib.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from lno.commands.console import INTERRUPTED, err, out
from lno.text import visible
from lno.version import __version__

COMMANDS = {
    "quickstart": "Train a small operator and show its results, in about five minutes.",
    "data": "Generate, import, check and inspect data sets.",
    "train": "Train an operator on a problem or a data file.",
    "evaluate": "Evaluate a trained operator, and compare it with simple baselines.",
    "predict": "Predict a field from observations with a trained operator.",
    "reconstruct": "Reconstruct a whole field from a few sensors, with bounds.",
    "export": "Write a trained operator as an ONNX file, for programs without PyTorch.",
    "report": "Write a page of tables and figures from runs.",
    "reproduce": "Reproduce the tables of the paper: train the missing runs, then print them.",
    "info": "Describe a model, a data file, or this installation.",
}
# How often idle OpenMP threads look for work before they sleep. The default wastes most of the time
# of a busy machine; sleeping at once costs a quiet one (benchmarks/busy_cpu.py).
SPIN_COUNT = "1000"
WARNED: set[str] = set()  # warnings that were shown already


class LazyGroup(TyperGroup):
    """Commands that are imported when they are called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; None where there is none."""
        if cmd_name not in COMMANDS:
            return None
        command = typer.main.get_command(import_module(f"lno.commands.{cmd_name}").app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands in the help, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(
    name="lno",
    cls=LazyGroup,
    help="Learn PDE operators from data: any points in, any points out.",
    epilog="Start with: lno quickstart",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def common(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[bool, typer.Option(help="Show the whole traceback of an error.")] = False,
) -> None:
    """Learn PDE operators from data: any points in, any points out."""
    if version:
        out.print(f"lno {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line of this process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # terminals that have no letter for ² or →
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    if "OMP_WAIT_POLICY" not in os.environ:  # read when torch is imported
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
    code = run(sys.argv[1:])
    _end_at_next_signal()
    try:
        sys.stdout.flush()
    except OSError as error:  # a full disk, or a reader that went away
        code = code or _show_error(error, debug=False)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains too
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; an error is one clear line.

    >>> run(["--version"])
    lno ...
    0
    """
    WARNED.clear()
    words = [word for word in arguments if word != "--debug"]  # it may stand anywhere
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            code = typer.main.get_command(app)(words, prog_name="lno", standalone_mode=False)
        except SystemExit as stopped:
            return stopped.code if isinstance(stopped.code, int) else 1
        except KeyboardInterrupt:
            code = INTERRUPTED
        except Exception as error:
            return _show_error(error, debug=len(words) < len(arguments))
    if code == INTERRUPTED:
        err.print("interrupted: no file is half-written; run the same command again")
    return code if isinstance(code, int) else 0


def _interrupt(*_: object) -> None:
    """Ctrl-C and SIGTERM: stop, with time to save what there is; the second one ends at once."""
    _end_at_next_signal()
    raise KeyboardInterrupt


def _end_at_next_signal() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)


def _end(*_: object) -> None:
    """End this process without a word; files that it was writing keep their old content."""
    if sys.stderr.isatty():
        os.write(2, b"\x1b[?25h\n")  # a progress bar hides the cursor
    os._exit(INTERRUPTED)


def _show_error(error: Exception, debug: bool) -> int:
    """Print an error; returns the exit code."""
    if hasattr(error, "show"):  # the parser's own errors know how to print themselves
        shown = io.StringIO()
        error.show(shown)
        err.print(visible(shown.getvalue(), keep="\n"), soft_wrap=True, end="")
        return getattr(error, "exit_code", 2)
    if debug:
        whole = "".join(traceback.format_exception(error))
        err.print(visible(whole, keep="\n"), soft_wrap=True, end="")
        return 1
    expected = isinstance(error, ValueError | OSError | RuntimeError | MemoryError)
    # Libraries wrap the errors of the system in their own, with the same words.
    full = getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error)
    expected = full or (expected and not isinstance(error, RecursionError))
    text = visible(error, keep="\n") or type(error).__name__
    if isinstance(error, MemoryError):
        text = f"not enough memory {text}"
    kind = "" if expected else f"{type(error).__name__}: "
    if full and "make room" not in text:
        text = f"{text.rstrip('.')}. The disk is full: make room, then run the same command again"
    err.print(f"error: {kind}{text}", soft_wrap=True)
    if not expected:
        err.print("This looks like a bug; --debug shows where it comes from.")
    return 1


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    if str(message) not in WARNED:
        WARNED.add(str(message))
        err.print(f"warning: {visible(message)}", soft_wrap=True)


if __name__ == "__main__":
    main()
