"""Definitions of collections: parses the JSON a caller sends and reports every error at once."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from appliance import conditions
from appliance.core import ids
from appliance.core.errors import Detail, InvalidFilter, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.datapool.field_types import FIELD_TYPES, MAX_SCALE, InvalidValue, Options

MAX_FIELDS = 200
MAX_INDEXES = 20
MAX_INDEX_FIELDS = 8
RESERVED_FIELDS = ("id", "created_at", "updated_at", "_version")
ACCESS_VERBS = ("list", "view", "create", "update", "delete")
UNSUPPORTED_TYPES = {
    "document": "fields of type document are not supported; store the document's id in a text field",
    "autodate": "every entity has created_at and updated_at; for another time use datetime with default $now",
}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_COLLECTION = re.compile(r"[a-z]([a-z0-9_-]{0,61}[a-z0-9])?")
_MEMBERS = frozenset({"id", "name", "type", "required", "unique", "default", "description"})


class Findings:
    """Collects validation errors so that one response reports all of them."""

    def __init__(self) -> None:
        self.details: list[Detail] = []

    def add(self, pointer: str, code: str, message: str) -> None:
        self.details.append(Detail(pointer, code, message))

    def raise_if_any(self, subject: str) -> None:
        if self.details:
            count = len(self.details)
            first = self.details[0]
            raise ValidationFailed(
                f"{subject}: {first.pointer or 'the value'} {first.message}"
                + (f" (and {count - 1} more errors, see details)" if count > 1 else ""),
                details=self.details,
            )


@dataclass(frozen=True)
class FieldDefinition:
    """A field of a collection: `column` is its database column; `id` stays the same when it is renamed."""

    id: str
    name: str
    type: str
    column: str
    required: bool = False
    unique: bool = False
    default: Any = None
    description: str = ""
    options: Options = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The field as callers write it."""
        document: dict[str, Any] = {"id": self.id, "name": self.name, "type": self.type}
        document |= {"required": self.required, "unique": self.unique, "default": self.default}
        if self.description:
            document["description"] = self.description
        return document | dict(self.options)


@dataclass(frozen=True)
class IndexDefinition:
    """An index over fields, which are given by id."""

    fields: tuple[str, ...]
    unique: bool = False


@dataclass(frozen=True)
class CollectionDefinition:
    """A collection's fields, indexes, searched fields (by id) and access rules."""

    name: str
    fields: tuple[FieldDefinition, ...]
    indexes: tuple[IndexDefinition, ...] = ()
    search: tuple[str, ...] = ()
    access: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""

    def find_field(self, field_id: str) -> FieldDefinition | None:
        return next((entry for entry in self.fields if entry.id == field_id), None)

    def document(self) -> dict[str, Any]:
        """The definition as callers write it: fields by name, every access verb present."""
        names = {entry.id: entry.name for entry in self.fields}
        document: dict[str, Any] = {"name": self.name}
        if self.description:
            document["description"] = self.description
        return document | {
            "fields": [entry.document() for entry in self.fields],
            "indexes": [{"fields": [names[i] for i in index.fields], "unique": index.unique} for index in self.indexes],
            "search": [names[i] for i in self.search],
            "access": {verb: self.access.get(verb, "deny") or "allow" for verb in ACCESS_VERBS},
        }

    def to_stored(self) -> dict[str, Any]:
        """`document` with the columns added; `from_stored` reads it."""
        document = self.document()
        for member, entry in zip(document["fields"], self.fields, strict=True):
            member["column"] = entry.column
        return document


def from_stored(stored: Mapping[str, Any]) -> CollectionDefinition:
    """Parse what `stored()` returned."""
    fields = tuple(
        FieldDefinition(
            column=entry["column"],
            options={k: v for k, v in entry.items() if k not in _MEMBERS and k != "column"},
            **{k: v for k, v in entry.items() if k in _MEMBERS},
        )
        for entry in stored["fields"]
    )
    by_name = {entry.name: entry.id for entry in fields}
    return CollectionDefinition(
        name=stored["name"],
        fields=fields,
        indexes=tuple(
            IndexDefinition(tuple(by_name[name] for name in index["fields"]), index["unique"]) for index in stored["indexes"]
        ),
        search=tuple(by_name[name] for name in stored["search"]),
        access=stored["access"],
        description=stored.get("description", ""),
    )


def is_collection_name(name: Any) -> bool:
    """Whether this is a possible collection name; check this before using a caller's text in any other way."""
    return isinstance(name, str) and _COLLECTION.fullmatch(name) is not None


def check_collection_name(name: Any) -> str:
    """The name, if it is valid; otherwise ValidationFailed.  Like a slug, but `_` is allowed as well as `-`."""
    if not is_collection_name(name) or "--" in name or name in ids.RESERVED:
        raise ValidationFailed(
            Sentence(
                "a collection's name must start with a letter, end with a letter or digit, contain only lower-case letters, "
                "digits, _ and single hyphens, have at most 63 characters and not be one of %(reserved)s",
                reserved=", ".join(sorted(ids.RESERVED)),
            ),
            pointer="/name",
        )
    return str(name)


def parse_collection(document: Any, current: CollectionDefinition | None = None) -> CollectionDefinition:
    """Parse a definition; ValidationFailed lists every error.

    With `current`, the definition being changed, a field with the same id (or without an id, the same name) keeps its
    column.  The id of a new field defaults to its name.
    """
    if not isinstance(document, Mapping):
        raise ValidationFailed("a collection must be an object with name and fields", pointer="")
    findings = Findings()
    name = check_collection_name(document.get("name"))
    for member in document.keys() - {"name", "description", "fields", "indexes", "search", "access"}:
        findings.add(f"/{member}", "unknown_member", "is not a member of a collection")
    fields = _parse_fields(document.get("fields"), current, findings)
    definition = CollectionDefinition(name, fields, description=_parse_description(document, findings))
    by_name = {entry.name: entry for entry in fields}
    definition = replace(
        definition,
        indexes=_parse_indexes(document.get("indexes", []), by_name, findings),
        search=_parse_search(document.get("search", []), by_name, findings),
        access=_parse_access(document.get("access", {}), findings),
    )
    findings.raise_if_any("the collection cannot be accepted")
    return definition


def _parse_description(document: Mapping[str, Any], findings: Findings, pointer: str = "") -> str:
    description = document.get("description", "")
    if not isinstance(description, str) or len(description) > 2000:
        findings.add(f"{pointer}/description", "wrong_type", "must be a text of at most 2000 characters")
        return ""
    return description


def _parse_fields(entries: Any, current: CollectionDefinition | None, findings: Findings) -> tuple[FieldDefinition, ...]:
    if not isinstance(entries, list) or not 1 <= len(entries) <= MAX_FIELDS:
        findings.add("/fields", "wrong_type", Sentence("must be a list of 1 to %(max_fields)s fields", max_fields=MAX_FIELDS))
        return ()
    current_fields = {entry.id: entry for entry in current.fields} if current else {}
    claimed = {str(entry.get("id")) for entry in entries if isinstance(entry, Mapping)}
    by_name = {entry.name: entry for entry in current_fields.values() if entry.id not in claimed}
    columns = [int(entry.column[1:]) for entry in current_fields.values()]
    next_number = max(columns, default=0) + 1
    fields: list[FieldDefinition] = []
    for index, entry in enumerate(entries):
        pointer = f"/fields/{index}"
        if not isinstance(entry, Mapping):
            findings.add(pointer, "wrong_type", "must be an object with name and type")
            continue
        previous = current_fields.get(str(entry.get("id"))) or by_name.get(str(entry.get("name")))
        field_id = entry.get("id") or (previous.id if previous else entry.get("name"))
        column = previous.column if previous else f"c{next_number}"
        next_number += previous is None
        if parsed := _parse_field(entry, field_id, column, (findings, pointer)):
            fields.append(parsed)
    for member in ("id", "name"):
        _check_duplicates([str(getattr(entry, member)).lower() for entry in fields], member, findings)
    return tuple(fields)


def _check_duplicates(values: list[str], member: str, findings: Findings) -> None:
    for index, value in enumerate(values):
        if value in values[:index]:
            findings.add(
                f"/fields/{index}/{member}",
                "not_unique",
                Sentence("is the %(member)s of another field, %(value)s", member=member, value=repr(value)),
            )


def _parse_field(entry: Mapping[str, Any], field_id: Any, column: str, place: tuple[Findings, str]) -> FieldDefinition | None:
    findings, pointer = place
    before = len(findings.details)
    for member, value in (("name", entry.get("name")), ("id", field_id)):
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            findings.add(
                f"{pointer}/{member}", "invalid_format", "must contain only letters, digits and _, and start with a letter"
            )
        elif value in RESERVED_FIELDS and member == "name":
            findings.add(
                f"{pointer}/name", "reserved", Sentence("every entity already has %(value)s; choose another name", value=value)
            )
    kind = entry.get("type")
    if not isinstance(kind, str) or kind not in FIELD_TYPES:
        type_names = ", ".join(sorted(FIELD_TYPES))
        sentence = (
            UNSUPPORTED_TYPES.get(kind, f"must be one of {type_names}")
            if isinstance(kind, str)
            else Sentence("must be one of %(known)s", known=type_names)
        )
        findings.add(f"{pointer}/type", "not_an_option", sentence)
        return None
    for flag in ("required", "unique"):
        if not isinstance(entry.get(flag, False), bool):
            findings.add(f"{pointer}/{flag}", "wrong_type", "must be true or false")
    if kind == "json" and entry.get("unique"):
        findings.add(f"{pointer}/unique", "not_an_option", "a json field cannot be unique")
    for member in entry.keys() - _MEMBERS - FIELD_TYPES[kind].options:
        findings.add(f"{pointer}/{member}", "unknown_member", Sentence("is not a setting of a %(kind)s field", kind=kind))
    options = {k: v for k, v in entry.items() if k in FIELD_TYPES[kind].options and v is not None}
    _check_options(kind, options, findings, pointer)
    description = _parse_description(entry, findings, pointer)
    if len(findings.details) > before:
        return None
    _check_default(kind, options, entry.get("default"), (findings, pointer))
    return FieldDefinition(
        id=str(field_id),
        name=entry["name"],
        type=kind,
        column=column,
        required=entry.get("required", False),
        unique=entry.get("unique", False),
        default=entry.get("default"),
        description=description,
        options=options,
    )


def _check_options(kind: str, options: Options, findings: Findings, pointer: str) -> None:
    for name in ("min_length", "max_length", "scale"):
        value = options.get(name, 1)
        highest = MAX_SCALE if name == "scale" else 1 << 20
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= highest:
            findings.add(
                f"{pointer}/{name}", "wrong_type", Sentence("must be a whole number from 0 to %(highest)s", highest=highest)
            )
            return
    if kind == "select" and not _is_list_of_texts(options.get("options")):
        findings.add(f"{pointer}/options", "wrong_type", "must be a list of 1 to 500 different texts")
        return
    if kind == "relation" and not isinstance(options.get("collection"), str):
        findings.add(f"{pointer}/collection", "required", "must name the related collection")
        return
    try:
        FIELD_TYPES[kind].build_parser(options)
    except InvalidValue as refusal:
        findings.add(pointer, refusal.code, Sentence("min or max %(refusal)s", refusal=refusal))


def _is_list_of_texts(value: Any) -> bool:
    if not isinstance(value, list) or not 1 <= len(value) <= 500:
        return False
    return all(isinstance(item, str) and item for item in value) and len(set(value)) == len(value)


def _check_default(kind: str, options: Options, default: Any, place: tuple[Findings, str]) -> None:
    findings, pointer = place
    if default is None or (default == "$now" and kind in ("date", "datetime")):
        return
    if kind == "relation":
        findings.add(f"{pointer}/default", "not_an_option", "a relation cannot have a default")
        return
    try:
        FIELD_TYPES[kind].build_parser(options)(default)
    except InvalidValue as refusal:
        findings.add(f"{pointer}/default", refusal.code, str(refusal))


def _parse_indexes(entries: Any, by_name: Mapping[str, FieldDefinition], findings: Findings) -> tuple[IndexDefinition, ...]:
    if not isinstance(entries, list) or len(entries) > MAX_INDEXES:
        findings.add(
            "/indexes", "wrong_type", Sentence("must be a list of at most %(max_indexes)s indexes", max_indexes=MAX_INDEXES)
        )
        return ()
    indexes = []
    for position, entry in enumerate(entries):
        pointer = f"/indexes/{position}"
        names = entry.get("fields") if isinstance(entry, Mapping) else None
        if not isinstance(names, list) or not 1 <= len(names) <= MAX_INDEX_FIELDS or entry.keys() - {"fields", "unique"}:
            findings.add(
                pointer,
                "wrong_type",
                Sentence(
                    "must be {fields: [1 to %(max_index_fields)s names], unique: true or false}", max_index_fields=MAX_INDEX_FIELDS
                ),
            )
        elif not isinstance(entry.get("unique", False), bool):
            findings.add(f"{pointer}/unique", "wrong_type", "must be true or false")
        elif field_ids := _resolve_names(names, by_name, f"{pointer}/fields", findings):
            indexes.append(IndexDefinition(field_ids, entry.get("unique", False)))
    return tuple(dict.fromkeys(indexes))


def _resolve_names(names: list[Any], by_name: Mapping[str, FieldDefinition], pointer: str, findings: Findings) -> tuple[str, ...]:
    field_ids = []
    for position, name in enumerate(names):
        if not isinstance(name, str) or name not in by_name or by_name[name].type == "json":
            findings.add(f"{pointer}/{position}", "not_found", "must name a field of the collection that is not of type json")
        else:
            field_ids.append(by_name[name].id)
    return tuple(dict.fromkeys(field_ids)) if len(field_ids) == len(names) else ()


def _parse_search(entries: Any, by_name: Mapping[str, FieldDefinition], findings: Findings) -> tuple[str, ...]:
    if not isinstance(entries, list):
        findings.add("/search", "wrong_type", "must be a list of field names")
        return ()
    for position, name in enumerate(entries):
        if isinstance(name, str) and name in by_name and FIELD_TYPES[by_name[name].type].kind != "text":
            findings.add(f"/search/{position}", "wrong_type", "must be a text field; other fields cannot be searched")
    return _resolve_names(entries, by_name, "/search", findings)


def _parse_access(rules: Any, findings: Findings) -> dict[str, Any]:
    """Parse the rules: `deny`, `allow` or a filter.  An empty filter is an error, so that no access is granted by accident."""
    if not isinstance(rules, Mapping):
        findings.add(
            "/access", "wrong_type", Sentence("must be an object with %(access_verbs)s", access_verbs=", ".join(ACCESS_VERBS))
        )
        return {}
    for verb in rules.keys() - set(ACCESS_VERBS):
        findings.add(
            f"/access/{verb}", "unknown_member", Sentence("is not one of %(access_verbs)s", access_verbs=", ".join(ACCESS_VERBS))
        )
    for verb, rule in rules.items():
        if rule in ("deny", "allow"):
            continue
        if rule == {}:
            findings.add(
                f"/access/{verb}", "invalid_filter", 'is empty and would allow everyone; write "allow" if that is intended'
            )
            continue
        try:
            conditions.parse(rule, pointer=f"/access/{verb}")
        except InvalidFilter as error:
            findings.details += error.details
    return dict(rules)
