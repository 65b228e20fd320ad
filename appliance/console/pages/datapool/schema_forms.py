"""The fields of a collection as rows of a form, and the form as the definition that somebody wants."""

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
# What stands in the column of details, by type: the member of the definition.
DETAILS = {"select": "options", "relation": "collection", "decimal": "scale", "text": "max_length"}
_WHOLE = re.compile(r"\d{1,9}")
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_INDEX = re.compile(r"/fields/(\d+)(?:/(.*))?")


@dataclass
class FieldRow:
    """One field as it stands in the form; `error` says what is wrong with it."""

    id: str = ""
    name: str = ""
    type: str = "text"
    required: bool = False
    unique: bool = False
    searched: bool = False
    default: str = ""
    details: str = ""
    gone: bool = False
    error: str = ""


def rows_of(document: Mapping[str, Any]) -> list[FieldRow]:
    """The rows of a definition."""
    return [
        FieldRow(
            field.get("id", ""), field["name"], field["type"], bool(field.get("required")), bool(field.get("unique")),
            field["name"] in document.get("search", ()), _text(field.get("default")), _details(field),
        )
        for field in document["fields"]
    ]  # fmt: skip


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _details(field: Mapping[str, Any]) -> str:
    found = field.get(DETAILS.get(field["type"], ""))
    return ", ".join(_quoted(str(each)) for each in found) if isinstance(found, list) else _text(found)


def _quoted(option: str) -> str:
    """An option that would not be read as one gets quotation marks, as in CSV."""
    is_plain = option == option.strip() and not option.startswith('"') and "," not in option
    return option if is_plain else '"' + option.replace('"', '""') + '"'


def rows_sent(form: Form) -> list[FieldRow]:
    """The rows that were sent, those without a name left out."""

    def text(letter: str, number: int) -> str:
        values = form.get(f"{letter}{number}")
        return values[0].strip() if values else ""

    numbers = [number for number in range(MOST_ROWS) if text("n", number)]
    return [
        FieldRow(
            text("i", n), text("n", n), text("t", n) or "text", bool(text("r", n)), bool(text("u", n)), bool(text("s", n)),
            text("d", n), text("x", n), bool(text("g", n)),
        )
        for n in numbers
    ]  # fmt: skip


def definition_of(rows: Sequence[FieldRow], current: Mapping[str, Any]) -> dict[str, Any]:
    """The definition that the rows make of the current one; what the form does not show of it stays."""
    known = {field.get("id", ""): field for field in current["fields"]}
    kept = [row for row in rows if not row.gone]
    renamed = {known[row.id]["name"]: row.name for row in kept if row.id and row.id in known}
    indexes = [
        {**index, "fields": [renamed[name] for name in index["fields"]]}
        for index in current.get("indexes", [])
        if all(name in renamed for name in index["fields"])
    ]
    wanted = {"fields": [_field(row, known.get(row.id, {})) for row in kept], "indexes": indexes}
    return {**current, **wanted, "search": [row.name for row in kept if row.searched]}


def _field(row: FieldRow, before: Mapping[str, Any]) -> dict[str, Any]:
    """The field of a row; settings that its type has no more are left behind."""
    same = before.get("type") == row.type
    field = dict(before) if same else {name: before[name] for name in ("id", "description") if name in before}
    field |= {"name": row.name, "type": row.type, "required": row.required, "unique": row.unique, "default": _default(row)}
    if member := DETAILS.get(row.type):
        field.pop(member, None)
        if same and member in before and row.details == _details(before).strip():
            field[member] = before[member]
        elif row.details:
            field[member] = _detail(member, row.details)
    return field


def _detail(member: str, text: str) -> Any:
    if member == "options":
        return _options(text)
    return int(text) if member != "collection" and _WHOLE.fullmatch(text) else text


def _options(text: str) -> list[str]:
    """What stands between the commas, as in a line of CSV; what cannot be read so is one option, which will be refused."""
    try:
        found = [option for line in csv.reader(io.StringIO(text, newline=""), skipinitialspace=True) for option in line]
    except csv.Error:
        return [text]
    return [option.strip() for option in found if option.strip()]


def _default(row: FieldRow) -> Any:
    """The default as the type wants it; what does not fit stays a text, of which the definition complains."""
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


def point_out(rows: Sequence[FieldRow], details: Sequence[Detail]) -> list[Detail]:
    """Put every finding at its row; answers those that belong to none."""
    kept = [row for row in rows if not row.gone]
    names = {row.name: row for row in kept}
    rest = []
    for detail in details:
        found = _INDEX.fullmatch(detail.pointer)
        row = kept[int(found[1])] if found and int(found[1]) < len(kept) else names.get(detail.pointer.removeprefix("/fields/"))
        if row is None:
            rest.append(detail)
        else:
            member = found[2] if found and found[2] else ""
            row.error = f"{row.error} {member} {detail.message}.".strip()
    return rest
