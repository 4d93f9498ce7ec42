"""How the commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_WIDE = 240
"""Columns where nobody's terminal sets them: what reads a pipe wants whole names on one line."""
out = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)


def print_json(content: Any) -> None:
    print(json.dumps(content, indent=2))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], nothing: str) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    out.print(table if table.row_count else nothing)


def moment(epoch: float | None) -> str:
    """Local time to the minute."""
    return "" if epoch is None else datetime.fromtimestamp(epoch).astimezone().strftime("%Y-%m-%d %H:%M")


def path_part(text: str) -> str:
    """A name as a part of a path of REST."""
    from urllib.parse import quote

    return quote(text, safe="")
