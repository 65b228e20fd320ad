"""Rows of tables: column names, types of cells, and the rows that are to be written."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .failing import ContentInvalid
from .request import Request

TYPES = ("text", "integer", "number", "boolean")
MOST_COLUMNS = 16_384
LARGEST_INTEGER = 2**53
_INTEGER = re.compile(r"[+-]?\d{1,4000}")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?")
_BOOLEANS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}


def column_names(cells: Sequence[Any]) -> list[str]:
    """The header's names: an empty one is `column_<n>`, one that comes again gets `_2`, `_3`, …"""
    if len(cells) > MOST_COLUMNS:
        raise ContentInvalid(f"the header has {len(cells)} columns; at most {MOST_COLUMNS} are read")
    names: dict[str, None] = {}
    for number, cell in enumerate(cells, 1):
        name = wanted = scalar_text(cell).strip() or f"column_{number}"
        again = 2
        while name in names:
            name, again = f"{wanted}_{again}", again + 1
        names[name] = None
    return list(names)


def make_row(columns: Sequence[str], cells: Sequence[Any], types: Mapping[str, str], where: str) -> dict[str, Any]:
    """The row as an object; columns of `types` are converted, an empty one of them is null."""
    row = dict(zip(columns, cells, strict=True))
    for name, kind in types.items():
        if name not in row:
            raise ContentInvalid(f"`types` names {name[:60]!r}, which is no column; there are {', '.join(columns)[:300]}")
        try:
            row[name] = convert(row[name], kind)
        except ValueError:
            raise ContentInvalid(f"{where}: {name} is {str(row[name])[:60]!r}, which is no {kind}") from None
    return row


def convert(cell: Any, kind: str) -> Any:
    """A cell as this type; ValueError."""
    text = scalar_text(cell).strip()
    if kind == "text":
        return scalar_text(cell)
    if text == "":
        return None
    if kind == "integer" and _INTEGER.fullmatch(text):
        return exact(int(text))
    if kind == "number" and _NUMBER.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    if kind == "boolean" and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    raise ValueError(kind)


def exact(number: int) -> int | str:
    """Integers that a JSON number does not carry exactly everywhere travel as text (CONTRACT § 17)."""
    return number if -LARGEST_INTEGER <= number <= LARGEST_INTEGER else str(number)


def scalar_text(value: Any) -> str:
    """A value as the text of a cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


# -- rows to be written: lines of JSON, each an object or a list


def find_columns(request: Request) -> list[str]:
    """The given columns, else every member that a row has, in the order of their first appearance."""
    given = request.options.get("columns")
    if given is not None:
        return list(given)
    names: dict[str, None] = {}
    for row in _rows(request):
        if isinstance(row, dict):
            names |= dict.fromkeys(row)
    if len(names) > MOST_COLUMNS:
        raise ContentInvalid(f"the rows have {len(names)} columns; at most {MOST_COLUMNS} are written, give `columns`")
    return list(names)


def read_rows(request: Request, columns: Sequence[str]) -> Iterator[list[Any]]:
    """The rows as lists of cells."""
    for number, row in enumerate(_rows(request), 1):
        if isinstance(row, list):
            yield row
        elif isinstance(row, dict):
            yield [row.get(name) for name in columns]
        else:
            raise ContentInvalid(f"row {number} of `data` is neither an object nor a list")


def _rows(request: Request) -> Iterator[Any]:
    request.content.seek(0)
    for line in request.content:
        yield json.loads(line)
