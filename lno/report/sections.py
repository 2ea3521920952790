"""Sections of a report: text, tables and pictures under a heading, as HTML and as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from matplotlib.figure import Figure

from lno.report import html
from lno.report.compact import compact
from lno.report.tables import Table
from lno.text import markdown as harmless


@dataclass(frozen=True)
class Picture:
    """A figure and what it shows.

    Args:
        caption: below it.
        draw: makes it; called only where it is shown. None: there is nothing to draw.
        kept: whether a Markdown page shows it too, from a file; then there must be something.
    """

    caption: str
    draw: Callable[[], Figure | None]
    kept: bool = False


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Args:
        kind: good, part, bad or open.
        text: the same in a word or two.
        why: in a sentence or two.
        state: how many runs there are.
    """

    kind: str
    text: str
    why: str = ""
    state: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a report. All text is plain, with `code` between backticks.

    Args:
        title: its heading; no two sections of a page have the same.
        text: how to read it, in paragraphs.
        command: makes what it shows.
        tables: shown with their titles if there are several.
        figures: after the first table.
        verdict: of a claim that it checks.
        parts: sections below it, one level deeper.
        more: sections that HTML shows on a click.

    >>> print(Section("Errors", "Smaller is better.", command="lno report").markdown(2))
    ## Errors
    <BLANKLINE>
    `lno report`
    <BLANKLINE>
    Smaller is better.
    """

    title: str
    text: str = ""
    command: str = ""
    tables: Sequence[Table] = ()
    figures: Sequence[Picture] = ()
    verdict: Verdict | None = None
    parts: Sequence[Section] = ()
    more: Sequence[Section] = ()

    def html(self, level: int = 2) -> str:
        """The section and all below it."""
        return f"<section>\n{html.heading(self.title, level)}\n{self._body(level)}\n</section>"

    def _body(self, level: int) -> str:
        """All but the heading."""
        body = [*self._status()]
        body += [html.paragraph(text) for text in _paragraphs(self.text)]
        if self.verdict is not None and self.verdict.why:
            body.append(f"<p class=why>{html.prose(self.verdict.why)}</p>")
        tables = [
            table.html(caption=len(self.tables) > 1, first=waiting)
            for table, waiting in self._known()
        ]
        body += [*tables[:1], *self._pictures(), *tables[1:]]
        body += [html.paragraph(text, note=True) for text in self._unknown()]
        for section in self.more:
            inside = f"<section>\n{section._body(level + 1)}\n</section>"
            body.append(html.folded(section.title, [inside]))
        body += [part.html(level + 1) for part in self.parts]
        return "\n".join(body)

    def markdown(self, level: int = 2, images: str = "") -> str:
        """The section and all below it; pictures that are kept come from the folder `images`."""
        body = [f"{'#' * level} {harmless(self.title)}"]
        line = [f"`{self.command}`"] if self.command else []
        if self.verdict is not None:
            said = [harmless(text) for text in (self.verdict.text, self.verdict.state) if text]
            line = [f"**{said[0]}**", *said[1:], *line]
        body += [" · ".join(line)] if line else []
        body += [harmless(text) for text in _paragraphs(self.text)]
        body += [harmless(self.verdict.why)] if self.verdict and self.verdict.why else []
        tables = [
            f"**{harmless(table.title)}**\n\n" * (len(self.tables) > 1) + table.markdown(waiting)
            for table, waiting in self._known()
        ]
        shown = [
            f"![{harmless(picture.caption)}]({images}{name})\n\n*{harmless(picture.caption)}*"
            for name, picture in self._files()
        ]
        body += [*tables[:1], *shown, *tables[1:]]
        body += map(harmless, self._unknown())
        kept = [section for section in self.more if section.tables or any(section.files())]
        body += [part.markdown(level + 1, images) for part in (*kept, *self.parts)]
        return "\n\n".join(body)

    def _known(self) -> Iterator[tuple[Table, str]]:
        """Its tables that have results, compact, and what each of them still waits for."""
        for table in self.tables:
            small, waiting = compact(table)
            if small.rows or not table.rows:
                yield small, waiting

    def _unknown(self) -> list[str]:
        """A sentence about each table that has no results yet."""
        found = [(compact(table), table) for table in self.tables]
        return [said for (small, said), table in found if table.rows and not small.rows]

    def files(self) -> Iterator[tuple[str, Picture]]:
        """The pictures that a Markdown page shows, with the names of their files."""
        yield from self._files()
        for section in (*self.more, *self.parts):
            yield from section.files()

    def _files(self) -> Iterator[tuple[str, Picture]]:
        kept = [picture for picture in self.figures if picture.kept]
        name = html.slug(self.title.split(".")[0])
        for k, picture in enumerate(kept, start=1):
            yield f"{name}{f'-{k}' * (len(kept) > 1)}.png", picture

    def _status(self) -> list[str]:
        parts = []
        if self.verdict is not None:
            parts.append(html.verdict(self.verdict.kind, self.verdict.text))
            parts += [f"<span>{html.inline(self.verdict.state)}</span>"] * bool(self.verdict.state)
        parts += [f"<span>{html.inline(f'`{self.command}`')}</span>"] * bool(self.command)
        return [f"<p class=status>{''.join(parts)}</p>"] if parts else []

    def _pictures(self) -> Iterator[str]:
        for picture in self.figures:
            try:
                figure = picture.draw()
            except ValueError as error:  # of a damaged file, which it names
                yield html.paragraph(f"{picture.caption}: {error}", note=True)
                continue
            if figure is not None:
                yield html.picture(figure, picture.caption, picture.caption)


def contents(sections: Sequence[Section]) -> str:
    """Links to sections and to their parts, which are called what stands before a full stop."""
    items = []
    for section in sections:
        below = " ".join(html.link(_short(part), part.title) for part in section.parts)
        items.append(f"<li>{html.link(section.title, section.title)} <span>{below}</span></li>")
    kind = "" if any(section.parts for section in sections) else " class=flat"
    return f'<nav aria-label="Contents"><h2>Contents</h2><ul{kind}>{"".join(items)}</ul></nav>'


def contents_markdown(sections: Sequence[Section]) -> str:
    """Links to sections in one line of Markdown."""
    return " · ".join(
        f"[{harmless(section.title)}](#{html.slug(section.title)})" for section in sections
    )


def each_note_once(sections: Sequence[Section], seen: set[str] | None = None) -> list[Section]:
    """Sections whose tables do not repeat a note that an earlier table has; commands are kept."""
    seen, found = set() if seen is None else seen, []
    for section in sections:
        tables = []
        for table in section.tables:
            notes = [note for note in table.notes if note not in seen]
            seen |= {note for note in notes if not note.startswith("`")}
            tables.append(replace(table, notes=notes))
        more, parts = (each_note_once(each, seen) for each in (section.more, section.parts))
        found.append(replace(section, tables=tables, more=more, parts=parts))
    return found


def _short(section: Section) -> str:
    return section.title.split(". ")[0]


def _paragraphs(text: str) -> list[str]:
    return [part for part in text.split("\n\n") if part]
