"""An import fills a tenant that nobody sees in short writes, also after an interruption, on both databases."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from appliance.backups.importing import ImportRequest, ImportResult, SecretReplacement, filling
from appliance.backups.tenant_exports import export_tenant
from appliance.backups.tenant_imports import import_tenant
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, Conflict, NotFound
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope, tenant_ids
from appliance.datapool import service as datapool
from appliance.monitor import audit, logs
from appliance.tenants import closed_tenants, people, service
from tests.backups.conftest import World, make_world
from tests.backups.test_emptying import check_searches, count_rows, entity_tables
from tests.backups.test_transfer import tenant_rows
from tests.bench.filling import fill

EXECUTIONS = 60
Import = Callable[..., ImportResult]


@pytest.fixture
def opened(tmp_path: Path, store_url: str) -> Iterator[tuple[World, Import]]:
    """A world with an export of initech, and what imports it as `copy`."""
    world = make_world(tmp_path / "data", "" if store_url.startswith("sqlite") else store_url)
    with world.opened() as sealer:
        scope = world.fill()
        fill(scope, EXECUTIONS)
        logs.index_older()
        add_circles(scope)
        export_tenant(scope, world.places, tmp_path / "initech.gost", None)

        def run(**options: Any) -> ImportResult:
            request = ImportRequest(tmp_path / "initech.gost", name="copy", **options)
            return import_tenant(world.places, SecretReplacement(sealer), request, world.config.data)

        yield world, run


def relation(name: str, collection: str) -> dict[str, str]:
    return {"name": name, "type": "relation", "collection": collection}


def add_circles(scope: TenantScope) -> None:
    """Collections that refer to each other and to themselves, with entities in circles."""
    text = {"name": "number", "type": "text"}
    datapool.create_collection(scope, {"name": "heads", "fields": [text]})
    datapool.create_collection(scope, {"name": "tails", "fields": [text, relation("of", "heads")]})
    datapool.change_collection(scope, "heads", {"fields": [text, relation("tail", "tails"), relation("next", "heads")]})
    heads = [datapool.create_entity(scope, "heads", {"number": str(number)})["id"] for number in range(70)]
    for number, head in enumerate(heads):
        tail = datapool.create_entity(scope, "tails", {"number": str(number), "of": head})["id"]
        datapool.update_entity(scope, "heads", head, {"tail": tail, "next": heads[number - 1]})


def count_writes(monkeypatch: pytest.MonkeyPatch, before: Callable[[int], None] = lambda _: None) -> list[int]:
    """The rows of each write of a filling, as it goes on; `before` is called before each, with the number of those."""
    sizes: list[int] = []
    in_a_write = filling.Filling._write

    def counted(self: filling.Filling, work: Any) -> float:
        before(len(sizes))
        batch = work.args[-1] if isinstance(work, partial) else []
        sizes.append(len(batch))
        return in_a_write(self, work)

    monkeypatch.setattr(filling.Filling, "_write", counted)
    return sizes


def same_rows(tenant_id: str) -> dict[str, list[str]]:
    """Its rows without those that differ after an import: unfinished work and pauses."""
    changed = ("execution", "step_run", "process", "approval", "alert")
    return {table: rows for table, rows in tenant_rows(tenant_id).items() if table not in changed}


def test_a_tenant_is_filled_in_short_writes(opened: tuple[World, Import], monkeypatch: pytest.MonkeyPatch) -> None:
    run = opened[1]
    monkeypatch.setattr(filling, "MOST", 25)
    sizes = count_writes(monkeypatch)
    before, others = count_rows("initech"), count_rows("hooli")
    done = run()
    after = count_rows("copy")
    assert (max(sizes), sum(sizes) > before["execution"] + before["step_run"], done.tenant_id) == (25, True, "copy")
    assert same_rows("copy") == same_rows("initech")
    assert after["execution"] == before["execution"]
    assert (count_rows("hooli"), audit.verify(service.system_scope("copy")).intact) == (others, True)
    check_searches()
    words = logs.list_lines(service.system_scope("copy"), logs.LineFilter(text="order"), PageRequest(10)).items
    assert words, "the log of the imported tenant cannot be searched"


def test_a_write_of_large_rows_has_few() -> None:
    rows = iter([("x" * 100_000, 1), (b"x" * 200_000, 2), ("x", 3), ("x" * 300_000, 4), ("x", 5), ("x", 6), ("x", 7)])
    assert [[row[1] for row in filling._take(rows, 2)] for _ in range(5)] == [[1, 2], [3, 4], [5, 6], [7], []]
    assert [row[1] for row in filling._take(iter([("x" * 300_000, 1), ("x", 2)]), 20)] == [1]


def test_nobody_sees_a_tenant_before_it_is_complete(opened: tuple[World, Import], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(filling, "FEWEST", 200)

    def look(_: int) -> None:
        seen.append(int(db.rows("SELECT count(*) FROM step_run WHERE tenant_id = 'copy'")[0][0]))
        assert tenant_ids() == [row.id for row in service.list_tenants()] == ["hooli", "initech"]
        assert not service.tenant_exists("copy")
        assert [tenant.id for tenant, _ in people.tenants_of(people.find_user("ada").id)] == ["hooli", "initech"]
        with pytest.raises(NotFound):
            service.get_tenant("copy")
        with pytest.raises(AlreadyExists, match="is being deleted or imported"):
            service.create_tenant("copy", "Copy")
        closed_tenants.delete_left()
        db.write(partial(db.execute, "UPDATE tenant SET name = name WHERE id = 'hooli'"))  # others write in between

    count_writes(monkeypatch, look)
    opened[1]()
    assert seen[0] == 0 < max(seen)
    assert service.tenant_exists("copy")
    assert ("copy", "owner") in [(tenant.id, role) for tenant, role in people.tenants_of(people.find_user("ada").id)]


def add_busy_rows(scope: TenantScope) -> None:
    """An alert, a published WebApp and a process with a trigger that is due."""
    ((process,),) = db.rows("SELECT min(id) FROM process WHERE tenant_id = ?", (scope.tenant_id,))
    tenant = {"tenant_id": scope.tenant_id}
    insert("trigger_state", tenant | {
        "process_id": process, "trigger_id": "nightly", "position": 0, "kind": "schedule", "settings": "{}", "digest": "d",
        "next_due": 1, "failed_in_row": 0, "created_at": 1,
    })  # fmt: skip
    insert("alert", tenant | {
        "id": "alt_1", "name": "a", "condition": "{}", "actions": "[]", "for_ms": 0, "repeat_ms": 0, "enabled": 1, "state": "ok",
        "since": 0, "turn": 0, "told": 0, "armed_at": 0, "revision": 1, "created_at": 0, "created_by": "x", "updated_at": 0,
    })  # fmt: skip
    insert("webapp", tenant | {
        "id": "shop", "name": "Shop", "description": "", "published_version": 3, "last_version": 3, "created_at": 0,
        "updated_at": 0, "forms": 0,
    })  # fmt: skip


def insert(table: str, row: dict[str, Any]) -> None:
    sql = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"  # noqa: S608
    db.write(partial(db.execute, sql, tuple(row.values())))


BUSY = (
    "trigger_state s JOIN process p USING (tenant_id) WHERE p.id = s.process_id AND p.paused_at IS NULL AND s.tenant_id = ?",
    "alert WHERE enabled = 1 AND tenant_id = ?",
    "webapp WHERE published_version = 3 AND tenant_id = ?",
    "audit_chain WHERE tenant_id = ?",
)
"""What processes would go on with: due triggers of processes that are not paused, enabled alerts, published WebApps, a trail."""


def busy_rows() -> tuple[int, ...]:
    return tuple(int(db.rows(f"SELECT count(*) FROM {sql}", ("copy",))[0][0]) for sql in BUSY)  # noqa: S608


@pytest.mark.parametrize(("active", "after"), [(True, (1, 1, 1, 1)), (False, (0, 0, 1, 1))])
def test_nothing_is_done_for_a_tenant_before_it_is_complete(
    active: bool, after: tuple[int, ...], tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path / "data", "" if store_url.startswith("sqlite") else store_url)
    with world.opened() as sealer:
        scope = world.fill()
        fill(scope, 10)
        add_busy_rows(scope)
        export_tenant(scope, world.places, tmp_path / "initech.gost", None)
        seen: set[tuple[Any, ...]] = set()
        count_writes(monkeypatch, lambda _: seen.add(busy_rows()))
        request = ImportRequest(tmp_path / "initech.gost", name="copy", active=active)
        import_tenant(world.places, SecretReplacement(sealer), request, world.config.data)
        assert (seen, busy_rows()) == ({(0, 0, 0, 0)}, after)
        assert same_rows("copy") == same_rows("initech")


def test_an_import_that_fails_leaves_nothing(opened: tuple[World, Import], monkeypatch: pytest.MonkeyPatch) -> None:
    run, tables = opened[1], entity_tables()
    with monkeypatch.context() as counting:
        sizes = count_writes(counting)
        run()
    service.delete_tenant("copy")

    class Broken(Exception):
        pass

    def fail(number: int, last: int) -> None:
        if number == last:
            raise Broken

    for last in {1, 2, len(sizes) // 2}:
        with monkeypatch.context() as broken:
            count_writes(broken, partial(fail, last=last))
            with pytest.raises(Broken):
                run()
        assert (count_rows("copy"), entity_tables(), service.list_closed()) == ({}, tables, [])
    check_searches()


def test_what_a_killed_import_left_is_deleted_first(opened: tuple[World, Import], monkeypatch: pytest.MonkeyPatch) -> None:
    run, tables = opened[1], len(entity_tables())

    def stop(number: int) -> None:
        if number == 8:
            raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        count_writes(killed, stop)
        killed.setattr(closed_tenants, "let_go", lambda *_: None)
        killed.setattr(closed_tenants, "delete_if_left", lambda _: True)
        with pytest.raises(KeyboardInterrupt):
            run()
    assert sum(count_rows("copy").values()) > 0
    closed_tenants.delete_left()
    assert service.list_closed() == ["copy"], "somebody may still work on it"
    with monkeypatch.context() as impatient:
        impatient.setattr(closed_tenants, "LEFT_MS", 300)
        run()
    assert same_rows("copy") == same_rows("initech")
    assert (len(entity_tables()), service.list_closed()) == (tables + 4, [])


def test_who_stood_still_for_too_long_does_not_go_on(opened: tuple[World, Import], monkeypatch: pytest.MonkeyPatch) -> None:
    tables = entity_tables()

    def take_over(number: int) -> None:
        if number == 8:
            clock.move(closed_tenants.LEFT_MS + 1)
            closed_tenants.delete_left()
            clock.move(-closed_tenants.LEFT_MS - 1)

    count_writes(monkeypatch, take_over)
    with pytest.raises(Conflict, match="stood still for so long that another process has begun to remove it"):
        opened[1]()
    assert (count_rows("copy"), entity_tables(), service.list_closed()) == ({}, tables, [])


def test_who_was_taken_over_leaves_the_rest_to_the_other(opened: tuple[World, Import], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def take_over(number: int) -> None:
        if number == 8:
            ((closed_at,),) = db.rows("SELECT closed_at FROM tenant WHERE id = 'copy'")
            clock.move(1)  # the other needs longer than that to see that nobody works on it
            seen.append(db.write(partial(closed_tenants.renew, "copy", int(closed_at))))
            clock.move(-1)

    count_writes(monkeypatch, take_over)
    with pytest.raises(Conflict, match="another process has begun to remove it"):
        opened[1]()
    assert db.rows("SELECT closed_at FROM tenant WHERE id = 'copy'") == [(seen[0],)]
    assert sum(count_rows("copy").values()) > 0, "whoever has taken it over deletes it"
