"""Converts the fields of a collection to form rows, and submitted rows to a definition."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.console.frame.routing import Form
from appliance.core.errors import Detail

BLANK_ROWS = 3
MOST_ROWS = 203
# The setting that the form's "details" column edits, by field type.
DETAILS = {"select": "options", "relation": "collection", "decimal": "scale", "text": "max_length"}
_WHOLE = re.compile(r"\d{1,9}")
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_INDEX = re.compile(r"/fields/(\d+)(?:/(.*))?")


@dataclass
class FieldRow:
    """One field in the form; `error` is the message next to it."""

    id: str = ""
    name: str = ""
    type: str = "text"
    required: bool = False
    unique: bool = False
    searched: bool = False
    default: str = ""
    details: str = ""
    is_removed: bool = False
    error: str = ""


def rows_of(document: Mapping[str, Any]) -> list[FieldRow]:
    """The rows of a definition."""
    return [
        FieldRow(
            id=field.get("id", ""), name=field["name"], type=field["type"], required=bool(field.get("required")),
            unique=bool(field.get("unique")), searched=field["name"] in document.get("search", ()),
            default=_text(field.get("default")), details=_details(field),
        )
        for field in document["fields"]
    ]  # fmt: skip


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _details(field: Mapping[str, Any]) -> str:
    value = field.get(DETAILS.get(field["type"], ""))
    return ", ".join(_quoted(str(each)) for each in value) if isinstance(value, list) else _text(value)


def _quoted(option: str) -> str:
    """Quote an option as in CSV if it would otherwise not be parsed back as a single option."""
    is_plain = option == option.strip() and not option.startswith('"') and "," not in option
    return option if is_plain else '"' + option.replace('"', '""') + '"'


def parse_rows(form: Form) -> list[FieldRow]:
    """The submitted rows, without those that have no name."""

    def text(letter: str, number: int) -> str:
        values = form.get(f"{letter}{number}")
        return values[0].strip() if values else ""

    numbers = [number for number in range(MOST_ROWS) if text("n", number)]
    return [
        FieldRow(
            id=text("i", n), name=text("n", n), type=text("t", n) or "text", required=bool(text("r", n)),
            unique=bool(text("u", n)), searched=bool(text("s", n)), default=text("d", n), details=text("x", n),
            is_removed=bool(text("g", n)),
        )
        for n in numbers
    ]  # fmt: skip


def definition_of(rows: Sequence[FieldRow], current: Mapping[str, Any]) -> dict[str, Any]:
    """The current definition with the changes of the rows; settings that the form does not show are kept."""
    fields_by_id = {field.get("id", ""): field for field in current["fields"]}
    remaining = [row for row in rows if not row.is_removed]
    renamed = {fields_by_id[row.id]["name"]: row.name for row in remaining if row.id and row.id in fields_by_id}
    indexes = [
        {**index, "fields": [renamed[name] for name in index["fields"]]}
        for index in current.get("indexes", [])
        if all(name in renamed for name in index["fields"])
    ]
    changes = {"fields": [_field(row, fields_by_id.get(row.id, {})) for row in remaining], "indexes": indexes}
    return {**current, **changes, "search": [row.name for row in remaining if row.searched]}


def _field(row: FieldRow, before: Mapping[str, Any]) -> dict[str, Any]:
    """The field definition of a row; when the type changes, settings of the old type are dropped."""
    same = before.get("type") == row.type
    field = dict(before) if same else {name: before[name] for name in ("id", "description") if name in before}
    field |= {"name": row.name, "type": row.type, "required": row.required, "unique": row.unique, "default": _parse_default(row)}
    if member := DETAILS.get(row.type):
        field.pop(member, None)
        if same and member in before and row.details == _details(before).strip():
            field[member] = before[member]
        elif row.details:
            field[member] = _parse_detail(member, row.details)
    return field


def _parse_detail(member: str, text: str) -> Any:
    if member == "options":
        return _parse_options(text)
    return int(text) if member != "collection" and _WHOLE.fullmatch(text) else text


def _parse_options(text: str) -> list[str]:
    """Parse comma-separated options as a line of CSV; an unreadable line becomes one option, which validation refuses."""
    try:
        options = [option for line in csv.reader(io.StringIO(text, newline=""), skipinitialspace=True) for option in line]
    except csv.Error:
        return [text]
    return [option.strip() for option in options if option.strip()]


def _parse_default(row: FieldRow) -> Any:
    """Convert the default to the field's type; text that does not fit is returned unchanged, for validation to refuse."""
    text = row.default
    if text == "":
        return None
    if row.type == "boolean":
        return {"yes": True, "true": True, "no": False, "false": False}.get(text.lower(), text)
    if row.type == "integer":
        return int(text) if _INTEGER.fullmatch(text) else text
    if row.type in ("number", "json"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def assign_errors(rows: Sequence[FieldRow], details: Sequence[Detail]) -> list[Detail]:
    """Assign each error to its row; returns the errors that belong to no row."""
    remaining = [row for row in rows if not row.is_removed]
    names = {row.name: row for row in remaining}
    rest = []
    for detail in details:
        match = _INDEX.fullmatch(detail.pointer)
        if match and int(match[1]) < len(remaining):
            row: FieldRow | None = remaining[int(match[1])]
        else:
            row = names.get(detail.pointer.removeprefix("/fields/"))
        if row is None:
            rest.append(detail)
        else:
            member = match[2] if match and match[2] else ""
            row.error = f"{row.error} {member} {detail.message}.".strip()
    return rest
