"""The history of entities: every change is recorded in the transaction that made it, and can be read or followed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from appliance.blobs import quota
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import InvalidRequest
from appliance.core.pages import MAX_LIMIT, Page, PageRequest, decode_cursor, encode_cursor
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool import entity_quota
from appliance.datapool.compiled import CompiledCollection
from appliance.datapool.entities import ChangeResult
from appliance.monitor import delete_older_by_number

_COLUMNS = "number, version, event, at, actor, entity"
_ORDER = "-number"
CHUNK_ROWS = 1_000
# A new entity is stored twice, in its table and in the history; a deleted one remains in the history only.
_COPIES = {"created": 2, "deleted": 0}
_GROWTH = {"created": 1, "deleted": -1}


@dataclass(frozen=True)
class Change:
    """One change: `number` increases across the appliance; `entity` is its state after the change (before a deletion)."""

    number: int
    version: int
    event: str
    at: str
    actor: str
    entity: dict[str, Any]


def record_changes(scope: TenantScope, results: Sequence[ChangeResult]) -> None:
    """Record the changes, inside the write, and add their size to the tenant's usage.  StorageFull beyond its quota of entities."""
    now, size = clock.now_ms(), 0
    changed = [result for result in results if result.event != "unchanged"]
    sql = "INSERT INTO entity_change (tenant_id, collection, entity_id, version, event, at, actor, entity) VALUES "
    for start in range(0, len(changed), CHUNK_ROWS):
        part = changed[start : start + CHUNK_ROWS]
        values: list[Any] = []
        for result in part:
            entity = db.dump_json(result.entity)
            size += (len(entity) if entity.isascii() else len(entity.encode())) * _COPIES.get(result.event, 1)
            values += (
                scope.tenant_id, result.table_name, result.entity["id"], result.entity["_version"], result.event, now,
                scope.actor, entity,
            )  # fmt: skip
        db.insert_followed("entity_change", sql + ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?)"] * len(part)), tuple(values))
    quota.add_rows(scope, size)
    entity_quota.admit(scope, sum(_GROWTH.get(result.event, 0) for result in changed))


def _parse_rows(rows: Sequence[Any]) -> list[Change]:
    return [Change(row[0], row[1], row[2], clock.rfc3339(row[3]), row[4], json.loads(row[5])) for row in rows]


def list_changes(collection: CompiledCollection, entity_id: str, request: PageRequest) -> Page[Change]:
    """The changes of one entity, newest first, including those of a deleted entity."""
    if not 1 <= request.limit <= MAX_LIMIT:
        raise InvalidRequest(Sentence("limit must be between 1 and %(max_limit)s", max_limit=MAX_LIMIT), pointer="/limit")
    before = 2**62
    if request.cursor:
        [number] = decode_cursor(request.cursor, _ORDER, 1)
        before = number if isinstance(number, int) and abs(number) < before else 0
    rows = db.rows(
        f"SELECT {_COLUMNS} FROM entity_change WHERE tenant_id = ? AND collection = ? AND entity_id = ? AND number < ? "  # noqa: S608
        "ORDER BY number DESC LIMIT ?",
        (collection.tenant_id, collection.table_name, entity_id, before, request.limit + 1),
    )
    more, rows = len(rows) > request.limit, rows[: request.limit]
    return Page(_parse_rows(rows), encode_cursor([rows[-1][0]], _ORDER) if more else None)


def find_version(collection: CompiledCollection, entity_id: str, version: int) -> Change | None:
    """The change that produced this version of an entity, or None when the history no longer has it."""
    sql = f"SELECT {_COLUMNS} FROM entity_change WHERE tenant_id = ? AND collection = ? AND entity_id = ? AND version = ?"  # noqa: S608
    matches = _parse_rows(
        db.rows(f"{sql} ORDER BY number LIMIT 1", (collection.tenant_id, collection.table_name, entity_id, version))
    )
    return matches[0] if matches else None


def list_changes_after(collection: CompiledCollection, number: int, limit: int) -> list[Change]:
    """The collection's next changes, oldest first."""
    sql = (
        f"SELECT {_COLUMNS} FROM entity_change WHERE tenant_id = ? AND collection = ? AND number > ? "  # noqa: S608
        "ORDER BY number LIMIT ?"
    )
    return _parse_rows(db.rows(sql, (collection.tenant_id, collection.table_name, number, limit)))


def get_last_number(collection: CompiledCollection) -> int:
    """The number of the collection's newest change; 0 when there is none."""
    sql = "SELECT MAX(number) FROM entity_change WHERE tenant_id = ? AND collection = ?"
    return int(db.rows(sql, (collection.tenant_id, collection.table_name))[0][0] or 0)


def delete_changes_before(before_ms: int) -> int:
    """Delete every tenant's changes older than this time; returns how many."""
    return delete_older_by_number("entity_change", "number", "at", before_ms)
