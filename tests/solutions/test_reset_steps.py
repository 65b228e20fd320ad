"""A reset whose process dies between any two of its writes leaves the tenant as it was, or is completed by another process."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from appliance.backups import tenant_exports
from appliance.backups.jobs import RESET, NewJob, records
from appliance.backups.jobs.records import Claim, TenantJob
from appliance.backups.resetting import PRESERVED
from appliance.core.database import db
from appliance.core.database.bulk import short_writes
from appliance.core.database.losses import ConnectionLost
from appliance.core.errors import AlreadyExists, Conflict, OutcomeUnknown, Overloaded
from appliance.core.leases import LeaseLost
from appliance.core.leases.claims import Stopping
from appliance.monitor import audit, logs
from appliance.solutions import Transfers, write_zip
from appliance.tenants import appliance_scope, service
from tests.backups.conftest import make_world, restore
from tests.backups.job_processes import Processes, collections, open_processes, wait_for
from tests.backups.test_emptying import check_searches, count_rows, entity_tables
from tests.backups.test_filling import add_busy_rows
from tests.backups.test_transfer import tenant_rows
from tests.bench.filling import fill

FILES = {"solution.yaml": b"name: wanted\n", "collections/parts.yaml": b"name: parts\nfields:\n  - {name: number, type: text}\n"}
EXECUTIONS = 25


class Killed(BaseException):
    """The process is gone: nothing more of it happens."""


@pytest.fixture
def cluster(tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    monkeypatch.setattr(short_writes, "MOST", 50)
    with open_processes(tmp_path / "data", "" if store_url.startswith("sqlite") else store_url) as processes:
        fill(processes.scope, EXECUTIONS)
        add_busy_rows(processes.scope)
        fill(service.system_scope("hooli"), 5)
        logs.index_older()
        yield processes


def begin(
    cluster: Processes, name: str = "one", *, files: dict[str, bytes] = FILES, force: bool = False
) -> tuple[Transfers, Claim]:  # fmt: skip
    """A process with the claim of a new reset, which it has not begun to work on."""
    process = cluster.open(name)
    job = NewJob(RESET, options={"force": force}, archive=write_zip(files))
    return process, db.write(partial(records.insert_running, cluster.scope, job, name))[0]


def work(process: Transfers, claim: Claim, monkeypatch: pytest.MonkeyPatch, before: Callable[[int], None] = lambda _: None) -> int:
    """Do the work of a claim; `before` is called before each of its writes, with the number of earlier ones.  Returns how many."""
    write, writes = db.write, 0

    def counted(fn: Any, **options: Any) -> Any:
        nonlocal writes
        if not db.is_inside_write():
            before(writes)
            writes += 1
        return write(fn, **options)

    with monkeypatch.context() as counting:
        counting.setattr(db, "write", counted)
        process.runner.work(claim)
    return writes


def die_before(number: int) -> Callable[[int], None]:
    def die(writes: int) -> None:
        if writes == number:
            raise Killed

    return die


def take_over(cluster: Processes, dead: str, name: str) -> tuple[Transfers, Claim]:
    """A new process with the claim of one that is gone."""
    cluster.alive.discard(dead)
    process = cluster.open(name)
    process.runner.most_claims = 10_000  # type: ignore[misc]
    (lost,) = process.runner._orphans.find(0, 10)
    claim = db.write(partial(process.runner.claim, lost))
    assert claim is not None
    return process, claim


def trail(cluster: Processes) -> list[str]:
    sql = "SELECT action FROM audit_entry WHERE tenant_id = ? ORDER BY seq"
    return [str(row[0]) for row in db.rows(sql, (cluster.scope.tenant_id,))]


def check_complete(cluster: Processes, others: dict[str, list[str]]) -> None:
    """The tenant has what the solution brings, and nothing else; others have what they had."""
    assert (collections(cluster.scope), service.is_being_reset("initech")) == (["parts"], False)
    assert trail(cluster)[-3:] == ["tenant.reset", "collection.create", "solution.apply"]
    assert trail(cluster).count("tenant.reset") == 1
    rest = count_rows("initech").keys() - PRESERVED
    assert rest == {"collection", "solution_item"}
    assert tenant_rows("hooli") == others
    assert audit.verify(cluster.scope).intact
    check_searches()


def last(cluster: Processes) -> TenantJob:
    return records.list_jobs(cluster.scope, RESET)[0]


def test_a_reset_is_complete_whenever_its_process_dies(cluster: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process reports that it goes on, does one write, and dies: before it begins, between any two writes, and afterwards."""
    before, others = tenant_rows("initech"), tenant_rows("hooli")
    process, claim = begin(cluster, "p0")
    seen: list[str] = []
    limits = iter([0, 1])
    while seen[-2:] != ["written", "written"]:
        limit = next(limits, 2 if seen[-1:] != ["written"] else 1)
        with pytest.raises(Killed):
            work(process, claim, monkeypatch, die_before(limit))
        is_reset, job = service.is_being_reset("initech"), last(cluster)
        seen.append("written" if job.result else "begun" if is_reset else "unchanged")
        if job.result:
            assert (collections(cluster.scope), is_reset) == (["parts"], False)
        elif is_reset:
            check_closed(cluster)
        else:
            assert tenant_rows("initech") == before
        process, claim = take_over(cluster, f"p{len(seen) - 1}", f"p{len(seen)}")
        assert claim.claims <= 3, "whoever deletes something makes progress, so the reset is not given up"
    assert work(process, claim, monkeypatch) == 2
    assert seen == sorted(seen, key=["unchanged", "begun", "written"].index), "a reset goes only forward"
    assert (seen.count("unchanged"), seen.count("begun") > 20) == (2, True)
    done = last(cluster)
    assert (done.state, done.result["deleted"] > len(before["execution"]) + len(before["step_run"])) == ("done", True)
    assert trail_rows(cluster) == done.result["deleted"]
    check_complete(cluster, others)
    assert db.rows("SELECT archive FROM tenant_job WHERE tenant_id = 'initech'") == [(None,)]


def trail_rows(cluster: Processes) -> int:
    """The number of deleted rows in the audit trail."""
    sql = "SELECT fields FROM audit_entry WHERE tenant_id = ? AND action = 'tenant.reset'"
    fields = db.rows(sql, (cluster.scope.tenant_id,))[0][0]
    return int((json.loads(fields) if isinstance(fields, str) else fields)["rows"])


@pytest.mark.parametrize("writes", [None, 2])
def test_the_number_of_deleted_rows_is_that_of_all(cluster: Processes, monkeypatch: pytest.MonkeyPatch, writes: int | None) -> None:
    """Those that the first write deletes are among them, whether the process dies after that or goes on."""
    tables = db.rows("SELECT table_name FROM collection WHERE tenant_id = 'initech'")
    entities = sum(int(db.rows(f'SELECT count(*) FROM "{table}"')[0][0]) for (table,) in tables)  # noqa: S608
    rows = entities + sum(number for table, number in count_rows("initech").items() if table not in PRESERVED)
    process, claim = begin(cluster)
    if writes is not None:
        with pytest.raises(Killed):
            work(process, claim, monkeypatch, die_before(writes))
        assert (service.is_being_reset("initech"), last(cluster).done) == (True, 1)
        process, claim = take_over(cluster, "one", "two")
    work(process, claim, monkeypatch)
    assert (last(cluster).result["deleted"], trail_rows(cluster)) == (rows, rows)


BUSY = (
    "trigger_state WHERE tenant_id = ?", "domain WHERE tenant_id = ?", "document_share WHERE tenant_id = ?",
    "execution WHERE tenant_id = ? AND finished_at IS NULL AND owner IS NOT NULL",
)
"""What is ended at once; nothing else of a tenant that is reset goes on (tests of each in `test_fenced_*`)."""


def check_closed(cluster: Processes) -> None:
    """Requests, exports, deletions and other resets are refused, and nothing of the tenant goes on; its people and keys stay."""
    with pytest.raises(Overloaded, match="this tenant is being reset; try again when that is done"):
        service.refuse_reset("initech")
    service.refuse_reset("hooli")
    for sql in BUSY:
        assert db.rows(f"SELECT count(*) FROM {sql}", ("initech",)) == [(0,)], sql  # noqa: S608
    assert [row.id for row in service.list_tenants()] == ["hooli", "initech"]
    with pytest.raises(Conflict, match="is being reset"):
        service.delete_tenant("initech", force=True)
    with pytest.raises(AlreadyExists):
        service.create_tenant("initech", "Initech")
    with pytest.raises(Conflict, match="already running"):
        db.write(partial(records.insert_running, cluster.scope, NewJob(RESET), "other"))
    for table in ("membership", "secret", "audit_entry", "tenant_job"):
        assert db.rows(f"SELECT 1 FROM {table} WHERE tenant_id = 'initech' LIMIT 1"), table  # noqa: S608


def test_what_another_process_has_taken_over_is_left_to_it(cluster: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    before, others = tenant_rows("initech"), tenant_rows("hooli")
    writes_until = {"it begins": 1, "rows are deleted": 6}
    process, claim = begin(cluster)

    def lose(writes: int, at: int) -> None:
        if writes == at:
            db.submit(partial(db.execute, "UPDATE tenant_job SET fence = fence + 1, owner = 'other'")).result()

    for what, number in writes_until.items():
        rows = tenant_rows("initech")
        with pytest.raises(LeaseLost):
            work(process, claim, monkeypatch, partial(lose, at=number))
        assert service.is_being_reset("initech") == (what == "rows are deleted")
        if what == "it begins":
            assert tenant_rows("initech") == rows == before
        assert db.rows("SELECT 1 FROM execution WHERE tenant_id = 'initech' LIMIT 1"), "it stops at once"
        process, claim = take_over(cluster, "other", what)
    work(process, claim, monkeypatch)
    check_complete(cluster, others)


def test_a_reset_continues_after_the_appliance_was_stopped(cluster: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    others = tenant_rows("hooli")
    process, claim = begin(cluster)

    def stop(writes: int) -> None:
        if writes == 8:
            process.runner._stopping.set()

    with pytest.raises(Stopping):
        work(process, claim, monkeypatch, stop)
    assert service.is_being_reset("initech")
    work(*take_over(cluster, "one", "two"), monkeypatch)
    check_complete(cluster, others)


@pytest.mark.parametrize(("number", "error"), [
    (1, Overloaded("the database does not respond")), (6, Overloaded("the database does not respond")),
    (-2, Overloaded("the database does not respond")), (6, ConnectionLost(OSError("gone"))), (-2, OutcomeUnknown("gone")),
])  # fmt: skip
def test_a_database_that_is_away_for_a_moment_does_not_fail_a_reset(
    cluster: Processes, monkeypatch: pytest.MonkeyPatch, number: int, error: Exception
) -> None:
    others, is_away = tenant_rows("hooli"), iter([True])
    process, claim = begin(cluster)

    def refuse(writes: int) -> None:
        if (writes == number or (number < 0 and not count_rows("initech").get("execution"))) and next(is_away, False):
            raise error

    with pytest.raises(Stopping):
        work(process, claim, monkeypatch, refuse)
    assert service.is_being_reset("initech") == (number != 1)
    work(*take_over(cluster, "one", "two"), monkeypatch)
    check_complete(cluster, others)


def test_a_reset_that_is_given_up_leaves_an_empty_tenant_and_says_so(cluster: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    others = tenant_rows("hooli")
    process, claim = begin(cluster)
    with pytest.raises(Killed):
        work(process, claim, monkeypatch, die_before(7))
    process, claim = take_over(cluster, "one", "two")
    process.runner.most_claims = 5  # type: ignore[misc]
    process.runner._run(replace(claim, claims=6))
    job = last(cluster)
    assert (job.state, job.problem is not None, "emptied" in job.result) == ("failed", True, True)
    assert "the tenant was emptied, but the solution could not be applied" in (job.problem.message if job.problem else "")
    assert (collections(cluster.scope), service.is_being_reset("initech")) == ([], False)
    assert (count_rows("initech").keys() <= PRESERVED, tenant_rows("hooli")) == (True, others)
    assert len(entity_tables()) == 2
    service.refuse_reset("initech")
    again, claim = begin(cluster, "three")
    work(again, claim, monkeypatch)
    assert collections(cluster.scope) == ["parts"]


def test_rows_that_come_too_late_are_deleted_by_the_last_write(cluster: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    others = tenant_rows("hooli")
    process, claim = begin(cluster)
    late = 0

    def write_late(writes: int) -> None:
        nonlocal late
        if service.is_being_reset("initech") and not count_rows("initech").get("execution") and not late:
            late = 1
            with pytest.MonkeyPatch.context() as direct:
                direct.setattr(db, "write", lambda fn, **_: db.submit(fn).result() if not db.is_inside_write() else fn())
                fill(cluster.scope, 3)

    work(process, claim, monkeypatch, write_late)
    assert late == 1
    check_complete(cluster, others)


# -- beside exports, deletions and backups


def kill_in_the_middle(cluster: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    process, claim = begin(cluster)
    with pytest.raises(Killed):
        work(process, claim, monkeypatch, die_before(9))
    assert (service.is_being_reset("initech"), count_rows("initech")["execution"] > 0) == (True, True)


def test_a_tenant_is_not_exported_while_it_is_reset(cluster: Processes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tenant_exports.export_tenant(cluster.scope, cluster.world.places, tmp_path / "before.gost", None)
    kill_in_the_middle(cluster, monkeypatch)
    with pytest.raises(Conflict, match="is being reset, and only a part of it is left"):
        tenant_exports.export_tenant(cluster.scope, cluster.world.places, tmp_path / "half.gost", None)
    assert [path.name for path in tmp_path.glob("*.gost")] == ["before.gost"]
    work(*take_over(cluster, "one", "two"), monkeypatch)
    tenant_exports.export_tenant(cluster.scope, cluster.world.places, tmp_path / "after.gost", None)


def test_a_tenant_that_is_reset_is_deleted_afterwards(cluster: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    kill_in_the_middle(cluster, monkeypatch)
    process = cluster.open("three")
    process.deletions.start(appliance_scope(), "initech")
    kind = "tenant-deletion initech"
    failed = wait_for(lambda: next(iter(records.list_jobs(appliance_scope(), kind)), None))
    assert (failed.state, "is being reset" in (failed.problem.message if failed.problem else "")) == ("failed", True)
    work(*take_over(cluster, "one", "two"), monkeypatch)
    service.delete_tenant("initech")
    assert count_rows("initech") == {}


def test_a_backup_of_a_tenant_that_is_reset_is_restored_and_the_reset_completed(
    cluster: Processes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hang_export(cluster)
    kill_in_the_middle(cluster, monkeypatch)
    others, world, path = tenant_rows("hooli"), cluster.world, tmp_path / "whole.gosb"
    world.backup(path)
    for each in cluster.processes:
        each.stop()
    cluster.processes.clear()
    db.close_database()
    target = make_world(tmp_path / "restored")
    restore(path, target)
    try:
        with target.opened() as sealer:
            restored = Processes(target, sealer, cluster.scope)
            assert [(job.kind, job.state) for job in all_jobs(cluster)] == [(RESET, "running")], "an export has no file any more"
            check_closed(restored)
            work(*take_over(restored, "one", "two"), monkeypatch)
            check_complete(restored, others)
            for each in restored.processes:
                each.stop()
    finally:
        db.open_database(cluster.world.config.database_url)


def hang_export(cluster: Processes) -> None:
    db.write(partial(records.insert_running, cluster.scope, NewJob(records.EXPORT), "gone"))


def all_jobs(cluster: Processes) -> list[TenantJob]:
    return [job for kind in (records.EXPORT, RESET) for job in records.list_jobs(cluster.scope, kind)]
