"""`lno report`: tables and figures of runs on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lno.commands.console import new_app, reading, show
from lno.experiments import report as pages
from lno.files import write_text

app = new_app()


@app.command(epilog="Example: lno report runs/a runs/b --out report.html")
def report(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of `lno train`, to compare; none: the ledger."),
    ] = None,
    page: Annotated[Path, typer.Option("--out", help="The page to write (.html).")] = Path(
        "report.html"
    ),
    markdown: Annotated[
        Path | None, typer.Option(help="Also write the tables as Markdown (.md).")
    ] = None,
    results: Annotated[Path, typer.Option(help="The ledger.")] = Path("results"),
) -> None:
    """Make a page of tables and figures: of your own runs, side by side, or of the ledger."""
    source = ", ".join(map(str, folders or [results]))
    with reading(f"{source}: the file of a run there"):
        if folders:
            runs = pages.load_folders(folders)
            text, tables = pages.page_of_folders(runs), pages.markdown_of_folders
            written = None if markdown is None else tables(runs)
        else:
            pages.require_ledger(results)
            text = pages.page(results)
            written = None if markdown is None else pages.markdown(results)
    write_text(page, text)
    show(f"wrote {page}: look at it in a browser")
    if markdown is not None and written is not None:
        write_text(markdown, written)
        show(f"wrote {markdown}")
