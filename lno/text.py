"""Text from files, made harmless for where it is shown: a terminal, Markdown, a picture, HTML.

Names, units and provenance come from files that may be hostile. On a terminal their control
characters would move the cursor or change its title; in Markdown they could be HTML, links and
columns; in pictures, formulas that cannot be drawn. HTML pages escape all text, `lno.report.html`,
and so does the table of a notebook.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from html import escape

HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # controls, formats, surrogates, separators of lines
LONGEST = 200  # characters of one text in a picture
DIMENSIONLESS = ("", "1", "-", "–")  # units of numbers without one
_MARKDOWN = {
    **{character: f"\\{character}" for character in "\\|[]"},
    **{"&": "&amp;", "<": "&lt;", ">": "&gt;"},
}
_CODE = re.compile(r"`[^`<]+`")


def visible(text: object, keep: str = "") -> str:
    r"""Text with control characters shown as escapes, but those in `keep`.

    >>> visible("height\x1b[31m"), visible("two\nlines"), visible("two\nlines", keep="\n")
    ('height\\x1b[31m', 'two\\nlines', 'two\nlines')
    """
    shown = str(text)
    if shown.isascii() and shown.isprintable():
        return shown
    return "".join(
        character
        if character in keep or unicodedata.category(character) not in HIDDEN
        # `ascii` writes every such character with a backslash.
        else ascii(character)[1:-1]
        for character in shown
    )


def markdown(text: object) -> str:
    r"""Text for a cell or a line of Markdown: no HTML, no links, no further columns.

    Emphasis and code stay, so that tables can use them. Markdown shows code as it is written, so
    nothing in it is escaped but `|`, which would begin a column. Backticks that do not plainly
    enclose code, or enclose what may be HTML, are characters like others.

    >>> print(markdown("<script> | [a](b)"))
    &lt;script&gt; \| \[a\](b)
    >>> print(markdown("a & b: `make a && make b`"), markdown("no code: `<b>"))
    a &amp; b: `make a && make b` no code: \`&lt;b&gt;
    """
    shown = visible(text)
    codes = list(_CODE.finditer(shown))
    if 2 * len(codes) != shown.count("`") or "``" in shown:
        return _escaped(shown).replace("`", r"\`")
    parts, end = [], 0
    for code in codes:
        parts += [_escaped(shown[end : code.start()]), code.group().replace("|", r"\|")]
        end = code.end()
    return "".join([*parts, _escaped(shown[end:])])


def _escaped(text: str) -> str:
    return "".join(_MARKDOWN.get(character, character) for character in text)


def plain(text: object) -> str:
    r"""Text for matplotlib: no formulas, one line, cut where it is too long to be read.

    >>> print(plain("$u$"))
    \$u\$
    """
    shown = visible(text)
    shown = shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"
    return shown.replace("$", r"\$")


def with_unit(name: str, unit: str) -> str:
    """The name of a quantity with its unit; alone where it has none or is dimensionless.

    >>> with_unit("p", "Pa"), with_unit("u0", ""), with_unit("Mach number", "1")
    ('p [Pa]', 'u0', 'Mach number')
    """
    return name if unit.strip() in DIMENSIONLESS else f"{name} [{unit.strip()}]"


def amount(number: str, unit: str) -> str:
    """A number with its unit, if it has one.

    >>> amount("0.25", "m"), amount("0.25", "")
    ('0.25 m', '0.25')
    """
    return number if unit.strip() in DIMENSIONLESS else f"{number} {unit.strip()}"


def html_table(title: str, rows: Sequence[Sequence[object]]) -> str:
    """A small table for notebooks: a title, and rows whose first cell says what the others are.

    >>> html_table("a < b", [["u", "1"]])
    '<b>a &lt; b</b><table><tr><th>u</th><td>1</td></tr></table>'
    """
    lines = []
    for first, *others in rows:
        cells = "".join(f"<td>{escape(visible(cell))}</td>" for cell in others)
        lines.append(f"<tr><th>{escape(visible(first))}</th>{cells}</tr>")
    return f"<b>{escape(visible(title))}</b><table>{''.join(lines)}</table>"


def significant(number: float) -> str:
    """A number with three digits, without an exponent.

    >>> significant(597.04), significant(1254.0), significant(0.2345)
    ('597', '1,250', '0.234')
    """
    return f"{float(f'{number:.3g}'):,g}"


def percent(share: float) -> str:
    """A share with two decimals, or with two digits where it is small.

    >>> percent(0.1234), percent(0.00001234)
    ('12.34 %', '0.0012 %')
    """
    return f"{100 * share:.2f} %" if abs(share) >= 1e-3 or share == 0 else f"{100 * share:.2g} %"
