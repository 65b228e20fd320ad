"""Arranges a JSON value for reading: name-value pairs, tables for similar objects, lists.  Nothing is omitted."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from appliance.core.texts import gettext as _

MOST_COLUMNS = 8
MOST_NESTED = 5
LONG_TEXT, LONG_LINES = 500, 12


@dataclass(frozen=True)
class Block:
    """One part of the arrangement.

    `text` holds a plain value, or the JSON of a deeply nested one; `pairs` are names with blocks; a table has `columns` and
    `rows` of texts; a list has `rows` of one text; `items` are the blocks of objects that do not fit into a table.
    """

    kind: Literal["text", "json", "pairs", "table", "list", "items"]
    text: str = ""
    pairs: "list[tuple[str, Block]]" = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    items: "list[Block]" = field(default_factory=list)

    @property
    def is_long(self) -> bool:
        """Whether the page shows the text collapsed at first."""
        return len(self.text) > LONG_TEXT or self.text.count("\n") >= LONG_LINES

    @property
    def beginning(self) -> str:
        """The summary of a collapsed text: its first 120 characters on one line."""
        return f"{' '.join(self.text[:LONG_TEXT].split())[:120]}…"


def describe(value: Any, depth: int = 0) -> Block:
    """Arrange a whole JSON value; below `MOST_NESTED` levels it is shown as JSON text."""
    if _is_plain(value):
        return Block("text", text=_plain(value))
    if depth < MOST_NESTED and isinstance(value, Mapping) and value:
        return Block("pairs", pairs=[(heading(str(name)), describe(item, depth + 1)) for name, item in value.items()])
    if isinstance(value, list) and value and all(_is_plain(item) for item in value):
        return Block("list", rows=[[_plain(item)] for item in value])
    if isinstance(value, list) and (columns := _columns(value)):
        rows = [[_plain(item[name]) if name in item else "" for name in columns] for item in value]
        return Block("table", columns=[heading(name) for name in columns], rows=rows)
    if depth < MOST_NESTED and isinstance(value, list) and value:
        return Block("items", items=[describe(item, depth + 1) for item in value])
    return Block("json", text=json.dumps(value, ensure_ascii=False, indent=2))


def leaves(value: Any, label: str = "") -> Iterator[tuple[str, str]]:
    """Every plain value within a JSON value, with its path as a label: `Order · Lines 2 · Price`."""
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from leaves(item, f"{label} · {heading(str(name))}" if label else heading(str(name)))
    elif isinstance(value, list) and value and not all(_is_plain(item) for item in value):
        for number, item in enumerate(value, 1):
            yield from leaves(item, f"{label} {number}" if len(value) > 1 else label)
    elif isinstance(value, list) and value:
        yield label, ", ".join(_plain(item) for item in value)
    else:
        yield label, _plain(value) if _is_plain(value) else json.dumps(value)


def heading(name: str) -> str:
    """`unit_price` as `Unit price`; other spellings are unchanged."""
    text = name.replace("_", " ").strip()
    return f"{text[:1].upper()}{text[1:]}" or name


def _columns(items: list[Any]) -> list[str]:
    """The column names for a table of these objects, in order of appearance; empty when a table does not suit them."""
    names: dict[str, None] = {}
    for item in items:
        if not isinstance(item, Mapping) or not all(_is_plain(inner) for inner in item.values()):
            return []
        names |= dict.fromkeys(map(str, item))
    return list(names) if len(names) <= MOST_COLUMNS else []


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _plain(value: Any) -> str:
    if value is None:
        return "\N{EN DASH}"
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    return value if isinstance(value, str) else json.dumps(value)
