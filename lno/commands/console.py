"""Where commands print: what was asked for to `out`, what they do meanwhile to `err`."""

from __future__ import annotations

from rich.console import Console

out, err = Console(highlight=False), Console(stderr=True, highlight=False)
