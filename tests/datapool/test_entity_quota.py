"""The quota of entities, counted from their tables and their history, on both databases."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from appliance.core.database import db
from appliance.core.errors import StorageFull, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.datapool import entity_quota
from appliance.datapool import service as datapool
from appliance.quotas import limits


@pytest.fixture(autouse=True)
def forgetful(acme: TenantScope) -> Iterator[None]:
    entity_quota._states.clear()
    yield
    limit(acme, None)


def limit(scope: TenantScope, amount: int | None) -> None:
    if amount is None:
        db.write(lambda: limits.reset_own(scope, "entities"))
    else:
        db.write(lambda: limits.set_own(scope, "entities", amount))


def count(scope: TenantScope) -> int:
    tables = db.rows("SELECT table_name FROM collection WHERE tenant_id = ?", (scope.tenant_id,))
    return sum(int(db.rows(f'SELECT count(*) FROM "{name}"')[0][0]) for (name,) in tables)  # noqa: S608


def create(scope: TenantScope, number: int) -> dict[str, object]:
    return datapool.create_entity(scope, "orders", {"number": f"n{number}"})


def test_the_count_follows_every_kind_of_change(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entity_quota, "FRESH_SECONDS", 0.0)
    before = entity_quota.count_entities(acme)
    assert before == count(acme)
    first = create(acme, 1)
    create(acme, 2)
    datapool.update_entity(acme, "orders", str(first["id"]), {"quantity": 5})
    assert entity_quota.count_entities(acme) == before + 2
    with pytest.raises(ValidationFailed):
        create(acme, 2)
    datapool.delete_entity(acme, "orders", str(first["id"]))
    assert entity_quota.count_entities(acme) == before + 1
    datapool.create_collection(acme, {"name": "notes", "fields": [{"name": "text", "type": "text"}]})
    for _ in range(3):
        datapool.create_entity(acme, "notes", {"text": "x"})
    assert entity_quota.count_entities(acme) == before + 4
    datapool.delete_collection(acme, "notes", allow_loss=True)
    assert entity_quota.count_entities(acme) == before + 1 == count(acme)


def test_concurrent_writes_do_not_exceed_it(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    start = count(acme)
    limit(acme, start + 30)

    def attempt(number: int) -> bool:
        try:
            create(acme, 100 + number)
        except StorageFull:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        done = list(threads.map(attempt, range(60)))
    assert (sum(done), count(acme)) == (30, start + 30)


def test_what_other_processes_add_and_delete_counts(acme: TenantScope) -> None:
    """This process remembers a count from before, as if the changes were another's."""
    limit(acme, count(acme) + 5_000)
    entity_quota.prepare(acme)
    old = entity_quota._states["acme"]
    rows = [create(acme, 200 + number) for number in range(4)]
    old.since = 0
    limit(acme, count(acme) + 1)
    entity_quota._states["acme"] = old
    create(acme, 300)
    with pytest.raises(StorageFull) as caught:
        create(acme, 301)
    used = count(acme)
    assert (caught.value.extra["used"], caught.value.extra["limit"]) == (used, used)
    assert caught.value.message.startswith(f"this tenant has {used} of the {used} entities that it may have")
    datapool.delete_entity(acme, "orders", str(rows[0]["id"]))
    create(acme, 302)


def test_far_below_the_limit_no_write_reads_the_history(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(acme, 1_000_000)
    create(acme, 400)
    statements: list[str] = []
    rows = db.rows

    def watch(sql: str, params: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        statements.append(sql)
        return rows(sql, params)

    monkeypatch.setattr(db, "rows", watch)
    create(acme, 401)
    assert not [sql for sql in statements if "entity_change" in sql or "count(*)" in sql]


def test_a_refused_write_leaves_nothing(acme: TenantScope) -> None:
    limit(acme, count(acme) + 1)
    before = count(acme), db.rows("SELECT count(*) FROM entity_change")
    operations = [{"op": "create", "collection": "orders", "values": {"number": f"b{n}"}} for n in range(2)]
    with pytest.raises(StorageFull):
        datapool.run_batch(acme, operations)
    assert (count(acme), db.rows("SELECT count(*) FROM entity_change")) == before
    assert len(datapool.run_batch(acme, operations, dry_run=True)) == 2, "a dry run adds nothing"
