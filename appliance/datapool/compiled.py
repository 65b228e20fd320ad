"""A collection made ready for use: checks, SQL and the way a row is shown, built once per version of its definition."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from peewee import Table

from appliance.conditions import Column, Field, Related
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import NotFound
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool.definition import (
    RESERVED_FIELDS,
    CollectionDefinition,
    FieldDefinition,
    Findings,
    from_stored,
    is_collection_name,
)
from appliance.datapool.field_types import FIELD_TYPES, LARGEST_INTEGER, Refused, Step, read_datetime, read_plain_text
from appliance.datapool.tables import index_room

MAX_CACHED = 5_000
SYSTEM_COLUMNS = ("id", "created_at", "updated_at", "version")
_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class CompiledField:
    """A field with its check, its way back to the outside, and the stored default (a function for `$now`)."""

    definition: FieldDefinition
    position: int
    storage: str
    read: Step
    show: Step | None
    default: Callable[[], Any]


def compile_field(field: FieldDefinition, position: int = 0, room: int | None = None) -> CompiledField:
    """The field made ready for use; `room` bounds a text's bytes because an index holds it."""
    kind = FIELD_TYPES[field.type]
    read = kind.reader(field.options)
    if room is not None and kind.kind == "text":
        read = _bounded(read, room)
    if field.default == "$now" and field.type == "datetime":
        default: Callable[[], Any] = clock.now_ms
    elif field.default == "$now" and field.type == "date":

        def default() -> str:
            return clock.rfc3339(clock.now_ms())[:10]
    else:
        stored = None if field.default is None else read(field.default)

        def default() -> Any:
            return stored

    return CompiledField(field, position, kind.storage, read, kind.shower(field.options), default)


def _bounded(read: Step, room: int) -> Step:
    def read_bounded(value: Any) -> Any:
        text = read(value)
        if len(text) * 4 > room and len(text.encode()) > room:
            raise Refused("too_long", f"is indexed or unique and may therefore have {room} bytes at most")
        return text

    return read_bounded


def _read_count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused("wrong_type", "must be a whole number")
    if abs(value) > LARGEST_INTEGER:
        raise Refused("too_large", "must fit into 64 bits")
    return value


SYSTEM_FIELDS = {
    "id": Field("text", read_plain_text),
    "created_at": Field("ordered", read_datetime),
    "updated_at": Field("ordered", read_datetime),
    "_version": Field("ordered", _read_count),
}


class CompiledCollection:
    """One version of one collection.  A row is `[id, created_at, updated_at, version, *stored values]`."""

    def __init__(self, tenant_id: str, definition: CollectionDefinition, table_name: str, stamp: str) -> None:
        self.tenant_id = tenant_id
        self.name = definition.name
        self.definition = definition
        self.table_name = table_name
        self.stamp = stamp
        room = index_room(definition)
        self.fields = {
            f.name: compile_field(f, len(SYSTEM_COLUMNS) + i, room.get(f.column)) for i, f in enumerate(definition.fields)
        }
        self.relations = [f for f in self.fields.values() if f.definition.type == "relation"]
        self.columns = (*SYSTEM_COLUMNS, *(f.column for f in definition.fields))
        self.condition_fields = {**SYSTEM_FIELDS, **{f.name: self._condition_field(f) for f in definition.fields}}
        quoted = ", ".join(f'"{column}"' for column in self.columns)
        marks = ", ".join("?" * len(self.columns))
        # Every name in these statements is one this folder made: `dp_<hex>` and `c<number>`.
        self.select_sql = f'SELECT {quoted} FROM "{table_name}"'  # noqa: S608
        self.find_sql = f"{self.select_sql} WHERE id = ?"
        self.insert_sql = f'INSERT INTO "{table_name}" ({quoted}) VALUES '  # noqa: S608
        self.row_marks = f"({marks})"
        self.delete_sql = f'DELETE FROM "{table_name}" WHERE id = ?'  # noqa: S608
        self._shows = [(f.definition.name, f.position, f.show) for f in self.fields.values()]

    def _condition_field(self, field: FieldDefinition) -> Field:
        kind = FIELD_TYPES[field.type]
        target = field.options.get("collection")

        def inside() -> Mapping[str, Field]:
            return (self if target == self.name else load_for_tenant(self.tenant_id, str(target))).condition_fields

        return Field(kind.kind, kind.comparer(field.options), inside if field.type == "relation" else None)

    def show(self, row: Any) -> dict[str, Any]:
        """The entity of a row, as callers see it."""
        entity = {
            "id": row[0],
            "created_at": clock.rfc3339(row[1]),
            "updated_at": clock.rfc3339(row[2]),
            "_version": row[3],
        }
        for name, position, show in self._shows:
            value = row[position]
            entity[name] = value if show is None or value is None else show(value)
        return entity

    def read_new(self, values: Any, found: Findings, pointer: str) -> list[Any]:
        """The stored values of a new entity in column order, defaults applied; what is wrong goes to `found`."""
        if not isinstance(values, Mapping):
            found.add(pointer, "wrong_type", "must be an object with the entity's values")
            return []
        stored: list[Any] = []
        used = 0
        for name, field in self.fields.items():
            value = values.get(name, _MISSING)
            if value is _MISSING:
                value = field.default()
            else:
                used += 1
                if value is not None:
                    value = _read(field, value, found, pointer)
            if value is None and field.definition.required:
                found.add(f"{pointer}/{name}", "required", "is required")
            stored.append(value)
        if used != len(values):
            self._refuse_unknown(values, found, pointer)
        return stored

    def read_changes(self, values: Any, found: Findings, pointer: str) -> dict[str, Any]:
        """The stored forms of the values given, by field name; what is wrong goes to `found`."""
        if not isinstance(values, Mapping):
            found.add(pointer, "wrong_type", "must be an object with the values to change")
            return {}
        stored = {}
        for name, value in values.items():
            field = self.fields.get(name)
            if field is None:
                continue
            stored[name] = None if value is None else _read(field, value, found, pointer)
            if value is None and field.definition.required:
                found.add(f"{pointer}/{name}", "required", "is required and cannot be cleared")
        if len(stored) != len(values):
            self._refuse_unknown(values, found, pointer)
        return stored

    def _refuse_unknown(self, values: Mapping[str, Any], found: Findings, pointer: str) -> None:
        for name in values:
            if name in RESERVED_FIELDS:
                found.add(f"{pointer}/{name}", "read_only", "is set by the DataPool and cannot be written")
            elif name not in self.fields:
                shown = str(name)[:60].replace("~", "~0").replace("/", "~1")
                found.add(f"{pointer}/{shown}", "unknown_field", f"is not a field of the collection {self.name}")

    def source(self) -> Any:
        """A fresh peewee table, so that each use in one query has an alias of its own."""
        return Table(self.table_name, self.columns)

    def query_columns(self, source: Any) -> dict[str, Column]:
        """Where each field is stored in `source`, for conditions."""
        columns = {name: Column(getattr(source, name)) for name in ("id", "created_at", "updated_at")}
        columns["_version"] = Column(source.version)
        for name, field in self.fields.items():
            node = getattr(source, field.definition.column)
            columns[name] = Column(node, self._related(field.definition) if field in self.relations else None)
        return columns

    def _related(self, field: FieldDefinition) -> Callable[[], Related]:
        def related() -> Related:
            target = load_for_tenant(self.tenant_id, field.options["collection"])
            source = target.source()
            return Related(source, source.id, target.query_columns(source))

        return related


def _read(field: CompiledField, value: Any, found: Findings, pointer: str) -> Any:
    try:
        return field.read(value)
    except Refused as refusal:
        found.add(f"{pointer}/{field.definition.name}", refusal.code, str(refusal))
        return _MISSING  # not None: a wrong value is not a missing one


def is_read(value: Any) -> bool:
    """Whether `read_new` or `read_changes` could read this value (what is wrong with it is among the findings)."""
    return value is not _MISSING


_cache: dict[tuple[str, str], CompiledCollection] = {}


def load(scope: TenantScope, name: str) -> CompiledCollection:
    """The collection `name` of the tenant, as it is now; NotFound."""
    return load_for_tenant(scope.tenant_id, name)


def load_for_tenant(tenant_id: str, name: str) -> CompiledCollection:
    """`load` for what is already bound to a tenant (a relation of one of its collections).

    The stamp, new with every change, is asked for each time, because another process may have changed the collection
    and a change may be rolled back; plain SQL, because this runs once per call of every verb.
    """
    key = (tenant_id, name)
    sql = "SELECT stamp FROM collection WHERE tenant_id = ? AND name = ?"
    now = db.rows(sql, key) if is_collection_name(name) else []
    if not now:
        raise NotFound(Sentence("there is no collection %(name)s here", name=repr(str(name)[:80])))
    known = _cache.get(key)
    if known is None or known.stamp != now[0][0]:
        sql = "SELECT definition, table_name, stamp FROM collection WHERE tenant_id = ? AND name = ?"
        definition, table_name, stamp = db.rows(sql, key)[0]
        known = CompiledCollection(tenant_id, from_stored(json.loads(definition)), table_name, stamp)
        if len(_cache) >= MAX_CACHED:
            _cache.clear()
        _cache[key] = known
    return known
