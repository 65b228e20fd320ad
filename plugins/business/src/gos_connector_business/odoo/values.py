"""Converts between Odoo's values and plain JSON.  Odoo uses `false` for null and times in UTC without a time zone."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from appliance.connectors.contract import ConfigError, Rejected

_DATETIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?")
MANY = ("one2many", "many2many")


def to_plain(kind: str, value: Any) -> Any:
    """Convert the value of a field of this type to plain JSON."""
    if value is False and kind != "boolean":
        return None
    if kind == "many2one" and isinstance(value, list) and len(value) == 2:
        return {"id": value[0], "name": value[1]}
    if kind == "datetime" and isinstance(value, str) and _DATETIME.fullmatch(value):
        return f"{value.replace(' ', 'T')}Z"
    return value


def to_odoo(name: str, kind: str, value: Any) -> Any:
    """Convert a plain value for a field of this type; ConfigError when the field cannot hold it."""
    if value is None:
        return False
    if kind == "datetime" and isinstance(value, str):
        return _to_odoo_datetime(name, value)
    if kind == "many2one" and isinstance(value, Mapping):
        return _id_of(name, value)
    if kind in MANY and isinstance(value, list) and all(_is_id(each) for each in value):
        # The command that replaces the list: a bare list means different things in different versions.
        return [[6, 0, value]]
    return value


def to_import_cell(name: str, kind: str, value: Any) -> tuple[str, str]:
    """Return the import column and the cell text for a value; ConfigError for a value that Odoo cannot import."""
    if value is None:
        return name, ""
    if kind == "many2one":
        return f"{name}/.id", str(_id_of(name, value))
    if kind == "many2many" and isinstance(value, list) and all(_is_id(each) for each in value):
        return f"{name}/.id", ",".join(str(each) for each in value)
    if kind == "boolean" and isinstance(value, bool):
        return name, "1" if value else "0"
    if kind == "datetime" and isinstance(value, str):
        return name, _to_odoo_datetime(name, value)
    if isinstance(value, bool | list | dict):
        raise ConfigError(f"The field {name} is of type {kind}, which upsert cannot set to {str(value)[:60]!r}; use update.")
    return name, str(value)


def imported_ids(result: Any) -> list[int]:
    """Return the ids of the imported records; Rejected with Odoo's messages when the import failed."""
    messages = result.get("messages", []) if isinstance(result, Mapping) else []
    ids = result.get("ids") if isinstance(result, Mapping) else None
    if isinstance(ids, list) and ids and all(_is_id(each) for each in ids):
        return ids
    errors = [each for each in messages if isinstance(each, Mapping)]
    reasons = "; ".join(str(each.get("message", ""))[:200] for each in errors[:3])[:500]
    row = {"row": errors[0]["record"]} if errors and isinstance(errors[0].get("record"), int) else {}
    raise Rejected(f"Odoo imported nothing: {reasons or 'it gave no reason'}", details={"message": reasons, **row})


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _id_of(name: str, value: Any) -> int:
    number = value.get("id") if isinstance(value, Mapping) else value
    if not isinstance(number, int) or isinstance(number, bool):
        raise ConfigError(f"The field {name} refers to a record; use its id or an object with `id`.")
    return number


def _to_odoo_datetime(name: str, value: str) -> str:
    try:
        at = datetime.fromisoformat(value)
    except ValueError as error:
        raise ConfigError(f"The field {name} is a date and time; {value[:60]!r} is not in ISO 8601.") from error
    at = at.astimezone(UTC) if at.tzinfo else at
    return at.strftime("%Y-%m-%d %H:%M:%S")
