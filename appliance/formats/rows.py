"""Table rows: column names, conversion of cells, and reading the rows to write."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .errors import ContentInvalid
from .request import Request

TYPES = ("text", "integer", "number", "boolean")
MAX_COLUMNS = 16_384
LARGEST_INTEGER = 2**53
_INTEGER = re.compile(r"[+-]?\d{1,4000}")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?")
_BOOLEANS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}


def column_names(cells: Sequence[Any]) -> list[str]:
    """The column names of a header: an empty one becomes `column_<n>`, a repeated one gets `_2`, `_3`, …"""
    if len(cells) > MAX_COLUMNS:
        raise ContentInvalid(f"the header has {len(cells)} columns; the maximum is {MAX_COLUMNS}")
    names: dict[str, None] = {}
    for number, cell in enumerate(cells, 1):
        name = base_name = scalar_text(cell).strip() or f"column_{number}"
        suffix = 2
        while name in names:
            name, suffix = f"{base_name}_{suffix}", suffix + 1
        names[name] = None
    return list(names)


def build_row(columns: Sequence[str], cells: Sequence[Any], types: Mapping[str, str], where: str) -> dict[str, Any]:
    """The row as an object; cells of the columns in `types` are converted, empty ones to null."""
    row = dict(zip(columns, cells, strict=True))
    for name, kind in types.items():
        if name not in row:
            raise ContentInvalid(f"`types` names {name[:60]!r}, which is not a column; columns are {', '.join(columns)[:300]}")
        try:
            row[name] = convert(row[name], kind)
        except ValueError:
            raise ContentInvalid(f"{where}: {name} is {str(row[name])[:60]!r}, which is not a valid {kind}") from None
    return row


def convert(cell: Any, kind: str) -> Any:
    """Convert a cell to this type; ValueError if it does not fit."""
    text = scalar_text(cell).strip()
    if kind == "text":
        return scalar_text(cell)
    if text == "":
        return None
    if kind == "integer" and _INTEGER.fullmatch(text):
        return to_exact_json(int(text))
    if kind == "number" and _NUMBER.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    if kind == "boolean" and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    raise ValueError(kind)


def to_exact_json(number: int) -> int | str:
    """The integer, or its text if a JSON number cannot represent it exactly everywhere (docs/contract.md § 17)."""
    return number if -LARGEST_INTEGER <= number <= LARGEST_INTEGER else str(number)


def scalar_text(value: Any) -> str:
    """A value as the text of a cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


# -- Rows to write: lines of JSON, each an object or a list.


def find_columns(request: Request) -> list[str]:
    """The given columns, or every member of any row, in order of first appearance."""
    columns = request.options.get("columns")
    if columns is not None:
        return list(columns)
    names: dict[str, None] = {}
    for row in _rows(request):
        if isinstance(row, dict):
            names |= dict.fromkeys(row)
    if len(names) > MAX_COLUMNS:
        raise ContentInvalid(f"the rows have {len(names)} columns; the maximum is {MAX_COLUMNS}; select some with `columns`")
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
