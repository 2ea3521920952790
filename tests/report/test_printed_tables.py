"""Tables of results, wherever they are printed."""

from __future__ import annotations

import io

from rich.console import Console

from lno.report.tables import Table


def test_a_narrow_terminal_cuts_nothing_off() -> None:
    table = Table("Errors", ["a long name"] * 6, [["51.691", "Transolver"] * 3])
    shown = io.StringIO()
    Console(file=shown, width=40).print(table.rich())
    printed = shown.getvalue()
    assert max(map(len, printed.splitlines())) <= 40
    letters = sorted("".join(["Errors", *table.header, *table.rows[0]]).replace(" ", ""))
    assert sorted("".join(printed.replace("─", "").split())) == letters
