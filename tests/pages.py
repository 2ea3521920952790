"""Reading a page back: its links, headings, tables and pictures."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "img", "br"}


@dataclass
class Page(HTMLParser):
    """What a page consists of; a tag that is not closed is an error."""

    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    alts: list[str] = field(default_factory=list)
    headings: list[tuple[int, str]] = field(default_factory=list)
    scopes: list[str | None] = field(default_factory=list)
    tags: set[str] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = dict(attrs)
        self.tags.add(tag)
        if tag not in VOID:
            self._open.append(tag)
        if has.get("id"):
            self.ids.append(str(has["id"]))
        if tag == "a":
            self.links.append(str(has["href"]))
        if tag == "img":
            self.alts.append(has.get("alt") or "")
            self.sources.append(str(has["src"]))
        if tag == "th":
            self.scopes.append(has.get("scope"))
        if tag[0] == "h" and tag[1:].isdigit():
            self.headings.append((int(tag[1:]), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "style":
            return
        self.texts.append(data)
        if self._open and self._open[-1][0] == "h" and self._open[-1][1:].isdigit():
            level, text = self.headings[-1]
            self.headings[-1] = (level, text + data)

    @property
    def text(self) -> str:
        """All that is read on it."""
        return " ".join(self.texts).replace("\u00a0", " ")


def read(text: str) -> Page:
    """A page, which must be sound: tags closed, links that lead somewhere, headings in order."""
    page = Page()
    page.feed(text)
    page.close()
    assert not page._open
    assert len(set(page.ids)) == len(page.ids)
    for to in page.links:
        assert to.startswith("#") and to[1:] in page.ids, to
    levels = [level for level, _ in page.headings]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    assert all(page.alts) and all(src.startswith("data:image/png") for src in page.sources)
    assert all(scope in ("row", "col") for scope in page.scopes)
    # No address. ("http" alone may occur by chance among the letters of a picture.)
    assert "script" not in page.tags and "://" not in text
    return page
