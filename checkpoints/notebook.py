"""What a notebook shows of a run, its heads or an audit: small HTML tables in which every word is escaped.

Whoever ends a cell with a run wants to see what it is: that must never fail, so what cannot be told says why, and it
must not wait, so no weights are read for it and no server is asked.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

LONGEST = 20
"""Rows of a table; how many there are besides is said."""

_LEFT = "style='text-align: left'"


def told(tell: Callable[[], object]) -> str:
    """What there is to tell, or why that cannot be told."""
    try:
        return str(tell())
    except Exception as error:
        return f"cannot be told: {str(error) or type(error).__name__}"


def titled(title: object, *tables: str) -> str:
    """Tables under a title."""
    return f"<div><b>{_text(title)}</b>{''.join(tables)}</div>"


def facts_table(facts: Mapping[str, Callable[[], object]]) -> str:
    """One row per fact, each told by a function that may fail."""
    cells = [(_text(name), _text(told(tell))) for name, tell in facts.items()]
    rows = [f"<tr><th {_LEFT}>{name}</th><td {_LEFT}>{fact}</td></tr>" for name, fact in cells]
    return f"<table>{''.join(rows)}</table>"


def rows_table(header: Sequence[str], rows: Sequence[Iterable[object]]) -> str:
    """Rows under a header; of many the first."""
    head = "".join(f"<th {_LEFT}>{_text(name)}</th>" for name in header)
    body = [f"<tr>{''.join(f'<td {_LEFT}>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows[:LONGEST]]
    more = f"<p>and {len(rows) - LONGEST} more</p>" if len(rows) > LONGEST else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{more}"


def in_bytes(count: int) -> str:
    """A size as people say it: 28 bytes, 1.2 MB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _text(value: object) -> str:
    return escape(told(lambda: value))
