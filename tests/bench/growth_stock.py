"""Fills a furnished tenant with as many executions, entities, documents, log lines and records of every kind as a bench wants."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.testing.running import Running
from tests.bench.documents import fill_documents
from tests.bench.entities import PURCHASES
from tests.bench.filling import DAY, DAYS, fill, insert
from tests.screenshots.furnishing import TENANT, FurnishedTenant, furnish

SHARE = 10  # of records that are rarer than executions, one for so many
MOST_VERSIONS, MOST_DOCUMENTS = 2_000, 100_000
HOT_PROCESS: dict[str, Any] = {
    "id": "growth",
    "name": "Growth",
    "steps": [
        {"id": "sum", "code": {"language": "javascript", "source": "export default (input) => ({n: input.n + 1})"}},
        {"id": "twice", "rule": {"expression": "= steps.sum.n * 2"}},
    ],
}
_EPOCH_MS = 1_500_000_000_000  # A larger number in a row is a time.
_CHUNK = 20_000
# A table of which the furnished tenant has rows, its columns whose values are unique, and what picks the row to copy.
COPIED = {
    "integration_call": (("id", "idempotency_key", "sent_key"), "status = 'succeeded'"),
    "audit_entry": (("seq",), "1 = 1"),
    "entity_change": (("entity_id",), "1 = 1"),
    "approval": (("id", "idempotency_key", "digest", "execution_id"), "execution_id IS NULL"),
    "agent_run": (("id", "idempotency"), "status = 'succeeded' AND execution_id IS NULL"),
    "webapp_request": ((), "1 = 1"),
    "process_version": (("version",), "process_id = 'growth'"),
}


@dataclass(frozen=True)
class Stock:
    """A filled tenant: its house, ids of executions by status, and ids of entities."""

    house: FurnishedTenant
    executions: dict[str, str]
    entities: list[str]

    @property
    def scope(self) -> TenantScope:
        return self.house.running.tenant(self.house.things["tenant"])


def fill_stock(running: Running, count: int) -> Stock:
    """Furnish a tenant, and add `count` executions with steps and log lines, entities with a change each, and documents."""
    house = furnish(running)
    house.api = running.api(TENANT)
    house.publish(HOT_PROCESS)
    house.ask("POST", "/datapool", dict(PURCHASES.definition))
    scope = running.tenant(house.things["tenant"])
    executions = fill(scope, count)
    fill_documents(scope, min(count, MOST_DOCUMENTS))
    entities = list(_fill_entities(scope, count))
    for table, (unique, which) in COPIED.items():
        most = MOST_VERSIONS if table == "process_version" else count
        copy_rows(scope, table, unique, which, count if table == "entity_change" else min(most, count // SHARE))
    db.write(partial(_correct_audit_chain, scope))
    return Stock(house, executions, entities)


def _fill_entities(scope: TenantScope, count: int) -> Iterator[str]:
    ((table,),) = db.rows("SELECT table_name FROM collection WHERE tenant_id = ? AND name = 'purchases'", (scope.tenant_id,))
    now = clock.now_ms()
    columns = [f"c{number}" for number in range(1, len(PURCHASES.stored(0)) + 1)]
    for start in range(0, count, _CHUNK):
        rows = []
        for number in range(start, min(count, start + _CHUNK)):
            at = now - (count - number) * DAYS * DAY // count
            rows.append((f"ent_{number:021}", at, at, 1, *PURCHASES.stored(number)))
        db.write(partial(insert, table, " ".join(["id created_at updated_at version", *columns]), rows))
        yield from (row[0] for row in rows)


def copy_rows(scope: TenantScope, table: str, unique: tuple[str, ...], which: str, count: int) -> None:
    """Copy one row so often, spread over the month, with other values of the unique columns; RuntimeError if there is none."""
    cursor = db.database.execute_sql(f"SELECT * FROM {table} WHERE tenant_id = '{scope.tenant_id}' AND {which} LIMIT 1")  # noqa: S608
    names = [column[0] for column in cursor.description]
    row = cursor.fetchone()
    if row is None:
        raise RuntimeError(f"the furnished tenant has no row of {table} where {which}")
    serial = {"webapp_request": "id", "entity_change": "number"}.get(table)
    chosen = [index for index, name in enumerate(names) if name != serial]
    numbers = itertools.count(1_000)
    for start in range(0, count, _CHUNK):
        rows = []
        for index in range(start, min(count, start + _CHUNK)):
            earlier, number = (count - index) * DAYS * DAY // count, next(numbers)
            rows.append(tuple(_copy_value(names[at], row[at], unique, number, earlier) for at in chosen))
        db.write(partial(insert, table, " ".join(names[at] for at in chosen), rows))


def _copy_value(name: str, value: Any, unique: tuple[str, ...], number: int, earlier: int) -> Any:
    if value is None:
        return None
    if name in unique:
        return number if isinstance(value, int) else f"{value}-{number}"
    return value - earlier if isinstance(value, int) and value > _EPOCH_MS else value


def _correct_audit_chain(scope: TenantScope) -> None:
    """Inside a write: let the next entry follow those that were copied."""
    db.execute(
        "UPDATE audit_chain SET last_seq = (SELECT MAX(seq) FROM audit_entry a WHERE a.tenant_id = audit_chain.tenant_id) "
        "WHERE tenant_id = ?", (scope.tenant_id,),
    )  # fmt: skip
