"""Self-contained HTML pages: text, tables and pictures in one file that opens anywhere.

The page needs neither network nor scripts. All text is escaped; backticks and `**` become code and
bold. `page.css` is the one style of all pages.
"""

from __future__ import annotations

import base64
import io
import re
import unicodedata
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from lno.report.alt import describe

MISSING, PUBLISHED = "missing", "as published"  # a cell without a run, and the end of a row's name
DPI = 100
COLOURS = 256  # of a picture, white among them
WIDE = 8.0  # inches: wider pictures have several panels, which a narrow screen scrolls
LONG = 40  # characters, from which on a cell is folded


def page(title: str, body: Sequence[str]) -> str:
    """A whole page from parts that the functions below make."""
    style = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title>"
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>\n{style}</style></head>\n<body>\n<main>\n<h1>{inline(title)}</h1>\n"
        + "\n".join(body)
        + "\n</main>\n</body></html>\n"
    )


def inline(text: str) -> str:
    """Escaped text with `code` and **bold**.

    >>> inline("**a** < `b`")
    '<strong>a</strong> &lt; <code>b</code>'
    """
    coded = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", coded)


def prose(text: str) -> str:
    """The same for sentences, which are broken into lines: not between a number and its %."""
    return re.sub(r"(?<=\d) %", "\u00a0%", inline(text))


def slug(text: str) -> str:
    """The anchor of a heading, the same as in Markdown.

    >>> slug("Table 2. Relative MAE: 20 %, Burgers' equation")
    'table-2-relative-mae-20-burgers-equation'
    """
    letters = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", letters).strip().lower())


def heading(text: str, level: int = 2) -> str:
    """A heading that links can lead to."""
    return f'<h{level} id="{slug(text)}">{inline(text)}</h{level}>'


def paragraph(text: str, note: bool = False) -> str:
    """A paragraph; a note is smaller and paler."""
    return f"<p{' class=note' if note else ''}>{prose(text)}</p>"


def link(text: str, to: str) -> str:
    """A link to the heading of a text on the same page."""
    return f'<a href="#{slug(to)}">{inline(text)}</a>'


def verdict(kind: str, text: str) -> str:
    """A word or two with a mark: good, part, bad or open."""
    return f'<span class="verdict {escape(kind)}">{inline(text)}</span>'


def sentences(marked: Sequence[tuple[str, str]]) -> str:
    """Sentences in larger type, each with its mark: good, part, bad or open."""
    items = (f'<li class="{escape(kind)}"><span>{prose(text)}</span></li>' for kind, text in marked)
    return f"<ul class=lead>{''.join(items)}</ul>"


def commands(lines: Sequence[str]) -> str:
    """Commands to paste."""
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def folded(summary: str, parts: Sequence[str]) -> str:
    """Parts that are shown on a click, and in print."""
    return f"<details><summary>{inline(summary)}</summary>\n{''.join(parts)}</details>"


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    best: Sequence[int] = (),
    caption: str = "",
    label: str = "",
) -> str:
    """A table that scrolls by itself on a narrow screen.

    Args:
        header: the names of the columns.
        rows: cells; the first of each names its row.
        best: the column to print bold in each row.
        caption: above it.
        label: what assistive technology calls it, if there is no caption.
    """
    texts = [_is_text([row[c] for row in rows]) for c in range(len(header))]
    head = "".join(
        f"<th scope=col{' class=text' * text}>{inline(cell)}</th>"
        for cell, text in zip(header, texts, strict=True)
    )
    body = []
    for k, row in enumerate(rows):
        cells = [f"<th scope=row>{inline(row[0])}</th>"] if row else []
        for c, cell in enumerate(row[1:], start=1):
            names = [
                name
                for name, wanted in (
                    ("best", bool(best) and c == best[k]),
                    ("missing", cell == MISSING),
                    ("text", texts[c]),
                    ("long", len(cell) > LONG),
                )
                if wanted
            ]
            mark = f' class="{" ".join(names)}"' if names else ""
            cells.append(f"<td{mark}>{inline(cell)}</td>")
        kind = " class=paper" if row and row[0].endswith(PUBLISHED) else ""
        body.append(f"<tr{kind}>{''.join(cells)}</tr>")
    return scrolling(head, "".join(body), label or header[0], caption)


def scrolling(head: str, body: str, label: str, caption: str = "") -> str:
    """A table from the HTML of its head and its rows, in a region that scrolls by itself."""
    above = f"<caption>{inline(caption)}</caption>" if caption else ""
    return (
        f'<div class=scroll role=region tabindex=0 aria-label="{escape(caption or label)}">'
        f"<table>{above}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def picture(figure: Figure, description: str, caption: str = "") -> str:
    """A figure inside the page, with a description for those who do not see it."""
    data = base64.b64encode(png(figure)).decode("ascii")
    width, height = (round(DPI * side) for side in figure.get_size_inches())
    wide = " wide" if figure.get_size_inches()[0] > WIDE else ""
    below = f"<figcaption>{prose(caption)}</figcaption>" if caption else ""
    return (
        f'<figure class="picture{wide}"><div><img alt="{escape(describe(figure, description))}" '
        f'width={width} height={height} src="data:image/png;base64,{data}"></div>{below}</figure>'
    )


def png(figure: Figure) -> bytes:
    """A figure as a PNG file of few colours, dithered: a third of the bytes of full colour."""
    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3]
    image = Image.fromarray(pixels)
    palette = image.quantize(COLOURS - 1, Image.Quantize.MAXCOVERAGE, kmeans=2)
    few = image.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG)
    numbers = np.array(few)
    numbers[(pixels == 255).all(-1)] = COLOURS - 1  # white, exactly: the cards are white too
    exact = Image.fromarray(numbers)  # grey, until it has a palette
    exact.putpalette([*(few.getpalette() or [])[: 3 * (COLOURS - 1)], 255, 255, 255])
    buffer = io.BytesIO()
    exact.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def _is_text(cells: Sequence[str]) -> bool:
    """Whether a column holds words, which are aligned to the left, rather than numbers."""
    known = [cell.strip("*`") for cell in cells if cell and cell != MISSING]
    return bool(known) and not any(character.isdigit() for cell in known for character in cell[:2])
