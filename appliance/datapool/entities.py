"""Create, change and delete single entities.  Each function runs inside a write and leaves no trace when it fails."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from peewee import IntegrityError

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import ApplianceError, Conflict, NotFound, PayloadTooLarge, VersionConflict
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool import limits, removal
from appliance.datapool.compiled import SYSTEM_COLUMNS, CompiledCollection, load_for_tenant
from appliance.datapool.definition import Findings
from appliance.datapool.field_types import ENTITY_ID
from appliance.datapool.tables import unique_groups

MAX_PARAMETERS = 30_000
FIRST_FIELD_POSITION = len(SYSTEM_COLUMNS)




@dataclass(frozen=True)
class ChangeResult:
    """The result of one change: `created`, `updated`, `unchanged` or `deleted`, and the entity after it."""

    event: str
    collection: str
    table_name: str
    entity: dict[str, Any]


@dataclass(frozen=True)
class EntitiesChanged:
    """All changes of one write to entities, in order; at least one.  Published inside the write, once they are final."""

    scope: TenantScope
    changes: Sequence[ChangeResult]


class ConstraintBroken(Exception):
    """The database rejected a change; `explain_broken_constraints` turns this into an error with the reason."""


def new_row(stored: list[Any]) -> list[Any]:
    """The row of a new entity with these stored values."""
    check_size(stored)
    now = clock.now_ms()
    return [ids.new("ent"), now, now, 1, *stored]


def check_size(stored: list[Any]) -> None:
    """Raise PayloadTooLarge when the values together exceed the maximum size of an entity."""
    texts = [value for value in stored if type(value) is str]
    max_bytes = limits.in_force.entity_bytes
    if sum(map(len, texts)) * 4 > max_bytes and sum(len(text.encode()) for text in texts) > max_bytes:
        raise PayloadTooLarge(
            Sentence("an entity can hold at most %(most)s KiB; store large content in a document", most=max_bytes >> 10), pointer=""
        )


def insert_rows(collection: CompiledCollection, rows: list[list[Any]]) -> None:
    """Insert all rows or none; ConstraintBroken."""
    chunk = max(1, MAX_PARAMETERS // len(collection.columns))
    if len(rows) <= chunk:
        _insert_at_once(collection, rows)
        return
    with db.savepoint():
        for start in range(0, len(rows), chunk):
            _insert_at_once(collection, rows[start : start + chunk])


def _insert_at_once(collection: CompiledCollection, rows: list[list[Any]]) -> None:
    sql = collection.insert_sql + ", ".join([collection.row_placeholders] * len(rows))
    _execute_checked(sql, tuple(value for row in rows for value in row))


def create(collection: CompiledCollection, stored: list[Any], pointer: str = "") -> ChangeResult:
    """Insert one entity; ValidationFailed when a constraint is broken."""
    row = new_row(stored)
    with explain_broken_constraints(collection, row, pointer):
        insert_rows(collection, [row])
    return ChangeResult("created", collection.name, collection.table_name, collection.to_view(row))


def is_entity_id(entity_id: Any) -> bool:
    """Whether this is a possible entity id; check this before using a caller's text in any other way."""
    return isinstance(entity_id, str) and ENTITY_ID.fullmatch(entity_id) is not None


def find_row(collection: CompiledCollection, entity_id: Any, lock: str = "") -> list[Any] | None:
    """The row of an entity, or None."""
    if not is_entity_id(entity_id):
        return None
    rows = db.rows(collection.find_sql + lock, (entity_id,))
    return list(rows[0]) if rows else None


def lock_row(collection: CompiledCollection, entity_id: Any) -> list[Any] | None:
    """As `find_row`; inside a write, nobody else changes the row before its commit."""
    return find_row(collection, entity_id, db.row_lock())


def get_row(collection: CompiledCollection, entity_id: str, if_version: int | None = None) -> list[Any]:
    """The row of an entity, which inside a write nobody else changes before its commit; NotFound, VersionConflict."""
    row = lock_row(collection, entity_id)
    if row is None:
        raise NotFound(
            Sentence("there is no entity %(entity_id)s in %(name)s", entity_id=repr(str(entity_id)[:80]), name=collection.name)
        )
    if if_version is not None and row[3] != if_version:
        raise VersionConflict(
            Sentence(
                "the entity is at version %(version)s, not %(if_version)s; read it again and repeat the change",
                version=row[3], if_version=if_version,
            ),
            pointer="/if_version",
        )
    return row


def change(collection: CompiledCollection, row: list[Any], stored: Mapping[str, Any], pointer: str = "") -> ChangeResult:
    """Set the values, given in stored form by field name; if nothing differs, the version stays the same."""
    positions = {collection.fields[name].position: value for name, value in stored.items()}
    altered = {position: value for position, value in positions.items() if row[position] != value}
    if not altered:
        return ChangeResult("unchanged", collection.name, collection.table_name, collection.to_view(row))
    after = list(row)
    for position, value in altered.items():
        after[position] = value
    check_size(after[FIRST_FIELD_POSITION:])
    after[2], after[3] = max(clock.now_ms(), row[2]), row[3] + 1
    assignments = ", ".join(f'"{collection.columns[position]}" = ?' for position in altered)
    sql = f'UPDATE "{collection.table_name}" SET updated_at = ?, version = ?, {assignments} WHERE id = ? AND version = ?'  # noqa: S608
    with explain_broken_constraints(collection, after, pointer):
        changed = _execute_checked(sql, (after[2], after[3], *altered.values(), row[0], row[3]))
    if changed != 1:
        raise VersionConflict("the entity was changed at the same time; read it again and repeat the change")
    return ChangeResult("updated", collection.name, collection.table_name, collection.to_view(after))


def _execute_checked(sql: str, params: tuple[Any, ...]) -> int:
    try:
        return db.try_execute(sql, params)
    except IntegrityError as error:
        raise ConstraintBroken from error


def delete(collection: CompiledCollection, row: list[Any]) -> ChangeResult:
    """Delete the entity of a row; Conflict when other entities refer to it."""
    try:
        _delete(collection, row[0])
    except ConstraintBroken as broken:
        users = ", ".join(list_referring_fields(collection)) or "another collection"
        raise Conflict(
            Sentence(
                "%(entity_id)s is still referenced by entities of %(users)s; delete or change those first",
                entity_id=row[0], users=users,
            )
        ) from broken
    return ChangeResult("deleted", collection.name, collection.table_name, collection.to_view(row))


def _delete(collection: CompiledCollection, entity_id: str) -> None:
    """ConstraintBroken if entities of a collection refer to it that is not deleted."""
    try:
        _execute_checked(collection.delete_sql, (entity_id,))
    except ConstraintBroken:
        if not removal.release_entity(collection, entity_id):
            raise
        _execute_checked(collection.delete_sql, (entity_id,))


def list_referring_fields(collection: CompiledCollection) -> list[str]:
    """The relations to the collection, as `collection.field`."""
    sql = "SELECT name FROM collection WHERE tenant_id = ? AND removal_lease IS NULL ORDER BY name"
    names = db.rows(sql, (collection.tenant_id,))
    others = [load_for_tenant(collection.tenant_id, name) for (name,) in names]
    return [
        f"{other.name}.{field.definition.name}"
        for other in others
        for field in other.relations
        if field.definition.options["collection"] == collection.name
    ]


@contextmanager
def explain_broken_constraints(collection: CompiledCollection, row: list[Any], pointer: str) -> Iterator[None]:
    """Turn ConstraintBroken into a ValidationFailed that names every field and the reason."""
    try:
        yield
    except ConstraintBroken as broken:
        findings = Findings()
        find_broken_constraints(collection, row[0], values_by_column(collection, row), (findings, pointer))
        findings.raise_if_any(f"the entity cannot be stored in {collection.name}")
        db.require_exclusive()  # The reason is gone already, with a concurrent change.
        raise ApplianceError("the database rejected the change for an unknown reason") from broken


def values_by_column(collection: CompiledCollection, row: list[Any]) -> dict[str, Any]:
    return dict(zip(collection.columns[FIRST_FIELD_POSITION:], row[FIRST_FIELD_POSITION:], strict=True))


def find_broken_constraints(
    collection: CompiledCollection, entity_id: str, stored: Mapping[str, Any], place: tuple[Findings, str]
) -> None:
    """Add an error for each unique value that is taken and each relation whose target does not exist."""
    findings, pointer = place
    for group in unique_groups(collection.definition):
        values = [stored.get(field.column) for field in group]
        if any(value is None for value in values):
            continue
        where = " AND ".join(f'"{field.column}" = ?' for field in group)
        sql = f'SELECT id FROM "{collection.table_name}" WHERE {where} AND id <> ?'  # noqa: S608
        if db.rows(sql, (*values, entity_id)):
            names = " and ".join(field.name for field in group)
            findings.add(f"{pointer}/{group[-1].name}", "not_unique", f"{names} must be unique, and another entity has this value")
    for field in collection.relations:
        target_id = stored.get(field.definition.column)
        if target_id is None:
            continue
        target = load_for_tenant(collection.tenant_id, field.definition.options["collection"])
        if target_id != entity_id and find_row(target, target_id) is None:
            findings.add(f"{pointer}/{field.definition.name}", "not_found", f"there is no entity {target_id} in {target.name}")
