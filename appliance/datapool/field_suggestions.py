"""Suggests fields for the columns of a file: a valid name, and a type that fits all sample values."""

import re
from collections.abc import Sequence
from typing import Any

from appliance.datapool.definition import RESERVED_FIELDS
from appliance.datapool.field_types import FIELD_TYPES, MAX_SCALE, InvalidValue

EMPTY_CELLS = ("", "NULL", "null")
MAX_NAME_LENGTH = 40
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_INTEGER = re.compile(r"[-+]?(0|[1-9]\d{0,17})")
_DECIMAL = re.compile(r"[-+]?(0|[1-9]\d*)\.(\d+)")
_MIDNIGHT_OR_DAY = re.compile(r"\d{4}-\d{2}-\d{2}([T ]00:00(:00(\.0+)?)?Z?)?|\d{1,2}\.\d{1,2}\.\d{4}")
_KEY_NAME = re.compile(r"(^|_)(id|number|no|code|sku|key)$")


def suggest_fields(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """A field for each column, in order; the first column that looks like a key and has no duplicates becomes unique."""
    fields: list[dict[str, Any]] = []
    used_names: dict[str, int] = {}
    has_key = False
    for position, column in enumerate(columns):
        name = _choose_name(column, position, used_names)
        values = [row[position] for row in rows if row[position] not in EMPTY_CELLS]
        fields.append({"name": name, **_suggest_type(values)})
        if not has_key and _KEY_NAME.search(name) and len(set(values)) == len(rows):
            fields[-1] |= {"unique": True, "required": True}
            has_key = True
    return fields


def _choose_name(column: str, position: int, used_names: dict[str, int]) -> str:
    """The field name of a column: `Order ID` and `OrderID` become `order_id`, one without a letter `column_<n>`.

    `taken` maps the names in use to the last number that was appended to make one unique.
    """
    plain = "_".join(_WORDS.findall(column)).lower()[:MAX_NAME_LENGTH].strip("_")
    if not plain or not plain[0].isalpha() or plain in RESERVED_FIELDS:
        plain = f"column_{plain or position + 1}"
    name = plain
    while name in used_names:
        used_names[plain] += 1
        name = f"{plain}_{used_names[plain]}"
    used_names[name] = 1
    return name


def _suggest_type(values: Sequence[str]) -> dict[str, Any]:
    if not values:
        return {"type": "text"}
    if all(_INTEGER.fullmatch(value) for value in values):
        return {"type": "integer"}
    if all(_INTEGER.fullmatch(value) or _DECIMAL.fullmatch(value) for value in values):
        digits = max(len(value.partition(".")[2]) for value in values)
        return {"type": "decimal", "scale": digits} if digits <= 6 else {"type": "number" if digits > MAX_SCALE else "decimal"}
    if all(value.lower() in ("true", "false", "yes", "no") for value in values):
        return {"type": "boolean"}
    if all(_MIDNIGHT_OR_DAY.fullmatch(value) and _fits("date", value) for value in values):
        return {"type": "date"}
    for kind in ("datetime", "email", "url"):
        if all(_fits(kind, value) for value in values):
            return {"type": kind}
    return {"type": "text"}


def _fits(kind: str, value: str) -> bool:
    field_type = FIELD_TYPES[kind]
    try:
        field_type.build_parser({})(field_type.parse_cell(value))
    except InvalidValue:
        return False
    return True
