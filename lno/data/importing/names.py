"""The variables that a user means, where their names have a colon or a unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lno.data.csv_text import without_units
from lno.data.imports.source import Source
from lno.data.mapping import Layout, Roles, Term, Terms


def as_in(source: Source, roles: Roles, layout: Layout) -> tuple[Roles, Layout]:
    """Roles and layout with the names that variables have in a file."""
    found = Roles(**{role: terms_in(source, terms) for role, terms in roles.each()})
    own = own_name(source)

    def one(name: str | None) -> str | None:
        return None if name is None else own(name)

    return found, replace(
        layout,
        sample=one(layout.sample),
        time=one(layout.time),
        axes=tuple(map(own, layout.axes)),
        log=tuple(map(own, layout.log)),
        units={own(name): unit for name, unit in (layout.units or {}).items()},
        period={own(name): length for name, length in (layout.period or {}).items()},
    )


def terms_in(source: Source, terms: Terms) -> Terms:
    """Terms with the names that variables have in a file.

    After a colon stand the names of columns, unless the file has a variable of the whole name:
    ParaView writes Points:0, Points:1. `Points:0:x` calls it x.
    """
    known, own = source.variables, own_name(source)
    found: list[Term] = []
    for term in terms:
        pieces = [f"{term.variable}:{name}" for name in term.columns[:1]]
        first = next((own(p.rpartition(":")[0]) for p in pieces if p.count(":") > 1), "")
        whole = [own(piece) for piece in pieces if own(piece) in known]
        if term.variable in known or not (whole or first in known):
            found.append(replace(term, variable=own(term.variable)))
            continue
        called = pieces[0].rpartition(":")[2]
        found.append(Term(whole[0]) if whole else Term(first, (called,)))
        found += [Term(own(name)) for name in term.columns[1:]]
    return tuple(found)


def own_name(source: Source) -> Callable[[str], str]:
    """A function that takes the unit off a name, `p [Pa]`, if the file has it without."""

    def own(name: str) -> str:
        [short], _ = without_units([name])
        return short if name not in source.variables and short in source.variables else name

    return own
