"""For the documentation site: shows the doctests of docstrings as code.

Docstrings here put their examples at the end, without a heading. Google's style, which the site's
generator reads, wants the heading "Examples:" and indented lines.
"""

from __future__ import annotations

from typing import Any

from griffe import Extension, Object


class DoctestSections(Extension):
    """Puts the heading before the first line of a docstring that begins with `>>>`."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is None:
            return
        lines = obj.docstring.value.splitlines()
        first = next((k for k, line in enumerate(lines) if line.startswith(">>>")), None)
        if first is not None:
            example = ["    " + line if line else "" for line in lines[first:]]
            obj.docstring.value = "\n".join([*lines[:first], "Examples:", *example])
