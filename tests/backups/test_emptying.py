"""A tenant that is deleted is closed at once and emptied in short writes, also after an interruption, on both databases."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from appliance.backups import emptying
from appliance.core.database import db
from appliance.core.database.bulk import short_writes
from appliance.core.errors import AlreadyExists, NotFound
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope, tenant_ids
from appliance.datapool import service as datapool
from appliance.monitor import logs
from appliance.tenants import closed_tenants, people, service
from appliance.tenants.keys import keys
from tests.backups.conftest import World, make_world
from tests.bench.filling import fill

EXECUTIONS = 120


@pytest.fixture
def opened(tmp_path: Path, store_url: str) -> Iterator[World]:
    world = make_world(tmp_path / "data", "" if store_url.startswith("sqlite") else store_url)
    with world.opened():
        world.fill()
        for name in ("initech", "hooli"):
            fill(service.system_scope(name), EXECUTIONS)
        logs.index_older()
        yield world


def count_rows(tenant_id: str) -> dict[str, int]:
    """The rows of a tenant by table, without empty ones."""
    counts = {}
    for table in db.database.obj.get_tables():
        if "tenant_id" in {column.name for column in db.database.obj.get_columns(table)}:
            counts[table] = int(db.rows(f"SELECT count(*) FROM {table} WHERE tenant_id = ?", (tenant_id,))[0][0])  # noqa: S608
    return {table: count for table, count in counts.items() if count}


def entity_tables() -> set[str]:
    return {name for name in db.database.obj.get_tables() if name.startswith("dp_")}


def check_searches() -> None:
    """SQLite's index of the words of log lines agrees with them exactly if this does not fail."""
    if db.is_sqlite():
        db.write(partial(db.execute, "INSERT INTO log_line_index (log_line_index, rank) VALUES ('integrity-check', 1)"))


def count_deleted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows that each short write deletes from now on."""
    sizes: list[int] = []
    delete_some = short_writes.delete_some

    def counted(*args: Any) -> tuple[int, float]:
        deleted, took = delete_some(*args)
        sizes.append(deleted)
        return deleted, took

    monkeypatch.setattr(short_writes, "delete_some", counted)
    return sizes


def test_nothing_stays_of_a_large_tenant_and_everything_of_another(opened: World, monkeypatch: pytest.MonkeyPatch) -> None:
    check_searches()
    other, tables = count_rows("hooli"), entity_tables()
    monkeypatch.setattr(short_writes, "MOST", 50)
    sizes = count_deleted(monkeypatch)
    before = count_rows("initech")
    assert before["step_run"] >= 3 * EXECUTIONS
    service.delete_tenant("initech")
    assert (count_rows("initech"), count_rows("hooli")) == ({}, other)
    assert (max(sizes), sum(sizes) >= before["step_run"] + before["execution"]) == (50, True)
    assert len(entity_tables()) == len(tables) - 2
    check_searches()


UNFINISHED = ("scheduled", "queued", "running", "waiting", "cancelling")


def begin_executions(tenant_id: str) -> None:
    """A tenant whose executions are all unfinished, in all ways; processes work on three of them."""

    executions = [str(row[0]) for row in db.rows("SELECT id FROM execution WHERE tenant_id = ? ORDER BY id", (tenant_id,))]
    changes = [(UNFINISHED[number % 5], "wrk_1" if number in (2, 4, 7) else None) for number in range(len(executions))]
    sql = "UPDATE execution SET status = ?, owner = ?, finished_at = NULL WHERE tenant_id = ? AND id = ?"

    def begin() -> None:
        for execution, change in zip(executions, changes, strict=True):
            db.execute(sql, (*change, tenant_id, execution))

    db.write(begin)


def count_unfinished(tenant_id: str) -> int:
    return int(db.rows("SELECT count(*) FROM execution WHERE tenant_id = ? AND finished_at IS NULL", (tenant_id,))[0][0])


def test_what_is_unfinished_is_cancelled_in_short_writes(opened: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first write ends what processes work on, which is little; the batches end the rest, before anything is deleted."""
    begin_executions("initech")
    begin_executions("hooli")
    before, others = count_unfinished("initech"), count_unfinished("hooli")
    assert before >= EXECUTIONS
    left: list[int] = []
    change_some, delete_some = short_writes.change_some, short_writes.delete_some

    def counted(*args: Any) -> tuple[int, float]:
        left.append(count_unfinished("initech"))
        return change_some(*args)

    def checked(*args: Any) -> tuple[int, float]:
        left.append(count_unfinished("initech"))
        assert left[-1] == 0
        return delete_some(*args)

    monkeypatch.setattr(short_writes, "MOST", 50)
    monkeypatch.setattr(short_writes, "change_some", counted)
    monkeypatch.setattr(short_writes, "delete_some", checked)
    service.delete_tenant("initech")
    steps = [earlier - later for earlier, later in zip([before, *left], left, strict=False)]
    assert (steps[0], max(steps[1:]) <= 50, len([step for step in steps if step]) > 5) == (3, True, True)
    assert (count_rows("initech"), count_unfinished("hooli")) == ({}, others)


def test_an_interrupted_deletion_is_seen_by_nobody_and_is_finished_later(opened: World, monkeypatch: pytest.MonkeyPatch) -> None:
    other, scope = count_rows("hooli"), service.system_scope("initech")
    db.write(partial(db.execute, "UPDATE execution SET status = 'queued', finished_at = NULL WHERE tenant_id = 'initech'"))
    calls, delete_some = iter(range(5)), short_writes.delete_some

    def stop(*args: Any) -> tuple[int, float]:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return delete_some(*args)

    with monkeypatch.context() as stopped:
        stopped.setattr(short_writes, "delete_some", stop)
        with pytest.raises(KeyboardInterrupt):
            service.delete_tenant("initech")
    assert count_rows("initech")["execution"] > 0
    assert db.rows("SELECT count(*) FROM execution WHERE tenant_id = 'initech' AND status = 'queued'") == [(0,)]
    assert [row.id for row in service.list_tenants()] == tenant_ids() == ["hooli"]
    assert not service.tenant_exists("initech")
    assert [tenant.id for tenant, _ in people.tenants_of(people.find_user("ada").id)] == ["hooli"]
    assert keys.list_keys(scope, PageRequest(10)).items == []
    for refused in (lambda: service.get_tenant("initech"), lambda: service.delete_tenant("initech")):
        with pytest.raises(NotFound):
            refused()
    with pytest.raises(AlreadyExists, match="is being deleted or imported; try again when that is done"):
        service.create_tenant("initech", "Initech")
    closed_tenants.delete_left()  # somebody may still work on it
    assert service.list_closed() == ["initech"]
    monkeypatch.setattr(closed_tenants, "LEFT_MS", 0)
    closed_tenants.delete_left()
    assert (count_rows("initech"), count_rows("hooli"), service.list_closed()) == ({}, other, [])
    service.create_tenant("initech", "Initech")
    people.add_member(scope, "ada", "owner")
    assert emptying.empty_tenant(scope) == 0, "what another process has just finished must not reach a new tenant of that id"
    assert [row.id for row in service.list_tenants()] == ["hooli", "initech"]
    assert len(people.tenants_of(people.find_user("ada").id)) == 2


def test_entities_that_refer_to_each_other_are_deleted_with_the_tenant(opened: World) -> None:
    scope: TenantScope = service.system_scope("initech")
    tables = entity_tables()
    for name, other in (("heads", ""), ("tails", "heads")):
        relations = [{"name": "other", "type": "relation", "collection": other}] if other else []
        datapool.create_collection(scope, {"name": name, "fields": [{"name": "number", "type": "text"}, *relations]})
    back = {"name": "other", "type": "relation", "collection": "tails"}
    datapool.change_collection(scope, "heads", {"fields": [{"name": "number", "type": "text"}, back]})
    head = datapool.create_entity(scope, "heads", {"number": "1"})
    tail = datapool.create_entity(scope, "tails", {"number": "1", "other": head["id"]})
    datapool.update_entity(scope, "heads", head["id"], {"other": tail["id"]})
    service.delete_tenant("initech")
    assert count_rows("initech") == {}
    assert len(entity_tables()) == len(tables) - 2
