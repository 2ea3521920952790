"""`lno report`: tables and figures of runs on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lno.commands.console import new_app, reading, show
from lno.experiments import report as ledger
from lno.experiments import run_reports
from lno.files import replacing, write_text
from lno.report import html

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
        Path | None,
        typer.Option(
            help="Also write it as Markdown (.md); of the ledger, with pictures in a folder "
            "'images' next to it."
        ),
    ] = None,
    results: Annotated[Path, typer.Option(help="The ledger.")] = Path("results"),
) -> None:
    """Make a page of tables and figures: of your own runs, side by side, or of the ledger."""
    source = ", ".join(map(str, folders or [results]))
    files: dict[Path, bytes] = {}
    with reading(f"{source}: the file of a run there"):
        if folders:
            runs = run_reports.load_folders(folders)
            text, written = run_reports.page(runs), run_reports.markdown(runs)
        else:
            ledger.require_ledger(results)
            text, written = ledger.page(results), ""
            if markdown is not None:
                start = f"images/{markdown.stem}-"
                written = ledger.markdown(results, start)
                files = {
                    markdown.parent / f"{start}{name}": html.png(figure)
                    for name, figure in ledger.pictures(results)
                }
    write_text(page, text)
    show(f"wrote {page}: look at it in a browser")
    if markdown is not None:
        for path, content in files.items():
            with replacing(path) as temporary:
                temporary.write_bytes(content)
        write_text(markdown, written)
        show(f"wrote {markdown}")
