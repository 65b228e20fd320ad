"""Odoo's values and plain JSON: there `false` stands for nothing, and times are texts without a zone."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from appliance.connectors.contract import ConfigError, Rejected

_DATETIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?")
MANY = ("one2many", "many2many")


def to_plain(kind: str, value: Any) -> Any:
    """A value of a field of this type as plain JSON."""
    if value is False and kind != "boolean":
        return None
    if kind == "many2one" and isinstance(value, list) and len(value) == 2:
        return {"id": value[0], "name": value[1]}
    if kind == "datetime" and isinstance(value, str) and _DATETIME.fullmatch(value):
        return f"{value.replace(' ', 'T')}Z"
    return value


def to_odoo(name: str, kind: str, value: Any) -> Any:
    """A plain value for a field of this type; ConfigError when it cannot be one."""
    if value is None:
        return False
    if kind == "datetime" and isinstance(value, str):
        return _written_datetime(name, value)
    if kind == "many2one" and isinstance(value, Mapping):
        return _id_of(name, value)
    if kind in MANY and isinstance(value, list) and all(_is_id(each) for each in value):
        # The command "these and no others": a bare list means different things to different versions.
        return [[6, 0, value]]
    return value


def to_imported(name: str, kind: str, value: Any) -> tuple[str, str]:
    """Column and cell of Odoo's import for a value, which knows texts only; ConfigError when it has no cell."""
    if value is None:
        return name, ""
    if kind == "many2one":
        return f"{name}/.id", str(_id_of(name, value))
    if kind == "many2many" and isinstance(value, list) and all(_is_id(each) for each in value):
        return f"{name}/.id", ",".join(str(each) for each in value)
    if kind == "boolean" and isinstance(value, bool):
        return name, "1" if value else "0"
    if kind == "datetime" and isinstance(value, str):
        return name, _written_datetime(name, value)
    if isinstance(value, bool | list | dict):
        raise ConfigError(f"The field {name} is of type {kind}, which upsert cannot set to {str(value)[:60]!r}; use update.")
    return name, str(value)


def imported_ids(told: Any) -> list[int]:
    """The ids of an import; Rejected with what Odoo did not like about the rows."""
    messages = told.get("messages", []) if isinstance(told, Mapping) else []
    ids = told.get("ids") if isinstance(told, Mapping) else None
    if isinstance(ids, list) and ids and all(_is_id(each) for each in ids):
        return ids
    faults = [each for each in messages if isinstance(each, Mapping)]
    said = "; ".join(str(each.get("message", ""))[:200] for each in faults[:3])[:500]
    row = {"row": faults[0]["record"]} if faults and isinstance(faults[0].get("record"), int) else {}
    raise Rejected(f"Odoo imported nothing: {said or 'it gave no reason'}", details={"message": said, **row})


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _id_of(name: str, value: Any) -> int:
    found = value.get("id") if isinstance(value, Mapping) else value
    if not isinstance(found, int) or isinstance(found, bool):
        raise ConfigError(f"The field {name} names a record: give its id, or an object with `id`.")
    return found


def _written_datetime(name: str, value: str) -> str:
    try:
        at = datetime.fromisoformat(value)
    except ValueError as error:
        raise ConfigError(f"The field {name} is a date and time, which {value[:60]!r} is not.") from error
    at = at.astimezone(UTC) if at.tzinfo else at
    return at.strftime("%Y-%m-%d %H:%M:%S")
