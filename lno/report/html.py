"""Self-contained HTML pages: text, tables and pictures in one file that opens anywhere."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from html import escape

from matplotlib.figure import Figure

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #1c2430; margin: 0 auto; max-width: 1100px;
       padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.8rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; }
p { max-width: 46rem; }
img { display: block; max-width: 100%; height: auto; margin: 1rem 0; }
table { display: block; overflow-x: auto; border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .35rem .55rem; border-bottom: 1px solid #d9dee6; text-align: right; }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td.best { font-weight: 650; }
code, pre { font: .88rem/1.5 ui-monospace, monospace; background: #f3f5f8; border-radius: 6px; }
code { padding: .1rem .3rem; }
pre { padding: .8rem 1rem; overflow-x: auto; }
.note { color: #5a6675; font-size: .92rem; }
"""


def page(title: str, body: Sequence[str]) -> str:
    """A whole page from parts that the functions below make."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title>"
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head>\n<body>\n<h1>{escape(title)}</h1>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def heading(text: str) -> str:
    """A section's heading."""
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str, note: bool = False) -> str:
    """A paragraph, with commands between backticks; a note is smaller and paler."""
    shown = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
    return f"<p{' class=note' if note else ''}>{shown}</p>"


def commands(lines: Sequence[str]) -> str:
    """Commands to paste."""
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], best: Sequence[int] = ()) -> str:
    """A table; `best` gives the column to print bold in each row."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = []
    for k, row in enumerate(rows):
        marks = [" class=best" if best and c == best[k] else "" for c in range(len(row))]
        cells = "".join(f"<td{m}>{escape(c)}</td>" for m, c in zip(marks, row, strict=True))
        body.append(f"<tr>{cells}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def picture(figure: Figure, description: str) -> str:
    """A figure inside the page."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    return f'<img alt="{escape(description)}" src="data:image/png;base64,{data}">'
