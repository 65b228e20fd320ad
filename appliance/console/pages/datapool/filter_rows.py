"""Entity filters as form rows of field, operator and value, converted to filter JSON and back."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from appliance.core.errors import ApplianceError, InvalidFilter
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.core.texts import gettext as _
from appliance.core.texts import mark
from appliance.datapool import normalize_time
from appliance.datapool import service as datapool

MOST_ROWS = 8
# The labels of the operators; `_filled` exists only in the form and means `_null: false`.
WORDS: Mapping[str, str] = {
    "_eq": mark("is"), "_neq": mark("is not"), "_icontains": mark("contains"), "_starts_with": mark("begins with"),
    "_gt": mark("is more than"), "_gte": mark("is at least"), "_lt": mark("is less than"), "_lte": mark("is at most"),
    "_between": mark("is between"), "_in": mark("is one of"), "_nin": mark("is none of"), "_null": mark("is empty"),
    "_filled": mark("is not empty"), "_contains": mark("contains exactly"),
}  # fmt: skip
WITHOUT_VALUE = ("_null", "_filled")
LISTS = ("_in", "_nin", "_between")
_OPERATOR = re.compile(r"\b_[a-z]+\b|(?<=[ ,])_[a-z]+")
_WHOLE = re.compile(r"[+-]?\d{1,20}")
_BOOLEANS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


@dataclass(frozen=True)
class Row:
    """One comparison in the form; `error` is the message next to it."""

    field: str = ""
    operator: str = "_eq"
    value: str = ""
    error: str = ""

    @property
    def words(self) -> str:
        """The comparison as a phrase: `total is more than 100`."""
        comparison = _(WORDS[self.operator]) if self.operator in WORDS else self.operator
        if self.operator in WITHOUT_VALUE:
            return _("%(field)s %(comparison)s", field=self.field, comparison=comparison)
        return _("%(field)s %(comparison)s %(value)s", field=self.field, comparison=comparison, value=self.value)


def parse_rows(args: Mapping[str, str]) -> list[Row]:
    """The rows of the submitted form, without those that name no field."""
    rows = [Row(args.get(f"f{n}", ""), args.get(f"o{n}", "_eq"), args.get(f"v{n}", "").strip()) for n in range(MOST_ROWS)]
    return [row for row in rows if row.field]


def check_rows(scope: TenantScope, collection: Mapping[str, Any], rows: list[Row]) -> list[Row]:
    """The rows, each with its error if it has one."""
    return [replace(row, error=_find_error(scope, collection, row)) for row in rows]


def _find_error(scope: TenantScope, collection: Mapping[str, Any], row: Row) -> str:
    try:
        _check(scope, collection, row)
    except InvalidFilter as error:
        return error.message
    return ""


def _check(scope: TenantScope, collection: Mapping[str, Any], row: Row) -> None:
    """InvalidFilter when the row is invalid, with operators named as in the form."""
    if row.operator not in WORDS:
        raise InvalidFilter("choose a comparison")
    if row.value == "" and row.operator not in WITHOUT_VALUE:
        raise InvalidFilter(Sentence("enter a value to compare %(field)s with, or choose “is empty”", field=repr(row.field)))
    try:
        datapool.check_filter(scope, collection["name"], filter_of(collection, [row]), "", allow_relations=True)
    except ApplianceError as error:
        message = _OPERATOR.sub(lambda match: WORDS.get(match[0], match[0]), error.message)
        if f"{row.field!r}" in message:
            raise InvalidFilter(message) from error
        raise InvalidFilter(Sentence("the field %(field)s: %(message)s", field=repr(row.field), message=message)) from error


def filter_of(collection: Mapping[str, Any], rows: list[Row]) -> dict[str, Any]:
    """The filter JSON of all rows, combined with "and"."""
    kinds = {field["name"]: field["type"] for field in collection["fields"]}
    parts = [{row.field: _comparison(kinds.get(row.field, ""), row)} for row in rows]
    names = [row.field for row in rows]
    if len(set(names)) == len(names):
        return {name: value for part in parts for name, value in part.items()}
    return {"_and": parts}


def _comparison(kind: str, row: Row) -> dict[str, Any]:
    if row.operator in WITHOUT_VALUE:
        return {"_null": row.operator == "_null"}
    if row.operator in LISTS:
        return {row.operator: [value_of(kind, part.strip()) for part in row.value.split(",")]}
    is_text = row.operator in ("_icontains", "_contains", "_starts_with")
    return {row.operator: row.value if is_text else value_of(kind, row.value)}


def value_of(kind: str, text: str) -> Any:
    """Convert text to a value of the field's type; text that does not fit is returned unchanged, for the filter check to refuse."""
    if kind == "integer" or (kind == "" and _WHOLE.fullmatch(text)):
        return int(text) if _WHOLE.fullmatch(text) else text
    if kind == "number":
        try:
            return int(text) if _WHOLE.fullmatch(text) else float(text)
        except ValueError:
            return text
    if kind == "boolean":
        return _BOOLEANS.get(text.lower(), text)
    if kind in ("datetime", ""):
        return normalize_time(text)
    if kind == "json":
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def rows_of(chosen: Any) -> list[Row] | None:
    """The rows that represent this filter; None when it is too complex for rows."""
    if not isinstance(chosen, Mapping):
        return None
    if list(chosen) == ["_and"]:
        parts = chosen["_and"]
        nested = [rows_of(part) for part in parts] if isinstance(parts, list) else [None]
        together = [row for rows in nested if rows is not None for row in rows]
        return None if None in nested or len(together) > MOST_ROWS else together
    rows: list[Row] = []
    for name, value in chosen.items():
        if name.startswith("_") and name != "_version":
            return None
        for operator, operand in (value if isinstance(value, Mapping) else {"_eq": value}).items():
            row = _row(name, operator, operand)
            if row is None:
                return None
            rows.append(row)
    return rows if len(rows) <= MOST_ROWS else None


def _row(name: str, operator: str, operand: Any) -> Row | None:
    if operator not in WORDS or operator == "_filled":
        return None
    if operator == "_null" or operand is None:
        is_null = operand is None and operator == "_eq"
        return Row(name, "_null" if operand is True or is_null else "_filled", "")
    if operator in LISTS:
        if not isinstance(operand, list) or any(isinstance(each, Mapping | list) or "," in _text(each) for each in operand):
            return None
        return Row(name, operator, ", ".join(map(_text, operand)))
    return None if isinstance(operand, Mapping | list) else Row(name, operator, _text(operand))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
