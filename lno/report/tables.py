"""Tables that are shown on a terminal, in Markdown and in HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import rich.box
import rich.table
import rich.text

from lno.report import html
from lno.text import markdown, visible

MISSING = html.MISSING
SHORT = 180  # characters of notes that are shown at once; longer ones on a click


@dataclass(frozen=True)
class Table:
    """A table of text, with a title and remarks below it.

    Args:
        title: what it shows.
        header: the names of its columns.
        rows: cells, as many in each as there are columns.
        notes: sentences below it: protocol, hardware, the command that makes it.
        keys: how many of the first columns name a row.
        aside: names of other columns that hold no results: seeds, the paper's numbers.
        footnotes: sentences below the notes, by the first cell of the rows that they are about.

    >>> print(Table("Errors", ["model", "error"], [["LNO", "0.5 %"]]).markdown())
    | model | error |
    |---|---|
    | LNO | 0.5 % |
    """

    title: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    keys: int = 1
    aside: Sequence[str] = ()
    footnotes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def remarks(self) -> list[str]:
        """The notes, and the footnotes of its rows."""
        return [*self.notes, *(text for several in self.footnotes.values() for text in several)]

    def markdown(self, first: str = "") -> str:
        """The table and its notes, without the title; another note `first`."""
        header, *rows = ([markdown(cell) for cell in row] for row in (self.header, *self.rows))
        lines = [
            f"| {' | '.join(header)} |",
            f"|{'---|' * len(header)}",
            *(f"| {' | '.join(row)} |" for row in rows),
        ]
        return "\n".join(
            [*lines, *(f"\n{markdown(note)}" for note in ([first] * bool(first) + self.remarks))]
        )

    def html(self, caption: bool = False, first: str = "") -> str:
        """The table and its notes, those that are long folded; with its title if asked for.

        A note `first` is never folded.
        """
        shown = html.table(
            self.header, self.rows, caption=self.title if caption else "", label=self.title
        )
        notes = [html.paragraph(note, note=True) for note in self.remarks]
        if sum(map(len, self.remarks)) > SHORT:
            notes = [html.folded("How this was measured", notes)]
        above = [html.paragraph(first, note=True)] if first else []
        return "\n".join([shown, *above, *notes])

    def rich(self) -> rich.table.Table:
        """For a terminal; in a narrow one cells are folded, never cut: they are results."""
        shown = rich.table.Table(
            title=self.title,
            box=rich.box.SIMPLE_HEAD,
            collapse_padding=True,
            pad_edge=False,
            show_edge=False,
        )
        for name in self.header:
            shown.add_column(rich.text.Text(visible(name)), overflow="fold")
        for row in self.rows:
            shown.add_row(*(rich.text.Text(visible(cell)) for cell in row))
        return shown


def spread(values: list[float], scale: float = 100.0, digits: int = 3) -> str:
    """The mean of several numbers and their standard deviation: "0.735 ± 0.004".

    >>> spread([0.01, 0.02]), spread([0.01]), spread([])
    ('1.500 ± 0.707', '1.000', 'missing')
    """
    if not values:
        return MISSING
    mean = sum(values) / len(values)
    shown = f"{scale * mean:.{digits}f}"
    if len(values) == 1:
        return shown
    variance = sum((v - mean) ** 2 for v in values) / (len(values) - 1)
    return f"{shown} ± {scale * variance**0.5:.{digits}f}"
